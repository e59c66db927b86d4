"""Times several operations of one process in turn, so that what disturbs the machine disturbs all of them"""

import math
from collections.abc import Callable, Mapping
from time import perf_counter

from d5ray.recipes.engine.comparisons.timing import FEWEST, MOST, SAMPLE_SECONDS, Times

Turn = Callable[[int], float]  # makes that many calls, and gives the mean of their seconds


def repeated(operation: Callable[[], object]) -> Turn:
    """The mean seconds of calls that follow one another."""

    def turn(loops: int) -> float:
        begin = perf_counter()
        for _ in range(loops):
            operation()
        return (perf_counter() - begin) / loops

    return turn


def in_turn(sides: Mapping[str, Turn], seconds: float) -> dict[str, Times]:
    """All sides in turn, forwards and backwards, for about that many seconds; see `timing.timed`."""
    loops: dict[str, int] = {}
    for name, side in sides.items():
        side(1)
        loops[name] = max(1, math.ceil(SAMPLE_SECONDS / side(1)))
    found: dict[str, list[float]] = {name: [] for name in sides}
    begin, turns = perf_counter(), 0
    while turns < FEWEST or (turns < MOST and perf_counter() - begin < seconds):
        order = list(sides) if turns % 2 == 0 else list(reversed(list(sides)))
        for name in order:
            found[name].append(sides[name](loops[name]))
        turns += 1
    return {name: Times(values, loops[name]) for name, values in found.items()}
