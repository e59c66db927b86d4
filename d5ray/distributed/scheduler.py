"""Schedulers: tasks side by side and their clock, as threads of this machine or on virtual time"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, final


class Signal(Protocol):
    """A thing that happens once, and that others wait for."""

    def set(self) -> None:
        """Let it have happened: whoever waits goes on."""

    def is_set(self) -> bool:
        """True once `set` has been called."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has happened, for these seconds at most; True if it has."""


class Queue(Protocol):
    """A queue: first in, first out."""

    def put(self, item: Any) -> None:
        """Append an item to the queue."""

    def get(self) -> Any:
        """Take the first item, waiting until there is one."""


class Scheduler(ABC):
    """Runs what goes on side by side; whoever waits, waits through it."""

    @abstractmethod
    def now(self) -> int:
        """The time in ns, of a clock that never goes back."""

    @abstractmethod
    def epoch(self) -> int:
        """The time at which the clock was at 0, in ns of Unix time."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Let that much time pass for the caller."""

    @abstractmethod
    def spawn(self, run: Callable[[], object], name: str) -> None:
        """Run this beside the caller; it ends with the process at the latest."""

    @abstractmethod
    def event(self) -> Signal:
        """A new event."""

    @abstractmethod
    def queue(self) -> Queue:
        """A new queue."""


@final
class Threads(Scheduler):
    """Threads of this process, in real time."""

    def now(self) -> int:
        return time.perf_counter_ns()

    def epoch(self) -> int:
        return time.time_ns() - time.perf_counter_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def spawn(self, run: Callable[[], object], name: str) -> None:
        threading.Thread(target=run, name=name, daemon=True).start()

    def event(self) -> Signal:
        return threading.Event()

    def queue(self) -> Queue:
        return SimpleQueue()


THREADS = Threads()
