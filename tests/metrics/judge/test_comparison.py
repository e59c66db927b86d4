"""Claims about comparisons of runs: what chance makes of equal runs, what is found, what is refused"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.actors.group.run_row import RunOrigin
from d5ray.errors import ConfigurationError
from d5ray.metrics.judge.comparison import RunComparison, compare, runs_named
from d5ray.metrics.judge.differences import BAD, judged, together
from d5ray.metrics.record.reader import Run
from d5ray.metrics.statistics.familywise import adjusted_levels
from tests.beside_kits import needs_kit
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


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        ([512.0], [512.0], "equal"), ([512.0], [513.0], "different"), ([0.0], [512.0], "different"),
        ([1e6 + k for k in range(6)], [1e6 + 1 + k for k in range(6)], "different"),  # within the tolerance
        ([1.0, 2.0] * 4, [2.0, 1.0] * 4, "different"), ([512.0] * 6, [256.0] * 6, "better"),
    ],
)  # fmt: skip
def test_an_exact_count_is_equal_or_different(first: list[float], second: list[float], word: str) -> None:
    """Of however few pairs; only where many of them agree on the direction it is better or worse."""
    found = judged("bytes_sent", first, second, 0.02)
    assert (found.verdict, found.reason) == (word, "")
    assert together([{"bytes_sent": first[0]}], [{"bytes_sent": second[0]}])[2] == ()


# -- many metrics --------------------------------------------------------------------------------------------

NAMES = [f"operator_time(contender=torch {number})" for number in range(60)]


def sides_of(
    rng: np.random.Generator, metrics: int, alike: float, pairs: int, slower: float = 1.0
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Runs in turn whose metrics scatter by 3 %, correlated by `alike`; one is slower on the second side."""
    common, own = rng.normal(size=(2, pairs, 1)), rng.normal(size=(2, pairs, metrics))
    times = np.exp(0.03 * (np.sqrt(alike) * common + np.sqrt(1 - alike) * own))
    times[1, :, 0] *= slower
    first, second = ([dict(zip(NAMES, run, strict=False)) for run in side.tolist()] for side in times)
    return first, second


def called_worse(metrics: int, alike: float, pairs: int, tries: int, slower: float = 1.0) -> tuple[int, int]:
    """How often the exit code is 1, and how often a metric is worse by itself."""
    rng = np.random.default_rng(metrics)
    found = [together(*sides_of(rng, metrics, alike, pairs, slower), tolerance=0.0) for _ in range(tries)]
    alone = sum(any(each.verdict in BAD for each in differences) for differences, _, _ in found)
    return sum(word == "worse" for _, word, _ in found), alone


@pytest.mark.full
@pytest.mark.parametrize("metrics", [1, 5, 20, 60])
@pytest.mark.parametrize("alike", [0.0, 0.9])
def test_equal_sides_get_exit_code_1_in_at_most_5_of_100(metrics: int, alike: float) -> None:
    """Eight pairs, 100 times, however many metrics; by themselves, many of 60 are worse by chance."""
    worse, alone = called_worse(metrics, alike, pairs=8, tries=100)
    assert worse <= 100 * (0.05 + 2.6 * np.sqrt(0.05 * 0.95 / 100))
    assert alone >= worse
    if (metrics, alike) == (60, 0.0):
        assert alone >= 12


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("pairs", [6, 8, 12, 20])
@pytest.mark.parametrize("metrics", [1, 5, 20, 60])
@pytest.mark.parametrize("alike", [0.0, 0.9])
def test_equal_sides_many_times(pairs: int, metrics: int, alike: float) -> None:
    worse, _ = called_worse(metrics, alike, pairs, tries=1000)
    assert worse <= 1000 * (0.05 + 2.6 * np.sqrt(0.05 * 0.95 / 1000))


@pytest.mark.full
@pytest.mark.parametrize(("metrics", "pairs"), [(1, 6), (20, 6), (60, 6), (60, 10), (60, 20)])
def test_a_fifth_slower_is_found_among_many(metrics: int, pairs: int) -> None:
    """20 % in one of them, at 4 % from run to run in the ratio: found nearly always."""
    worse, alone = called_worse(metrics, 0.3, pairs, tries=30, slower=1.2)
    assert alone == 30
    assert worse >= 26


def test_levels_are_those_of_all_signs() -> None:
    """Against the definition, choice by choice and step by step."""
    apart = np.random.default_rng(5).normal(0.3, 1, (6, 4))
    apart[:, 1] += 1.5

    def sizes(choice: Sequence[int]) -> Any:
        signed = apart * np.array(choice)[:, None]
        return signed.mean(0) / signed.std(0)

    choices = [sizes(choice) for choice in itertools.product((1, -1), repeat=6)]
    found, rest, expected, level = sizes((1,) * 6), [0, 1, 2, 3], {}, 0.0
    while rest:
        largest = max(rest, key=lambda metric: found[metric])
        reached = [max(of[metric] for metric in rest) >= found[largest] - 1e-9 for of in choices]
        expected[largest] = level = max(level, sum(reached) / 64)
        rest.remove(largest)
    assert adjusted_levels(apart) == pytest.approx([expected[metric] for metric in range(4)])


