"""Claims about timing allreduces: every group sums right and is timed alike on all its ranks."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.allreduce_speed import recipe as allreduce_speed
from benchmarks.allreduce_speed.baselines import ThroughD5ray, ThroughMPI, ThroughTorch
from benchmarks.allreduce_speed.job import AllreduceTimes, Reductions
from benchmarks.sizes import bytes_of
from d5ray.errors import AgentError, ConfigurationError
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.store import list_runs
from d5ray.recipes.engine.comparisons.contenders import AnyContender
from d5ray.recipes.engine.comparisons.timing import FEWEST, MOST, Times, timed
from d5ray.recipes.engine.recipe import Recipe
from d5ray.recipes.jobs.worlds import Array, D5rayWorld, ReducingGroup
from tests.conftest import d5ray
from tests.distributed.forming import Former, former
from tests.together import together

SIZES = ("4 B", "40 kB")
CONTENDERS: list[AnyContender] = [
    ThroughD5ray("shared_memory", 2),
    ThroughD5ray("socket", 3),
    ThroughTorch(2),
    ThroughMPI(2),
]
JOB = AllreduceTimes(comparisons=(tuple(CONTENDERS),), sizes=SIZES, seconds=0.02)


@pytest.fixture
def groups() -> Iterator[Former]:
    with former() as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda contender: str(contender.name))
def test_a_group_gives_the_times_of_every_size_and_rank(contender: AnyContender, tmp_path: Path) -> None:
    """The members check the sum before they time it. All ranks repeat as often, and take time."""
    if reason := contender.missing():
        pytest.skip(reason)
    measured = contender.measure(JOB, tmp_path)
    assert sorted((series.rank, series.at) for series in measured) == sorted(
        (rank, size) for rank in range(contender.processes) for size in SIZES
    )
    for size in SIZES:
        alike = [series for series in measured if series.at == size]
        assert len({(len(series.values), series.loops) for series in alike}) == 1
        assert all(value is not None and 0 < value < 1 for series in alike for value in series.values)
        assert all(series.unit == "s" for series in alike)


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


def test_ranks_repeat_equally_often_and_all_wait_for_the_slowest(groups: Former) -> None:
    """Rank 1 sleeps 4 ms an operation, so both take at least that; 10 ms hold two of them."""
    members = groups.form("reference", 2)
    calls = [0, 0]

    def member(rank: int) -> Times:
        def operation() -> None:
            calls[rank] += 1
            time.sleep(0.004 * rank)
            members[rank].barrier()

        return timed(operation, D5rayWorld(members[rank]), budget=0.1)

    quick, slow = together(member, 2)
    assert (len(quick.seconds), quick.loops, calls[0]) == (len(slow.seconds), slow.loops, calls[1])
    assert FEWEST <= len(quick.seconds) <= MOST
    assert 1 <= quick.loops <= 3
    assert min(np.median(quick.seconds), np.median(slow.seconds)) >= 0.0039


def test_short_operations_are_repeated_until_they_can_be_timed(groups: Former) -> None:
    """A value covers about 10 ms: of an operation that does nothing, very many."""
    members = groups.form("reference", 2)
    first, second = together(lambda rank: timed(time.time, D5rayWorld(members[rank]), budget=0.05).loops, 2)
    assert first == second > 1000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sizes": ("4",)}, "integer and a unit"),
        ({"sizes": ("4 kb",)}, "integer and a unit"),
        ({"sizes": ("0 B",)}, "integer and a unit"),
        ({"sizes": ("1.5 MB",)}, "integer and a unit"),
        ({"sizes": ("6 B",)}, "float32"),
        ({"sizes": ()}, "sizes"),
        ({"sizes": "1 MB"}, "sizes"),
        ({"seconds": 0}, "seconds"),
    ],
)
def test_a_wrong_value_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        replace(JOB, **change)


def test_sizes_are_read_as_people_write_them() -> None:
    assert [bytes_of(text) for text in ("4 B", "64 kB", "10 MB", "1 GB")] == [4, 64_000, 10**7, 10**9]


@pytest.mark.slow
def test_the_recipe_measures_everybody_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round at one size: times of every contender's ranks, an open verdict, no process left."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    few = ("--set", "sizes=('4 kB',)", "--set", "seconds=0.02", "--set", "pairs=1", "--json")
    done = d5ray("run", "benchmarks/allreduce_speed", *few, seconds=200)
    assert (done.code, done.json["verdict"]) == (2, "INCONCLUSIVE"), done
    (run,) = list_runs(tmp_path / "runs")
    counted = sql(run, "select scope, count(distinct rank) ranks from samples where value > 0 group by all")
    names = {row["scope"].removesuffix(" 4 kB"): row["ranks"] for row in counted.to_pylist()}
    parts = (allreduce_speed.FIXED, allreduce_speed.MUTABLE, allreduce_speed.METRICS)
    contenders = Recipe.of(*parts, name="x").made().contenders()
    assert names == {c.name: c.processes for c in contenders if not c.missing()}
    assert not done.left()
