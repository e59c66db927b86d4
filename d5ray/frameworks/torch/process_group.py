"""The one place that touches torch.distributed: a gloo process group of its own, no global default group"""

import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import torch
import torch.distributed

from d5ray.frameworks.sockets import kept_alive, listeners

dist: Any = torch.distributed  # its type stubs lack most of what a process group has
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Values(Protocol):
    """The store in which members of a group leave each other their addresses."""

    def put(self, key: str, value: bytes) -> None:
        """Leave a value under a key."""

    def take(self, key: str, seconds: float | None = None) -> bytes:
        """The value that somebody left, waiting for it; `seconds` at most, or as long as the group waits."""


@final
class Broken(Exception):
    """A message cannot be sent or received: the connection to a peer broke, or the wait was too long."""

    def __init__(self, peer: int | None, words: str) -> None:
        super().__init__(words)
        self.peer = peer
        self.words = words
        self.timed_out = words.startswith("Timed out")


@final
class GlooGroup:
    """Messages of bytes between the members of one group, by `ProcessGroupGloo`.

    Any subset of processes in any order of ranks; groups of other `values` do not meet. The class is
    semi-public in PyTorch, which is why it is wrapped here and the version pinned. A message may be shorter
    than what its receiver waits for; a longer one ends the receiving process, which callers must rule out.
    """

    def __init__(
        self,
        values: Values,
        rank: int,
        size: int,
        host: str,
        timeout_seconds: float,
        connecting_seconds: float | None = None,
    ) -> None:
        """timeout_seconds: of a message. connecting_seconds: until all are connected; None: as long."""
        self._timeout = timedelta(seconds=timeout_seconds)
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=connecting_seconds or timeout_seconds)
        options._threads = 1  # for gloo's own collectives, which are not used
        self._store = _Store(values)  # PyTorch keeps no reference to the Python object
        try:
            with listeners() as self._listeners:
                options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
            with kept_alive(timeout_seconds):
                self._group: Any = dist.ProcessGroupGloo(self._store, rank, size, options)
        except RuntimeError as error:
            raise _broken(None, str(error)) from error
        _let_callers_finish()

    def send(self, message: Bytes, to: int, tag: int) -> "Work":
        """Begin to send; the bytes must stay as they are until the work is waited for."""
        group = self._open(to)
        try:
            return Work(group.send([torch.from_numpy(message)], to, tag), to, self._timeout)
        except RuntimeError as error:
            text = str(error)
        raise _broken(to, text)

    def receive(self, message: Bytes, source: int, tag: int) -> "Work":
        """Begin to receive into the bytes."""
        group = self._open(source)
        try:
            return Work(group.recv([torch.from_numpy(message)], source, tag), source, self._timeout)
        except RuntimeError as error:
            text = str(error)
        raise _broken(source, text)

    def shut(self) -> None:
        """Accept no further connections: all that belong to the group are there."""
        self._listeners.refuse()

    def close(self) -> None:
        """Close the connections, when no `Work` holds them open any longer: the peers' waits break."""
        self._group = None

    def _open(self, peer: int) -> Any:
        if self._group is None:
            raise Broken(peer, "this member has closed its connections")
        return self._group


@final
class Work:
    """A message under way; it keeps the connections open."""

    __slots__ = ("_peer", "_timeout", "_work")

    def __init__(self, work: Any, peer: int, timeout: timedelta) -> None:
        self._work = work
        self._peer = peer
        self._timeout = timeout

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it has arrived, or left, or raise `Broken`. seconds: instead of the group's time-out."""
        try:
            self._work.wait(self._timeout if seconds is None else timedelta(seconds=seconds))
            return
        except RuntimeError as error:  # torch has no narrower type for a lost connection or a time-out
            text = str(error)
        raise _broken(self._peer, text)

    def drop(self) -> None:
        """Give up the operation."""
        self._work = None


class _Store(dist.Store):  # type: ignore[misc]
    """`Values` as PyTorch's store: all that joining a gloo group asks of one."""

    def __init__(self, values: Values) -> None:
        super().__init__()
        self._values = values

    def set(self, key: str, value: bytes | str) -> None:
        self._values.put(key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        return self._values.take(key)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        for key in keys:
            self._values.take(key, None if timeout is None else timeout.total_seconds())

    def has_extended_api(self) -> bool:
        return False


def _let_callers_finish() -> None:
    """Keep gloo's event threads from taking a core from a thread that calls gloo.

    They spin while a caller holds a connection's lock; on the caller's core that costs a slice of 3 ms. As
    batch threads they run when the caller sleeps.
    """
    if not hasattr(os, "SCHED_BATCH"):  # not Linux
        return
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # of threads that have ended since, or where it is not allowed
            if (task / "comm").read_text().strip() == "gloo_tcp_loop":
                os.sched_setscheduler(int(task.name), os.SCHED_BATCH, os.sched_param(0))


def _broken(peer: int | None, text: str) -> Broken:
    """The error without gloo's place in its source and its advice to read the logs.

    Not raised from PyTorch's error: that one's traceback would keep the connections open.
    """
    return Broken(peer, (text.partition("] ")[2] or text).splitlines()[0].partition(". ")[0])
