"""The job that compares allreduces: sums of float32 arrays of several sizes, with no training around them"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

from benchmarks.sizes import AtSizes, elements_of
from d5ray.kits.laboratory.comparisons.contenders import RankSeries
from d5ray.kits.laboratory.comparisons.timing import Times
from d5ray.kits.laboratory.jobs.worlds import ReducingGroup, timed_sum
from d5ray.kits.laboratory.metrics.exchanges import ALLREDUCE_TIME

HASHED_AS = "d5ray.recipes.allreduce_times"  # where the first runs knew it

GROUP_SECONDS = 120.0  # for one group to start, reduce everything and end


@final
@dataclass(frozen=True, kw_only=True)
class AllreduceTimes(AtSizes):
    """Contenders that reduce arrays. Wrong values raise `ConfigurationError`."""

    seconds: float = 0.15

    cpus = 0  # outside Ray

    def series(self, found: list[dict[str, Times]]) -> list[RankSeries]:
        """What the members of a group measured, by rank, as rows."""
        return [
            RankSeries.of(times, ALLREDUCE_TIME, size, rank=rank)
            for rank, own in enumerate(found)
            for size, times in own.items()
        ]

    def work(self, world: Callable[[int], ReducingGroup], size: int) -> Callable[[int], dict[str, Times]]:
        """What the members of a group of this size do. world: by rank."""
        return partial(reductions, world, size, self.sizes, self.seconds)


def reductions(
    world: Callable[[int], ReducingGroup], size: int, sizes: tuple[str, ...], seconds: float, rank: int
) -> dict[str, Times]:
    """The work of a member of a group: each size in turn."""
    own = world(rank)
    found = {each: timed_sum(own, rank, size, elements_of(each), seconds) for each in sizes}
    own.barrier()
    own.close()
    return found
