"""Interleaved timing of several operations in one process: what disturbs the machine disturbs all of them"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter

from d5ray.recipes.engine.comparisons.timing import FEWEST, MOST, SAMPLE_SECONDS, Times, mean_seconds

Timer = Callable[[int], float]  # makes that many calls, and gives the mean of their seconds


def timer(operation: Callable[[], object]) -> Timer:
    """The timer of an operation: the mean seconds of calls that follow one another."""
    return partial(mean_seconds, operation)


def interleaved(sides: Mapping[str, Timer], seconds: float) -> dict[str, Times]:
    """All sides in turn, forwards and backwards, for about that many seconds; see `timing.timed`."""
    loops: dict[str, int] = {}
    for name, side in sides.items():
        side(1)
        loops[name] = max(1, math.ceil(SAMPLE_SECONDS / side(1)))
    found: dict[str, list[float]] = {name: [] for name in sides}
    begin, rounds = perf_counter(), 0
    while rounds < FEWEST or (rounds < MOST and perf_counter() - begin < seconds):
        order = list(sides) if rounds % 2 == 0 else list(reversed(list(sides)))
        for name in order:
            found[name].append(sides[name](loops[name]))
        rounds += 1
    return {name: Times(values, loops[name]) for name, values in found.items()}
