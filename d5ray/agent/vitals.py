"""Vitals: the signs of life that an agent gives from another thread while it works"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

from d5ray.distributed.group.waits import PresentWait


@final
@dataclass(frozen=True)
class Vitals:
    """The state of an agent as it is seen from outside: its work, and whom it waits for.

    doing: trains, evaluates, writes a checkpoint; empty: nothing. pieces: of evaluations done so far.
    cpu_seconds: of the thread that works. waits: those of now, however short: who waits is not to blame.
    """

    step: int
    doing: str
    pieces: int
    cpu_seconds: float
    waits: tuple[PresentWait, ...]

    def awaited(self) -> set[int]:
        """The ranks of the agents that this one waits for."""
        return {rank for wait in self.waits for rank in wait.agents}


@final
class WorkClock:
    """The processor's time that the thread has taken which works for an agent, read by another thread."""

    def __init__(self) -> None:
        self._read: Callable[[], float] = float  # nobody works yet: what answers meanwhile is no work

    def start(self) -> None:
        """The calling thread is the one that works from now on."""
        if hasattr(time, "pthread_getcpuclockid"):
            self._read = partial(time.clock_gettime, time.pthread_getcpuclockid(threading.get_ident()))
        else:
            self._read = time.process_time  # there is no clock of a single thread

    def seconds(self) -> float:
        """Seconds of the processor so far."""
        return self._read()
