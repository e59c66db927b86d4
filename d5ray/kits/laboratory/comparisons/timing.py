"""Times an operation, of a group or of one process: repetitions long enough to be timed, and when to stop"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol, final

from d5ray.metrics.statistics.sequential_stopping import StoppingRule

SAMPLE_SECONDS = 0.01  # that one value should cover at least: shorter operations are repeated for it
FEWEST, MOST = 5, 40  # values


class TimedGroup(Protocol):
    """The methods that a group must have to be timed."""

    def largest(self, value: float) -> float:
        """The greatest of all members' values, the same on each."""

    def barrier(self) -> None:
        """Return when every member has called it."""


@final
@dataclass(frozen=True)
class Times:
    """Seconds of one operation, each the mean of `loops` that followed one another."""

    seconds: list[float]
    loops: int
    stop_reason: str = ""


def repeated(operation: Callable[[], object], rule: StoppingRule | None = None) -> Times:
    """Time an operation of this process until its median is known as precisely as the rule asks.

    Operations of less than `SAMPLE_SECONDS` are repeated for one value. The first ones, by which it is found
    how often, are not counted. rule: by default looks after 30, 45, 68, … values, until 5 %.
    """
    rule = rule or StoppingRule()
    loops, _ = _loops(operation)
    seconds: list[float] = []
    begin = perf_counter()
    while not (reason := rule.reason(seconds, perf_counter() - begin)):
        seconds.append(mean_seconds(operation, loops))
    return Times(seconds, loops, reason)


def timed(operation: Callable[[], object], group: TimedGroup, budget: float) -> Times:
    """Time an operation that all members of a group do together, for about `budget` seconds.

    The members start at a barrier and then repeat the operation without one, as MPI's and NCCL's benchmarks
    do: the operation itself holds them together. How often they repeat it they decide together, by the
    slowest. The first repetitions, by which they decide, are not counted.
    """
    loops, found = _loops(operation, group.largest)
    repetitions = round(min(MOST, max(FEWEST, budget / (found * loops))))
    group.barrier()
    return Times([mean_seconds(operation, loops) for _ in range(repetitions)], loops)


def _loops(operation: Callable[[], object], largest: Callable[[float], float] = float) -> tuple[int, float]:
    """How many calls one value is the mean of, and the seconds of one; largest: of all members' values."""
    loops = 1
    while (found := largest(mean_seconds(operation, loops))) * loops < SAMPLE_SECONDS / 2:
        loops = max(2 * loops, round(SAMPLE_SECONDS / 2 / max(found, 1e-9)))
    return max(1, round(SAMPLE_SECONDS / found)), found


def mean_seconds(
    operation: Callable[[], object], loops: int, done: Callable[[], object] = lambda: None
) -> float:
    """The mean seconds of calls of the operation that follow one another, until they are `done`."""
    begin = perf_counter()
    for _ in range(loops):
        operation()
    done()
    return (perf_counter() - begin) / loops
