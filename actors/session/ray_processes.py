"""The processes without which Ray cannot go on: whether they live, as soon as one does not"""

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol, final

import psutil

from d5ray.errors import RayLost

VITAL = {"gcs_server": "the head of Ray", "raylet": "Ray's raylet, which runs the actors of this machine,"}
HEAD_SECONDS = 20.0  # in which the head of a cluster may come back
KNOCK_SECONDS = 2.0  # between two looks at it

ADVICE = (
    "the run cannot go on, what was measured until then is kept; if nobody ended it, memory may have run "
    "out, or /dev/shm (look at `dmesg`, `df /dev/shm`, and at the logs of Ray): begin the run anew"
)


class Vital(Protocol):
    """A process that Ray cannot go on without."""

    @property
    def pids(self) -> dict[str, int]:
        """The processes of this machine that it looks at, by their kind."""

    def check(self) -> None:
        """Raise `RayLost` if the process has ended."""


@final
class Head:
    """The head of Ray at an address, HOST:PORT. closed_seconds: for which nobody may listen there."""

    def __init__(self, address: str, closed_seconds: float) -> None:
        self._host, _, port = address.rpartition(":")
        self._port, self._closed_seconds = int(port), closed_seconds
        self._answered = self._knocked = time.monotonic()
        self._lost = ""

    def check(self) -> None:
        """Raise `RayLost` if it has not answered for some time; every thread that asks hears of it."""
        if time.monotonic() - self._knocked >= KNOCK_SECONDS:
            self._knock()
        if self._lost:
            raise RayLost(self._lost)

    def _knock(self) -> None:
        self._knocked, bound = time.monotonic(), HEAD_SECONDS
        try:
            with socket.create_connection((self._host, self._port), KNOCK_SECONDS):
                self._answered = time.monotonic()
        except ConnectionRefusedError:
            bound = self._closed_seconds
        except OSError:
            pass
        silent = time.monotonic() - self._answered
        where = f"the head of Ray at {self._host}:{self._port}"
        self._lost = f"{where} has not answered for {silent:.0f} s: {ADVICE}" if silent > bound else ""


@final
class Children:
    """The processes of an embedded Ray, which this process started, and its head."""

    def __init__(self, processes: Mapping[str, "subprocess.Popen[bytes]"], head: Head | None = None) -> None:
        self._processes, self._head = processes, head
        self._lock = threading.Lock()  # a `poll` beside another's says that the process lives

    @classmethod
    def of_ray(cls, started: Mapping[str, list[Any]], address: str) -> "Children":
        """The processes that a node of Ray's has started, by their kind, and the address of its head.

        A head that gets SIGTERM closes its port, and its process stays.
        """
        there = {kind: started[kind][0].process for kind in VITAL if started.get(kind)}
        return cls(there, Head(address, closed_seconds=0.0))

    @property
    def pids(self) -> dict[str, int]:
        """The processes that are an embedded Ray's, by their kind."""
        return {kind: process.pid for kind, process in self._processes.items()}

    def check(self) -> None:
        """Raise `RayLost` as soon as one has ended, or nobody listens at the head's port."""
        for kind, process in self._processes.items():
            with self._lock:
                code = process.poll()
            if code is not None:
                how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
                raise RayLost(f"{VITAL[kind]} has ended {how}: {ADVICE}")
        if self._head is not None:
            self._head.check()


@final
class Elsewhere:
    """A cluster that this process has joined: the head answers, and this machine's raylet lives."""

    def __init__(self, address: str, raylet: str | None) -> None:
        """address: of the head, HOST:PORT; raylet: the socket of this machine's."""
        self._raylet = None if raylet is None else _process_of(raylet)
        self._head = Head(address, closed_seconds=HEAD_SECONDS)

    @property
    def pids(self) -> dict[str, int]:
        """This machine's raylet; the head is not this process's."""
        return {} if self._raylet is None else {"raylet": self._raylet.pid}

    def check(self) -> None:
        """Raise `RayLost` if the raylet has ended, or the head has not answered for some time."""
        if self._raylet is not None and not _lives(self._raylet):
            raise RayLost(f"{VITAL['raylet']} has ended: {ADVICE}")
        self._head.check()


def _process_of(name: str) -> psutil.Process | None:
    """The raylet with this socket."""
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "raylet" and any(name in word for word in process.info["cmdline"] or ()):
            return process
    return None


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
