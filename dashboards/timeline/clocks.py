"""One time for all nodes of a run: each row has its node's monotonic clock and the time of the wall"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median_low
from typing import NamedTuple, final


class RecorderClock(NamedTuple):
    """A recorder; offset: what its node's clock lacked to the time of the wall when it began, ns."""

    rank: int
    agent: str
    attempt: int
    node: str
    offset: int


@final
class Clocks:
    """The clocks of nodes: within one the monotonic clock is exact, between them the wall's time counts.

    Every recorder looks once, when it starts, what its clock lacks to the wall's time. The looks of one node
    differ by what the system did in between, so the median of them is taken for all its recorders: their rows
    keep the order that the node's clock gave them.
    """

    def __init__(self, recorders: Iterable[RecorderClock]) -> None:
        seen: dict[str, list[int]] = defaultdict(list)
        self._nodes: dict[int, str] = {}
        for recorder in recorders:
            seen[recorder.node].append(recorder.offset)
            self._nodes[recorder.offset] = recorder.node
        self.offsets: Mapping[str, int] = {node: median_low(offsets) for node, offsets in seen.items()}

    def common(self, monotonic: int, node: str) -> int:
        """A reading of a node's clock as the time that all have in common, ns."""
        return monotonic + self.offsets[node]

    def of_event(self, monotonic: int, offset: int) -> int:
        """The clock of an event, which does not say its node: the one whose recorder saw the same."""
        if not self._nodes:
            return monotonic + offset
        nearest = min(self._nodes, key=lambda seen: abs(seen - offset))
        return self.common(monotonic, self._nodes[nearest])
