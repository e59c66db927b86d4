"""Links of a simulation that are cut, slower or lossy for a time, by plan"""

import math
from collections.abc import Sequence
from typing import Final, final

import numpy as np

from d5ray.distributed.faults.fault import Fault
from d5ray.distributed.simulation.links import Disturbed

AGAIN_SECONDS: Final = 0.2  # after which TCP sends again what was lost


@final
class DisturbedLinks(Disturbed):
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
        taken = comes - leaves
        opens = self._opens([source, target], leaves)
        comes = opens + taken + self._late([source, target], leaves, messages=1)
        comes = self._last[source, target] = max(comes, self._last.get((source, target), 0.0))
        return comes

    def ends(self, nodes: Sequence[int], begins: float, seconds: float, messages: int) -> float:
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
