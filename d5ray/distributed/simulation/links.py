"""Costs of messages in a simulation: a latency and a time for each byte, link by link, and disturbances"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, final

import numpy as np

from d5ray.checks import KnownKeywords, check_count, check_kind, check_number
from d5ray.distributed.faults.fault import Fault
from d5ray.distributed.simulation.clock import VirtualClock

AGAIN_SECONDS: Final = 0.2  # after which TCP sends again what was lost


class Links(KnownKeywords, ABC):
    """The links between nodes: the agents by rank, then the shards of the parameter servers."""

    @abstractmethod
    def latency(self, source: int, target: int) -> float:
        """Seconds from the begin of a message to the arrival of its first byte, α."""

    @abstractmethod
    def seconds_per_byte(self, source: int, target: int) -> float:
        """Seconds that each byte takes on the link, β."""

    def slowest(self, nodes: Iterable[int]) -> tuple[float, float]:
        """The largest α and β between two of these nodes; by default of neighbours in the order given."""
        pairs = list(pairwise(nodes))
        if not pairs:
            return 0.0, 0.0
        return max(self.latency(*pair) for pair in pairs), max(self.seconds_per_byte(*pair) for pair in pairs)


@final
@dataclass(frozen=True)
class UniformLinks(Links):
    """Every two nodes are linked alike (Hockney's model, doi 10.1016/S0167-8191(06)80021-9).

    The default is the network of a data centre: 50 µs, 10 Gbit/s.
    """

    latency_seconds: float = 50e-6
    bytes_per_second: float = 1.25e9

    def __post_init__(self) -> None:
        check_number("latency_seconds", self.latency_seconds, low=0.0, low_included=True)
        check_number("bytes_per_second", self.bytes_per_second, low=0.0, low_included=False)

    def latency(self, source: int, target: int) -> float:
        return self.latency_seconds

    def seconds_per_byte(self, source: int, target: int) -> float:
        return 1 / self.bytes_per_second

    def slowest(self, nodes: Iterable[int]) -> tuple[float, float]:
        return self.latency_seconds, 1 / self.bytes_per_second


@final
@dataclass(frozen=True)
class GroupedLinks(Links):
    """Nodes in groups of `size` by rank, such as racks or machines: one kind of link within, one between."""

    size: int
    within: UniformLinks
    between: UniformLinks

    def __post_init__(self) -> None:
        check_count("size", self.size)
        for name in ("within", "between"):
            check_kind(name, getattr(self, name), UniformLinks, "UniformLinks(...)")

    def latency(self, source: int, target: int) -> float:
        return self._link(source, target).latency_seconds

    def seconds_per_byte(self, source: int, target: int) -> float:
        return 1 / self._link(source, target).bytes_per_second

    def slowest(self, nodes: Iterable[int]) -> tuple[float, float]:
        among = list(nodes)
        groups = {node // self.size for node in among}
        used = ([self.within] if len(among) > len(groups) else []) + (
            [self.between] if len(groups) > 1 else []
        )
        if not used:
            return 0.0, 0.0
        return max(link.latency_seconds for link in used), max(1 / link.bytes_per_second for link in used)

    def _link(self, source: int, target: int) -> UniformLinks:
        return self.within if source // self.size == target // self.size else self.between


@final
class DisturbedLinks:
    """The partitions, delays and losses that have begun; messages between two nodes stay in their order.

    What is cut is not lost: it comes when the partition has ended, unless who waits for it gives up before.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 0xFA])
        self._begun: list[tuple[Fault, float]] = []  # with the time at which it ends
        self._last: dict[tuple[int, int], float] = {}  # when a link's last message comes

    def begin(self, fault: Fault, now: float) -> None:
        """Let a disturbance begin."""
        self._begun.append((fault, math.inf if fault.seconds is None else now + fault.seconds))

    def comes(self, source: int, target: int, leaves: float, comes: float) -> float:
        """The time at which a message's first byte comes, that would have come at `comes`."""
        taken = comes - leaves
        opens = self._opens([source, target], leaves)
        comes = opens + taken + self._late([source, target], leaves, messages=1)
        comes = self._last[source, target] = max(comes, self._last.get((source, target), 0.0))
        return comes

    def ends(self, nodes: Sequence[int], begins: float, seconds: float, messages: int) -> float:
        """The time at which a collective ends that would take so many seconds, and messages one by one."""
        return self._opens(nodes, begins) + seconds + self._late(nodes, begins, messages)

    def _opens(self, nodes: Sequence[int], now: float) -> float:
        """The time from which no partition stands between these nodes; infinite where one never ends."""
        for fault, end in sorted(self._begun, key=lambda pair: pair[1]):
            cut = {node in fault.numbers for node in nodes}
            if fault.kind == "partition" and len(cut) > 1 and now < end:
                now = end
        return now

    def _late(self, nodes: Sequence[int], now: float, messages: int) -> float:
        """Seconds that so many messages one after the other come later."""
        late = 0.0
        for fault, end in self._begun:
            if now >= end or (fault.numbers and not set(fault.numbers).intersection(nodes)):
                continue
            assert fault.amount is not None or fault.kind == "partition"
            if fault.kind == "delay":
                late += messages * (fault.amount or 0.0)
            elif fault.kind == "lose":
                for _ in range(messages):
                    while self._rng.random() < (fault.amount or 0.0):
                        late += AGAIN_SECONDS
        return late


@final
class Wires:
    """Messages under way: a node sends one after the other, and receives one after the other.

    A message of n bytes leaves when the messages before it have left, and has arrived α + βn later, or βn
    after the receiver has those whose first byte came before its own (the LogGP model's gap per byte, without
    its overhead: Alexandrov et al., doi 10.1145/215399.215427).
    """

    def __init__(self, links: Links) -> None:
        self.links = links
        self.disturbed: DisturbedLinks | None = None  # where links are disturbed by plan
        self._sent: dict[int, float] = {}  # when a node has sent all it was given
        self._received: dict[int, float] = {}
        self.carried: dict[tuple[int, int], int] = {}  # bytes by link

    def send(
        self, clock: VirtualClock, source: int, target: int, payload_bytes: int, arrived: Callable[[], None]
    ) -> None:
        """Give the source a message now; `arrived` is called when it has arrived."""
        if source == target:
            clock.at(clock.seconds, arrived)
            return
        taken = self.links.seconds_per_byte(source, target) * payload_bytes
        leaves = max(clock.seconds, self._sent.get(source, 0.0))
        self._sent[source] = leaves + taken
        self.carried[source, target] = self.carried.get((source, target), 0) + payload_bytes

        def first_byte() -> None:
            received = max(clock.seconds, self._received.get(target, 0.0)) + taken
            self._received[target] = received
            clock.at(received, arrived)

        comes = leaves + self.links.latency(source, target)
        if self.disturbed is not None:
            comes = self.disturbed.comes(source, target, leaves, comes)
        if comes < math.inf:
            clock.at(comes, first_byte)
