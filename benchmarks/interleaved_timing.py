"""Interleaved timing of several operations in one process: what disturbs the machine disturbs all of them"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter

from d5ray.checks import check_count, check_number
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide
from d5ray.kits.laboratory.comparisons.timing import FEWEST, MOST, SAMPLE_SECONDS, Times, mean_seconds

Timer = Callable[[int], float]  # makes that many calls, and gives the mean of their seconds


@dataclass(frozen=True, kw_only=True)
class InterleavedTiming(SideBySide):
    """A job whose contenders are processes outside Ray that time several sides so.

    seconds: about so long everything is timed in each process; threads: of its numerical libraries.
    """

    seconds: float = 1.0
    threads: int = 1

    cpus = 0  # outside Ray

    def check(self) -> None:
        check_count("threads", self.threads, 1)
        check_number("seconds", self.seconds, low=0.0, low_included=False)


def timer(operation: Callable[[], object], done: Callable[[], object] = lambda: None) -> Timer:
    """The timer of an operation: the mean seconds of calls that follow one another, until they are `done`."""
    return lambda calls: mean_seconds(operation, calls, done)


def interleaved(
    sides: Mapping[str, Timer], seconds: float, largest: Callable[[float], float] = float
) -> dict[str, Times]:
    """All sides in turn, forwards and backwards, for about that many seconds; see `timing.timed`.

    largest: of all members' values, where the members of a group do it together.
    """
    loops: dict[str, int] = {}
    for name, side in sides.items():
        side(1)
        loops[name] = max(1, math.ceil(SAMPLE_SECONDS / largest(side(1))))
    found: dict[str, list[float]] = {name: [] for name in sides}
    begin, rounds = perf_counter(), 0
    while rounds < FEWEST or (rounds < MOST and largest(perf_counter() - begin) < seconds):
        order = list(sides) if rounds % 2 == 0 else list(reversed(list(sides)))
        for name in order:
            found[name].append(sides[name](loops[name]))
        rounds += 1
    return {name: Times(values, loops[name]) for name, values in found.items()}
