"""Faults by plan on a run's real processes: an injector in the driver, and hands on other nodes"""

import heapq
import itertools
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import ray
from ray.exceptions import RayError

from d5ray.actors.cluster.placement import Place, place_of
from d5ray.actors.group.roster import AgentRoster
from d5ray.actors.metrics.aggregator_client import AggregatorClient
from d5ray.actors.servers.run_servers import RunServers
from d5ray.actors.session import session
from d5ray.agent.faults import NUMBERS
from d5ray.distributed.faults.fault import Fault
from d5ray.distributed.faults.plan import Faults
from d5ray.errors import ConfigurationError

LARGEST_DISK: Final = 2**30  # bytes of a file system that may be filled
FIND_SECONDS: Final = 20.0  # for a victim to be there again that is being replaced
ASK_SECONDS: Final = 5.0  # for a process to say where it is
FILL: Final = (2**20, 2**12, 1)  # bytes that are written at a time, until no more go in
DEATHS: Final = ("agent_died", "server_died")  # events with which a recovery begins

Find = Callable[[Fault], list[Any]]  # actors, places or process ids of a victim


@final
class Injector:
    """Lets the faults happen that the victims do not do themselves, each once, and undoes what lasts.

    find: the victims. note(name, rank, **detail): keeps an event. hand(node): an actor that is a `Hand`
    there. outside: how often each agent's process was ended from here.
    """

    def __init__(
        self, faults: Faults, root: Path, find: Find, note: Callable[..., None], hand: Callable[[str], Any]
    ) -> None:
        self._left = list(faults.from_outside)
        self._all, self._root, self._find, self._note, self._make_hand = faults, root, find, note, hand
        self._hands: dict[str, Any] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._begun: float | None = None
        self._over = False
        self._stopped: list[tuple[str | None, int]] = []  # (node, process); None: this one
        self._dead: set[int] = set()
        self._filling = root / f".d5ray-fills-{os.getpid()}"
        self.outside: Counter[int] = Counter()

    def begin(self) -> None:
        """The training begins: faults at seconds are counted from now on."""
        if self._begun is not None:
            return
        self._begun = time.monotonic()
        for fault in list(self._left):
            if fault.at_seconds is not None:
                self._left.remove(fault)
                self._at(self._begun + fault.at_seconds, partial(self._happen, fault))
        threading.Thread(target=self._run, name="d5ray-faults", daemon=True).start()

    def moment(self, name: str) -> None:
        """The run is in this moment: what is planned for it happens before this returns."""
        for fault in [fault for fault in self._left if fault.during == name]:
            self._left.remove(fault)
            self._happen(fault)

    def noting(self, note: Callable[..., None]) -> Callable[..., None]:
        """Keeps events by `note`, and sees that a recovery begins."""

        def noted(name: str, rank: int, **detail: object) -> None:
            note(name, rank, **detail)
            if name in DEATHS:
                self.moment("recovery")

        return noted

    def close(self) -> None:
        """Nothing happens any more; what stands goes on, so that it can be ended, and the disk has room."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        stopped, self._stopped = self._stopped, []
        for node, pid in stopped:
            self._send(node, pid, signal.SIGCONT)
        for fault in self._all:
            if fault.kind == "stop" and fault.victim == "agent":
                for found in self._find(fault):
                    if isinstance(found, Place):
                        self._send(found.node, found.pid, signal.SIGCONT)
        self._filling.unlink(missing_ok=True)

    # --------------------------------------------------------------------------------------------------

    def _at(self, when: float, call: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._due, (when, next(self._count), call))
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._over:
                    return
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                    continue
                _, _, call = heapq.heappop(self._due)
            with suppress(Exception):  # a victim or the aggregator that is gone is no error of the plan's
                call()

    def _happen(self, fault: Fault) -> None:
        if fault.kind == "fill_disk":
            self._tell(fault)
            self._fill(fault)
            return
        victims = self._victims(fault)
        if not victims:
            return
        self._tell(fault)
        for node, pid in victims:
            if fault.is_fatal and fault.kind != "stop":
                self._dead.add(pid)
            if fault.is_fatal and fault.victim == "agent":
                self.outside[fault.numbers[0]] += 1
            if fault.victim == "driver" and fault.seconds is not None:
                _stand(pid, fault.seconds)
                continue
            self._send(node, pid, NUMBERS[fault.kind])
            if fault.kind == "stop":
                self._stopped.append((node, pid))
                if fault.seconds is not None:
                    self._at(time.monotonic() + fault.seconds, partial(self._go_on, node, pid))

    def _tell(self, fault: Fault) -> None:
        rank = fault.numbers[0] if fault.victim == "agent" else -1
        with suppress(Exception):  # the aggregator may be what has died
            self._note("fault", rank, **fault.described)

    def _victims(self, fault: Fault) -> list[tuple[str | None, int]]:
        """Nodes and processes; waits for one that is being replaced, and gives none that is gone for good."""
        end = time.monotonic() + FIND_SECONDS
        while not self._over and time.monotonic() < end:
            with suppress(RayError):
                found = [_located(each) for each in self._find(fault)]
                if found and not any(pid in self._dead for _, pid in found):
                    return found
                if not found:
                    return []
            time.sleep(0.02)
        return []

    def _go_on(self, node: str | None, pid: int) -> None:
        with suppress(ValueError):
            self._stopped.remove((node, pid))
        self._send(node, pid, signal.SIGCONT)

    def _send(self, node: str | None, pid: int, number: int) -> None:
        here = None if node is None else ray.get_runtime_context().get_node_id()
        if node == here:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            return
        assert node is not None
        if node not in self._hands:
            self._hands[node] = self._make_hand(node)
        with suppress(RayError):
            ray.get(self._hands[node].signal.remote(pid, number), timeout=FIND_SECONDS)

    def _fill(self, fault: Fault) -> None:
        with self._filling.open("wb", buffering=0) as file:
            for size in FILL:
                block = bytes(size)
                with suppress(OSError):
                    while not self._over and file.write(block) == size:
                        pass
        if self._over:
            self._filling.unlink(missing_ok=True)
        elif fault.seconds is not None:
            self._at(time.monotonic() + fault.seconds, lambda: self._filling.unlink(missing_ok=True))


def _stand(pid: int, seconds: float) -> None:
    """Stop this process for so long. Another one does it, since no thread of this one could end it."""
    script = 'kill -STOP "$0"; sleep "$1"; kill -CONT "$0"'
    subprocess.run(["sh", "-c", script, str(pid), str(seconds)], start_new_session=True, check=False)


def finder(members: AgentRoster, servers: RunServers, aggregator: AggregatorClient) -> Find:
    """Finds the actors, places or processes that are the victim of a fault; none if it is gone."""

    def find(fault: Fault) -> list[Any]:
        (number,) = fault.numbers or (0,)
        if fault.victim == "agent":
            return [members.places[number]] if number in members.present else []
        if fault.victim == "server":
            return [servers.actor(number)]
        if fault.victim == "aggregator":
            return [aggregator.actor]
        return [os.getpid()] if fault.victim == "driver" else session.processes(fault.victim)

    return find


def check_disk(faults: Faults, root: Path) -> None:
    """Raise `ConfigurationError` unless the runs' file system may be filled, where that is planned."""
    planned = [fault for fault in faults if fault.kind == "fill_disk"]
    if not planned:
        return
    place = next(folder for folder in (root, *root.absolute().parents) if folder.exists())
    total, device = shutil.disk_usage(place).total, place.stat().st_dev
    others = [path for path in (Path("/"), Path("/tmp"), Path("/dev/shm"), Path.home()) if path.exists()]
    shared = next((path for path in others if path.stat().st_dev == device), None)
    if shared is not None or total > LARGEST_DISK:
        why = f"that of {shared}, which others need" if shared else f"one of {total >> 20} MB"
        raise ConfigurationError(
            f"{planned[0]}: the runs' folder {root} is on a file system that is {why}: mount a small one of "
            f"{LARGEST_DISK >> 20} MB at most (mount -t tmpfs -o size=64m tmpfs FOLDER), and set D5RAY_HOME"
        )


def _located(found: Any) -> tuple[str | None, int]:
    """The node and the process of an actor, a place, or a process of this machine."""
    if isinstance(found, int):
        return None, found
    if not isinstance(found, Place):
        found = ray.get(found.__ray_call__.remote(place_of), timeout=ASK_SECONDS)
    return found.node, found.pid
