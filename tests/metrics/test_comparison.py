"""Claims about comparisons of runs: what chance makes of equal runs, what is found, what is refused"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.actors.run_row import RunOrigin
from d5ray.errors import ConfigurationError
from d5ray.metrics.comparison import Comparison, compare, judged, runs_named
from d5ray.metrics.reader import Run
from tests.conftest import d5ray

ORIGIN = RunOrigin("study", "abc", '{"model": "mlp", "epochs": 1}', "{}")


def processes(rng: np.random.Generator, factor: float, pairs: int) -> tuple[list[float], list[float]]:
    """Medians of processes taken in turn: 1 % from process to process, 20 % drift, and the factor."""
    drift = np.repeat(np.exp(np.cumsum(rng.normal(0, 0.2 / np.sqrt(pairs), pairs))), 2)
    times = drift * np.exp(rng.normal(0, 0.01, 2 * pairs))
    return times[::2].tolist(), (factor * times[1::2]).tolist()


def test_equal_sides_are_seldom_told_apart() -> None:
    """Ten pairs, 1,000 times, no tolerance: at most 5 % are called faster or slower."""
    rng = np.random.default_rng(0)
    told = [judged("step_time", *processes(rng, 1.0, 10), 0.0).verdict for _ in range(1000)]
    assert sum(word in ("faster", "slower") for word in told) <= 50
    assert told.count("same") == 0


def test_a_real_difference_is_found() -> None:
    """5 % at 1 % from process to process, through 20 % of drift: ten pairs find it nine times in ten."""
    rng = np.random.default_rng(1)
    told = [judged("step_time", *processes(rng, 1.05, 10), 0.02).verdict for _ in range(200)]
    assert told.count("slower") >= 180
    assert told.count("faster") == 0


def test_pooled_steps_would_deceive() -> None:
    """30 steps of each of 10 processes with 1 % between processes, taken for independent: the interval of the
    pooled ratio misses the truth far more often than that over processes."""
    rng = np.random.default_rng(2)
    pooled = apart = 0
    for _ in range(200):
        a, b = (np.exp(rng.normal(0, 0.01, (10, 1)) + rng.normal(0, 0.01, (10, 30))) for _ in range(2))
        by_step = judged("step_time", a.ravel().tolist(), b.ravel().tolist(), 0.0)
        by_process = judged("step_time", np.median(a, axis=1).tolist(), np.median(b, axis=1).tolist(), 0.0)
        pooled += by_step.verdict != "inconclusive"
        apart += by_process.verdict != "inconclusive"
    assert apart <= 16 < pooled


@pytest.mark.parametrize(
    ("metric", "factor", "word"),
    [
        ("step_time", 0.8, "faster"), ("step_time", 1.25, "slower"), ("step_time", 1.005, "same"),
        ("samples_per_second", 1.25, "better"), ("samples_per_second", 0.8, "worse"),
        ("bytes_sent", 0.5, "better"), ("test_accuracy", 0.9, "worse"),
    ],
)  # fmt: skip
def test_better_is_what_the_metrics_direction_says(metric: str, factor: float, word: str) -> None:
    """Eight pairs that scatter by 0.1 %."""
    rng = np.random.default_rng(3)
    first = np.exp(rng.normal(0, 0.001, 8))
    second = factor * np.exp(rng.normal(0, 0.001, 8))
    found = judged(metric, first.tolist(), second.tolist(), 0.02)
    assert found.verdict == word
    assert found.ratio == pytest.approx(factor, rel=0.01)
    assert found.low is not None
    assert found.high is not None
    assert found.ratio is not None
    assert found.low <= found.ratio <= found.high


def test_what_decides_nothing() -> None:
    """Five pairs; an infinite value; zeros have no ratio, but an interval of differences."""
    five = judged("step_time", [1.0, 1.1, 0.9, 1.0, 1.2], [2.0, 2.1, 1.9, 2.0, 2.2], 0.02)
    assert (five.verdict, five.low) == ("inconclusive", None)
    assert five.reason == "5 pairs of runs are too few, it needs 6: make 1 more"
    assert judged("loss", [1.0] * 6, [np.inf] * 6, 0.02).verdict == "inconclusive"
    zeros = judged("staleness", [0.0] * 6, [1.0, 2.0, 1.5, 1.0, 1.2, 1.1], 0.02)
    assert (zeros.verdict, zeros.ratio) == ("worse", None)
    assert judged("bytes_sent", [512.0], [512.0], 0.02).verdict == "same"


# -- runs on disk ----------------------------------------------------------------------------------------


def made(seed: int, origin: RunOrigin = ORIGIN, **changes: Any) -> Run:
    """A run of two simulated agents, two steps long; its step takes 1 ms."""
    values: dict[str, Any] = {
        "model": "mlp", "dataset": "digits", "optimizer": d5.SGD(0.1), "distributed": d5.AllreduceSGD(),
        "agents": 2, "batch_size": 32, "seed": seed, "evaluate": False, "warmup_steps": 0,
    }  # fmt: skip
    latency = changes.pop("latency", 5e-5)
    with d5.simulate(d5.Experiment(**(values | changes)), d5.UniformLinks(latency), origin=origin) as group:
        group.train(2, progress=False)
    return Run(group.folder)


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[list[Run], list[Run]]]:
    """Six runs each in turn, the second over links with a hundred times the latency."""
    first, second = [], []
    for seed in range(6):
        first.append(made(seed))
        second.append(made(seed, latency=5e-3))
    yield first, second


def by_metric(comparison: Comparison) -> dict[str, Any]:
    return {each.metric: each for each in comparison.differences}


def test_groups_of_runs_are_compared(sides: tuple[list[Run], list[Run]]) -> None:
    """Slower links: slower steps, the same bytes, the same loss."""
    found = compare(*sides)
    assert (len(found.first), found.incomparable, found.notes) == (6, (), ())
    metrics = by_metric(found)
    assert metrics["step_time"].verdict == "slower"
    assert metrics["step_time"].n == 6
    assert metrics["bytes_sent"].verdict == metrics["loss"].verdict == "same"
    assert by_metric(compare(sides[1], sides[0]))["step_time"].verdict == "faster"


def test_what_weakens_a_comparison_is_said(sides: tuple[list[Run], list[Run]]) -> None:
    """Sides one after the other; sides of different size."""
    apart = compare(sides[0][:3] + sides[1][:3], sides[0][3:] + sides[1][3:])
    assert any("were not run in turn" in note for note in apart.notes)
    uneven = compare(sides[0], sides[1][:5])
    assert any("6 and 5 runs" in note for note in uneven.notes)


def test_runs_whose_fixed_parts_differ_are_incomparable(sides: tuple[list[Run], list[Run]]) -> None:
    """It is said in what."""
    other = made(0, RunOrigin("study", "def", '{"model": "lenet", "epochs": 1}', "{}"))
    found = compare(sides[0], [other])
    assert found.differences == ()
    assert len(found.incomparable) == 1
    assert found.incomparable[0].startswith('model: "mlp" in study-')
    assert f'"lenet" in {other.name}' in found.incomparable[0]


def test_what_cannot_be_compared(sides: tuple[list[Run], list[Run]]) -> None:
    with pytest.raises(ConfigurationError, match="stands on both sides"):
        compare(sides[0], [sides[0][2]])
    with pytest.raises(ConfigurationError, match="tolerance is -1"):
        compare(*sides, -1)
    with pytest.raises(ConfigurationError, match="no run whose name is like 'nothing"):
        runs_named("nothing*")
    broken = made(0)
    with pytest.raises(ConfigurationError, match="There is no metric 'speed'"):
        compare(sides[0], [broken], metrics=["speed"])


def test_the_command(sides: tuple[list[Run], list[Run]], tmp_path: Path) -> None:
    """Exit code 1: the second side is worse somewhere; 2: nothing is decided; 0: neither."""
    first, second = (",".join(run.name for run in side) for side in sides)
    worse = d5ray("compare", first, second)
    assert worse.code == 1
    line = next(line for line in worse.out.splitlines() if line.startswith("step_time"))
    assert line.split()[-1] == "slower"
    assert d5ray("compare", second, first, "--metric", "step_time").code == 0
    one = d5ray("compare", sides[0][0].name, sides[1][0].name, "--metric", "step_time", "--json")
    assert one.code == 2
    assert one.json["differences"][0]["reason"].startswith("1 pair of runs is too few")
    assert d5ray("compare", first, "nothing").code == 3
