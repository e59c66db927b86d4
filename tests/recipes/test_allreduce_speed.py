"""Claims about timing allreduces: every group sums right and is timed alike on all its ranks."""

import time
from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.allreduce_speed.job import reductions
from benchmarks.sizes import bytes_of
from d5ray.errors import AgentError
from d5ray.kits.laboratory.comparisons.timing import FEWEST, MOST, Times, timed
from d5ray.kits.laboratory.jobs.worlds import Array, D5rayWorld, ReducingGroup
from tests.distributed.forming import former
from tests.together import together


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
        reductions(world, size=2, sizes=("4 B",), seconds=0.01, rank=0)


def test_ranks_repeat_equally_often_and_all_wait_for_the_slowest() -> None:
    """Rank 1 sleeps 4 ms an operation: both take that, 10 ms hold two. Of one that is nothing, very many."""
    calls = [0, 0]
    with former() as groups:
        members = groups.form("reference", 2)

        def member(rank: int) -> Times:
            def operation() -> None:
                calls[rank] += 1
                time.sleep(0.004 * rank)
                members[rank].barrier()

            return timed(operation, D5rayWorld(members[rank]), budget=0.1)

        quick, slow = together(member, 2)
        assert (len(quick.seconds), quick.loops, calls[0]) == (len(slow.seconds), slow.loops, calls[1])
        assert FEWEST <= len(quick.seconds) <= MOST and 1 <= quick.loops <= 3
        assert min(np.median(quick.seconds), np.median(slow.seconds)) >= 0.0039
        loops = together(lambda rank: timed(time.time, D5rayWorld(members[rank]), budget=0.05).loops, 2)
        assert loops[0] == loops[1] > 1000


def test_sizes_are_read_as_people_write_them() -> None:
    assert [bytes_of(text) for text in ("4 B", "64 kB", "10 MB", "1 GB")] == [4, 64_000, 10**7, 10**9]
