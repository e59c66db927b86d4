"""Faults by plan on a run's real processes: an injector in the driver, and hands on other nodes"""

import heapq
import itertools
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import ray
from ray.exceptions import RayError

from d5ray.actors.cluster.placement import Place, place_of
from d5ray.actors.group.fills import Fill
from d5ray.actors.group.partitions import Partitions
from d5ray.actors.group.roster import AgentRoster
from d5ray.actors.metrics.aggregator_client import AggregatorClient
from d5ray.actors.servers.run_servers import RunServers
from d5ray.actors.session import session
from d5ray.agent.faults import NUMBERS
from d5ray.distributed.faults.fault import FILLS, MISSED, Fault, missed
from d5ray.distributed.faults.plan import Faults
from d5ray.errors import D5Error, first_line

FIND_SECONDS: Final = 20.0  # for a victim to be there again that is being replaced
ASK_SECONDS: Final = 5.0  # for a process to say where it is
DEATHS: Final = ("agent_died", "server_died")  # events with which a recovery begins

Find = Callable[[Fault], list[Any]]  # actors, places or process ids of a victim


@final
class Injector:
    """Lets the faults happen that the victims do not do themselves, each once, and undoes what lasts.

    find: the victims. note(name, rank, **detail): keeps an event. hand(node): a `FaultInjector`, an actor
    there. places: of the agents that are there, by rank. outside: how often each agent's process was ended
    from here. missed: why faults did not happen that were due. whole: the agents and servers that never died
    before they had told everything at last, such as "agent 1".
    """

    def __init__(
        self,
        faults: Faults,
        root: Path,
        find: Find,
        note: Callable[..., None],
        hand: Callable[[str], Any],
        places: Callable[[], Mapping[int, Place]] = dict,
    ) -> None:
        self._left = list(faults.from_outside)
        self._all, self._root, self._find, self._note, self._make_hand = faults, root, find, note, hand
        self._partitions = Partitions(places, self._hand)
        self._hands: dict[str, Any] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._begun: float | None = None
        self._over = False
        self._parts = True
        self._stopped: list[tuple[str | None, int]] = []  # (node, process); None: this one
        self._dead: set[int] = set()
        self._fills: list[Fill] = []
        self.outside: Counter[int] = Counter()
        self.missed: dict[Fault, str] = {}
        self.whole: set[str] = set()
        self._settled = False
        self._happening = threading.Lock()

    def check(self) -> None:
        """Raise `ConfigurationError` for what cannot be done to the agents where they are."""
        self._partitions.check(self._all)

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

    def settle(self, told: Iterable[str], note: Callable[..., None]) -> None:
        """Keep an event by `note` for every fault that has not happened by now, and let none happen any more.

        told: the texts of those that events tell of.
        """
        with self._happening:
            self._settled = True
        for fault, why in missed(self._all, told, self.missed, self.whole).items():
            note(MISSED, _rank(fault), **fault.described, reason=why)

    def mend(self) -> None:
        """Nothing is cut off any more, so that what agents have to tell can arrive. Harmless twice."""
        self._parts = False
        self._partitions.mend()

    def close(self) -> None:
        """Nothing happens any more; what stands goes on, to be ended, and what is full has room."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self.mend()
        stopped, self._stopped = self._stopped, []
        for node, pid in stopped:
            self._send(node, pid, signal.SIGCONT)
        for fault in self._all:
            if fault.kind == "stop" and fault.victim == "agent":
                for found in self._find(fault):
                    if isinstance(found, Place):
                        self._send(found.node, found.pid, signal.SIGCONT)
        for fill in self._fills:
            fill.end()

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
        if fault.kind in FILLS:
            if self._tell(fault):
                self._fill(fault)
            return
        if fault.kind == "partition":
            if self._parts:
                self._part(fault)
            return
        victims = self._victims(fault)
        if not victims or not self._tell(fault):
            return
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

    def _tell(self, fault: Fault) -> bool:
        """Keep an event that this fault happens now; False where nothing is to happen any more."""
        with self._happening:
            if self._settled:
                return False
            with suppress(Exception):  # the aggregator may be what has died
                self._note("fault", _rank(fault), **fault.described)
        return True

    def _part(self, fault: Fault) -> None:
        if not self._tell(fault):
            return
        try:
            self._partitions.cut(fault)
        except D5Error as error:  # agents may have died, and stand on other hosts now
            self.missed[fault] = first_line(error)

    def _victims(self, fault: Fault) -> list[tuple[str | None, int]]:
        """Nodes and processes; waits for one that is being replaced, and gives none that is gone for good."""
        end = time.monotonic() + FIND_SECONDS
        while not self._over and time.monotonic() < end:
            with suppress(RayError):
                found = [_located(each) for each in self._find(fault)]
                if found and not any(pid in self._dead for _, pid in found):
                    return found
                if not found:
                    self.missed[fault] = f"there was no {fault.described['victim']} any more"
                    return []
            time.sleep(0.02)
        if not self._over:
            self.missed[fault] = f"no {fault.described['victim']} was found within {FIND_SECONDS:g} s"
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
        with suppress(RayError):
            ray.get(self._hand(node).signal.remote(pid, number), timeout=FIND_SECONDS)

    def _hand(self, node: str) -> Any:
        if node not in self._hands:
            self._hands[node] = self._make_hand(node)
        return self._hands[node]

    def _fill(self, fault: Fault) -> None:
        fill = Fill(fault, self._root)
        self._fills.append(fill)
        fill.fill(lambda: self._over)
        if self._over:
            fill.end()
        elif fault.seconds is not None:
            self._at(time.monotonic() + fault.seconds, fill.end)


def _rank(fault: Fault) -> int:
    """The agent that it happens to, or -1."""
    return fault.numbers[0] if fault.victim == "agent" else -1


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


def _located(found: Any) -> tuple[str | None, int]:
    """The node and the process of an actor, a place, or a process of this machine."""
    if isinstance(found, int):
        return None, found
    if not isinstance(found, Place):
        found = ray.get(found.__ray_call__.remote(place_of), timeout=ASK_SECONDS)
    return found.node, found.pid
