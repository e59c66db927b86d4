"""Partitions of a real run: the hosts of some agents are cut off from all other hosts of the cluster"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, final

import ray
from ray.exceptions import RayError

from d5ray.actors.calls import CALL_SECONDS, get
from d5ray.actors.cluster.hand import FaultInjector
from d5ray.actors.cluster.placement import Place
from d5ray.actors.session import session
from d5ray.distributed.faults.fault import Fault
from d5ray.distributed.faults.plan import Faults
from d5ray.errors import ConfigurationError

AFTER_SECONDS: Final = 0.2  # in which all hosts have been told, since one that is cut off hears nothing
MEND_SECONDS: Final = 5.0  # for a host to say that it is connected again, before it is left to itself
FAR_SECONDS: Final = 120.0  # after which hosts are connected that nobody can tell so; the near ones stay cut

Sides = tuple[dict[str, str], dict[str, str]]  # addresses by node: of the agents named, and of all others


def check_cluster(faults: Faults, address: str | None) -> None:
    """Raise `ConfigurationError` for a partition of a Ray that is on one machine, before anything starts."""
    for fault in _partitions(faults):
        if session.embeds(address):
            raise ConfigurationError(
                f"{fault}: all agents are on this machine, and nothing between them is a network: join a Ray "
                "cluster of several hosts (--address HOST:PORT), or simulate the experiment"
            )


@final
class Partitions:
    """Cuts hosts off each other, each by routes of its own, and lets them be connected again.

    places: where the agents are that are there, by rank. hand(node): the actor `FaultInjector` there.
    """

    def __init__(self, places: Callable[[], Mapping[int, Place]], hand: Callable[[str], Any]) -> None:
        self._places, self._hand = places, hand
        self._own = FaultInjector()
        self._cut: set[str] = set()  # nodes

    def check(self, faults: Faults) -> None:
        """Raise `ConfigurationError` where a planned partition is none of hosts, or a host cannot do it."""
        for fault in _partitions(faults):
            sides = self._sides(fault)
            refused = {
                node: self._on(node, "try_to_cut", other, seconds=CALL_SECONDS)
                for node, other in _cuts(sides)
            }
            for node, why in refused.items():
                if why:
                    raise ConfigurationError(
                        f"{fault}: the host {(sides[0] | sides[1])[node]} cannot be cut off, as its routes "
                        f"cannot be changed: {why}; Ray needs the right to do so there (as root, or with "
                        "CAP_NET_ADMIN), or simulate the experiment"
                    )

    def cut(self, fault: Fault) -> None:
        """Cut the agents' hosts off from all others; they are connected again of themselves."""
        sides, begun = self._sides(fault), time.monotonic()
        near = next((side for side in sides if self._here in side), sides[1])
        told: list[Any] = []
        own: list[str] | None = None
        for node, addresses in _cuts(sides):
            self._cut.add(node)
            if node == self._here:
                own = addresses
                continue
            seconds = fault.seconds if node in near else min(FAR_SECONDS, fault.seconds or FAR_SECONDS)
            told.append(self._hand(node).cut.remote(addresses, AFTER_SECONDS, seconds))
        get(told, CALL_SECONDS, "begin a partition")
        if own is not None:
            left = max(0.0, AFTER_SECONDS - (time.monotonic() - begun))
            self._own.cut(own, left, fault.seconds)

    def mend(self) -> None:
        """Connect all again; a host that cannot be told is when its `FaultInjector` or its time ends."""
        cut, self._cut = self._cut, set()
        self._own.mend()
        with suppress(RayError):
            told = [self._hand(node).mend.remote() for node in cut if node != self._here]
            if told:
                ray.wait(told, num_returns=len(told), timeout=MEND_SECONDS)

    # --------------------------------------------------------------------------------------------------

    @property
    def _here(self) -> str:
        """The driver's node."""
        return str(ray.get_runtime_context().get_node_id())

    def _on(self, node: str, method: str, *given: Any, seconds: float) -> Any:
        if node == self._here:
            return getattr(self._own, method)(*given)
        return get([getattr(self._hand(node), method).remote(*given)], seconds, "change its routes")[0]

    def _sides(self, fault: Fault) -> Sides:
        """The hosts on either side; `ConfigurationError` where agents of both sides share one, or all are."""
        places = self._places()
        missing = [rank for rank in fault.numbers if rank not in places]
        if missing:
            raise ConfigurationError(f"{fault}: agent {missing[0]} is not there: name others")
        cut = {places[rank].address for rank in fault.numbers}
        for rank, place in places.items():
            if rank not in fault.numbers and place.address in cut:
                same = next(other for other in fault.numbers if places[other].address == place.address)
                raise ConfigurationError(
                    f"{fault}: agent {same} shares the host {place.address} with agent {rank}, and nothing "
                    f"between them is a network: name all agents of a host or none, here "
                    f"{_by_host(places)}"
                )
        nodes = session.guarded(lambda: [node for node in ray.nodes() if node["Alive"]])
        addresses = {str(node["NodeID"]): str(node["NodeManagerAddress"]) for node in nodes}
        named = {node: address for node, address in addresses.items() if address in cut}
        others = {node: address for node, address in addresses.items() if address not in cut}
        if not named or not others:
            raise ConfigurationError(
                f"{fault}: the cluster has no other hosts than {', '.join(sorted(cut))}: add nodes to it, or "
                "simulate the experiment"
            )
        return named, others


def _partitions(faults: Faults) -> list[Fault]:
    return [fault for fault in faults if fault.kind == "partition"]


def _cuts(sides: Sides) -> list[tuple[str, list[str]]]:
    """For one node of each host the addresses that it is cut off from."""
    found: dict[str, tuple[str, list[str]]] = {}
    for own, other in (sides, sides[::-1]):
        for node, address in own.items():
            found.setdefault(address, (node, sorted(set(other.values()))))
    return list(found.values())


def _by_host(places: Mapping[int, Place]) -> str:
    hosts: dict[str, list[int]] = {}
    for rank, place in places.items():
        hosts.setdefault(place.address, []).append(rank)
    return "; ".join(f"{', '.join(map(str, ranks))} on {address}" for address, ranks in hosts.items())