@needs_kit("laboratory")
def test_one_metric_that_is_worse_among_many_says_so() -> None:
    """A chance finding keeps its own verdict, does not decide, and is named with its level; JSON has all."""
    rng = np.random.default_rng(0)
    while True:
        differences, word, decided_by = together(*sides_of(rng, 60, 0.0, 8), tolerance=0.0)
        alone = [each for each in differences if each.verdict in BAD]
        if alone and word != "worse":
            break
    found = RunComparison(("a",), ("b",), (), (), differences, word, decided_by)
    assert all(each.adjusted_level is not None and each.adjusted_level > 0.05 for each in alone)
    assert decided_by == () and word == "inconclusive"
    assert found.conclusion[0] == "all metrics together: inconclusive"
    assert found.conclusion[1].startswith(f"worse alone, but not together: {alone[0].metric} (level 0.")
    differences, word, decided_by = together(*sides_of(rng, 60, 0.0, 8, slower=1.3), tolerance=0.0)
    found = RunComparison(("a",), ("b",), (), (), differences, word, decided_by)
    assert (word, decided_by) == ("worse", (NAMES[0],))
    assert found.conclusion[0] == f"all metrics together: worse in {NAMES[0]} (level 0.0039)"


def test_a_pair_counts_where_both_runs_have_the_metric() -> None:
    """A run without it takes its partner out, not the order of the others; the rest is paired as it was."""
    first = [{"step_time": 1.0 + k} for k in range(8)]
    second = [{"step_time": 1.1 * (1.0 + k)} for k in range(8)]
    del first[2]["step_time"]
    (found,), word, _ = together(first, second, 0.02)
    assert (found.n, word) == (7, "worse")
    assert found.ratio == pytest.approx(1.1)
    assert together([{"loss": 1.0}], [{"step_time": 1.0}])[0] == ()
    losses, worse = ([{"loss": k - 4.0 + by * (8 + k)} for k in range(8)] for by in (0.0, 0.1))  # no ratios
    assert together(losses, worse)[2] == ("loss",) and together(worse, losses)[2] == ()


# -- runs on disk ----------------------------------------------------------------------------------------


def made(seed: int, origin: RunOrigin = ORIGIN, **changes: Any) -> Run:
    """A run of two simulated agents, two steps long; its step takes 1 ms."""
    values: dict[str, Any] = {
        "model": "mlp", "dataset": "digits", "optimizer": d5.optimizers.SGD(0.1),
        "distributed": d5.optimizers.AllreduceSGD(),
        "agents": 2, "batch_size": 32, "seed": seed, "evaluate": False, "warmup_steps": 0,
    }  # fmt: skip
    latency = changes.pop("latency", 5e-5)
    with d5.simulate(
        d5.Experiment.from_values(**(values | changes)), d5.simulation.UniformLinks(latency), origin=origin
    ) as group:
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


def by_metric(comparison: RunComparison) -> dict[str, Any]:
    return {each.metric: each for each in comparison.differences}


@pytest.mark.full
def test_groups_of_runs_are_compared(sides: tuple[list[Run], list[Run]]) -> None:
    """Slower links: slower steps, the same bytes, the same loss."""
    found = compare(*sides)
    assert (len(found.first), found.incomparable, found.notes) == (6, (), ())
    metrics = by_metric(found)
    assert metrics["step_time"].verdict == "slower"
    assert metrics["step_time"].n == 6
    assert (metrics["bytes_sent"].verdict, metrics["loss"].verdict) == ("equal", "same")
    assert by_metric(compare(sides[1], sides[0]))["step_time"].verdict == "faster"


@pytest.mark.full
def test_what_weakens_a_comparison_is_said(sides: tuple[list[Run], list[Run]]) -> None:
    """Sides one after the other; sides of different size."""
    apart = compare(sides[0][:3] + sides[1][:3], sides[0][3:] + sides[1][3:])
    assert any("were not run in turn" in note for note in apart.notes)
    assert any("6 and 5 runs" in note for note in compare(sides[0], sides[1][:5]).notes)


def test_runs_whose_fixed_parts_differ_are_incomparable(sides: tuple[list[Run], list[Run]]) -> None:
    """It is said in what."""
    other = made(0, RunOrigin("study", "def", '{"model": "lenet", "epochs": 1}', "{}"))
    found = compare(sides[0], [other])
    assert found.differences == ()
    assert len(found.incomparable) == 1
    assert found.incomparable[0].startswith('model: "mlp" in study-')
    assert f'"lenet" in {other.name}' in found.incomparable[0]


@pytest.mark.full
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


@needs_kit("laboratory")
@pytest.mark.full
def test_the_command(sides: tuple[list[Run], list[Run]], tmp_path: Path) -> None:
    """Exit code 1: the second side is worse, all metrics together; 2: nothing is decided; 0: neither."""
    first, second = (",".join(run.name for run in side) for side in sides)
    worse = d5ray("compare", first, second)
    assert worse.code == 1
    line = next(line for line in worse.out.splitlines() if line.startswith("step_time"))
    assert line.split()[-1] == "slower"
    assert "all metrics together: worse in " in worse.out
    as_data = d5ray("compare", first, second, "--metric", "step_time", "--metric", "loss", "--json").json
    assert as_data["together"] == "worse" and "step_time" in as_data["decided_by"]
    levels = {each["metric"]: each["adjusted_level"] for each in as_data["differences"]}
    assert levels["step_time"] <= 0.05 and levels["loss"] is None
    assert d5ray("compare", second, first, "--metric", "step_time").code == 0
    one = d5ray("compare", sides[0][0].name, sides[1][0].name, "--metric", "step_time", "--json")
    assert one.code == 2
    assert one.json["differences"][0]["reason"].startswith("1 pair of runs is too few")
    assert d5ray("compare", first, "nothing").code == 3
