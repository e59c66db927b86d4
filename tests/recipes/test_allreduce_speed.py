"""Claims about timing allreduces: every group sums right and is timed alike on all its ranks."""

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.allreduce_speed.job import Reductions
from d5ray.errors import AgentError
from d5ray.recipes.jobs.worlds import Array, ReducingGroup


class Broken(ReducingGroup):
    """A group whose sum is this member's own array."""

    def reduction(self, elements: int) -> tuple[Array, Callable[[], object]]:
        return np.zeros(elements, np.float32), lambda: None

    def largest(self, value: float) -> float:
        return value

    def barrier(self) -> None: ...

    def close(self) -> None: ...


def test_a_group_whose_sum_is_wrong_is_not_timed() -> None:
    def world(rank: int) -> ReducingGroup:
        return Broken()

    with pytest.raises(AgentError, match=r"instead of 3\.0: nothing is measured"):
        Reductions(world, size=2, sizes=("4 B",), seconds=0.01)(0)
