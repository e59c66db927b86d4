"""Claims about benches of allreduces: DeepBench's sizes, right sums before any time, one row a rank"""

from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from d5ray.actors.executors.call_timer import ProblemTiming
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.bench.allreduces import DEEPBENCH, AllreduceBench, AllreduceProblem
from d5ray.kits.laboratory.bench.group_member import GroupMember
from d5ray.metrics.record.schema import SAMPLES
from tests.kits.laboratory.comparing import check_rates
from tests.together import together


def test_the_sizes_are_the_published_ones() -> None:
    """Of all_reduce_problems.h: from 400 kB to 258 MB of float32."""
    problems = AllreduceBench().problems()
    assert [each.elements for each in problems] == list(DEEPBENCH)
    assert (problems[0].moved_bytes, problems[-1].moved_bytes) == (400_000, 258_000_000)
    assert AllreduceBench(agents=(2, 4)).frameworks == (
        "shared_memory[2]", "socket[2]", "shared_memory[4]", "socket[4]"
    )  # fmt: skip


def in_threads(backend: str, problem: AllreduceProblem, ranks: int) -> list[ProblemTiming]:
    """Every rank's measurement, all in threads of this process."""
    with closing(Rendezvous()) as rendezvous:

        def work(rank: int) -> ProblemTiming:
            member = GroupMember(f"{backend}[{ranks}]", rank, "r", 3)
            member.meet(Group("bench", 0, rank, ranks, rendezvous.address, timeout_seconds=30), backend)
            assert member.prepare().keys() <= {f"{backend}[{ranks}]_communicator"}
            try:
                return member.measure(problem, 0.0, 1.0)
            finally:
                member._world.communicator.close()

        return together(work, ranks)


def test_every_rank_has_rows_of_its_times_and_of_the_array_s_bytes_a_second() -> None:
    """Scope, level and repetition as tables want them; the rates follow from the times."""
    problem = AllreduceProblem(1000, 2)
    for rank, timing in enumerate(in_threads("socket", problem, 2)):
        rows: list[dict[str, Any]] = pa.Table.from_batches(timing.rows, SAMPLES).to_pylist()
        assert {(row["scope"], row["level"], row["rep"], row["rank"]) for row in rows} == {
            ("socket[2] 1000 floats", 3, 3, rank)
        }
        check_rates(rows, "allreduce_time", "byte_rate", 4000)
        assert timing.seconds is not None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backends": ("sock",)}, "did you mean 'socket'"),
        ({"backends": ()}, "name one or several"),
        ({"agents": (1,)}, "--agents is 1"),
        ({"sizes": (5, 5)}, "none twice"),
    ],
)
def test_wrong_values_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        AllreduceBench(**changes)
