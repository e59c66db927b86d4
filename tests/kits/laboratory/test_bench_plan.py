"""Claims about the plan of a measurement: a spread of problems, none too long or too large"""

import pytest

from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.bench import deepbench
from d5ray.kits.laboratory.bench.deepbench import OperatorBench
from d5ray.kits.laboratory.bench.plan import MeasurementPlan
from d5ray.recipes.engine.parsing.options import seconds_of


def plan(**changes: object) -> MeasurementPlan:
    """Of DeepBench's training set, on a machine of 100 GFLOP/s and 10 GB/s."""
    made = MeasurementPlan(deepbench.problems("training"), ("torch", "numpy"), 4e9, seed=1)
    made.flops_per_second, made.bytes_per_second = 1e11, 1e10
    return made


def test_a_round_takes_the_groups_in_turn_at_random_the_least_of_each_first() -> None:
    """So that a short budget covers a spread; another seed, another order; nothing is left out."""
    problems = plan().order(0)
    assert [each.group for each in problems[:9]] == ["gemm", "conv", "rnn"] * 3
    for group in deepbench.GROUPS:
        members = [each for each in problems if each.group == group]
        assert members[0].flops == min(each.flops for each in members)
    assert {each.name for each in problems} == {each.name for each in deepbench.problems("training")}
    other = plan()
    other.seed = 2
    assert [each.name for each in other.order(0)] != [each.name for each in problems]
    assert [each.name for each in plan().order(0)] == [each.name for each in problems]


def test_what_does_not_fit_is_left_out_with_the_reason() -> None:
    """28 GB of memory of 4; 23 s of calls of 1; a small one has nothing against it."""
    made = plan()
    large = deepbench.gemm(512, 8, 5_000_000, "NN")
    assert made.why_not("torch", large, 1e9).startswith("memory: it takes about")
    assert "4 GB may be taken" in made.why_not("torch", large, 1e9)
    long = deepbench.gemm(8448, 24000, 2816, "NN")
    assert made.why_not("torch", long, 1.0).startswith("time: about")
    assert made.why_not("torch", deepbench.gemm(512, 16, 512, "NN"), 1.0) == ""
    made.skipped["torch", "gemm 512×16×512 NN"] = "MemoryError: no room"
    assert made.why_not("torch", deepbench.gemm(512, 16, 512, "NN"), 1.0) == "MemoryError: no room"


def test_predictions_learn_how_slow_a_framework_is() -> None:
    """From a call that takes 5 times the roofline: five times it, whatever the size; others know nothing."""
    made = plan()
    sizes = (256, 512, 1024)
    for size in sizes:
        problem = deepbench.gemm(size, size, size, "NN")
        made.learn("numpy", problem, 5 * problem.bound_seconds(1e11, 1e10))
    large = deepbench.gemm(4096, 4096, 4096, "NN")
    bound = large.bound_seconds(1e11, 1e10)
    assert made.predicted("numpy", large) == pytest.approx(5 * bound)
    assert made.predicted("torch", large) == pytest.approx(3 * bound)


def test_a_call_s_own_time_is_not_taken_for_slowness() -> None:
    """A tiny problem of 1 ms, a thousand times its roofline, does not rule out all larger ones."""
    made = plan()
    made.learn("numpy", deepbench.gemm(64, 64, 64, "NN"), 1e-3)
    large = deepbench.gemm(1024, 1024, 1024, "NN")
    assert made.predicted("numpy", large) < 25 * large.bound_seconds(1e11, 1e10)


def test_later_rounds_measure_what_the_first_reached_within_their_budgets() -> None:
    """In another order, the frameworks backwards in every other; a problem takes a quarter of a round."""
    made = plan()
    names = [each.name for each in made.order(0)[:12]]
    made.reached = {("torch", name) for name in names}
    orders = [[each.name for each in made.order(turn)] for turn in (1, 2)]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(names)
    assert orders[0] != orders[1]
    assert (made.interleaved(0), made.interleaved(1)) == (("torch", "numpy"), ("numpy", "torch"))
    made = plan()
    assert made.most_seconds(8.0) == pytest.approx(1.0)
    assert made.slice_seconds(8.0) == 0.02
    assert made.slice_seconds(303 * 2 * 0.1) == pytest.approx(0.1)
    assert made.slice_seconds(1e9) == 0.5


DURATIONS = {"60s": 60, "60": 60, "1.5m": 90, "2min": 120, " 1 h ": 3600, "0.5s": 0.5}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "-3s", "0", "5 days", "nan", "inf", "s", "1e999s", "721h"])
def test_what_is_no_duration_or_longer_than_30_days_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="give one such as 60s"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"suite": "deepbnch"}, "did you mean 'deepbench'"),
        ({"device": "gpu"}, "there is no device 'gpu': known: cpu, cuda"),
        ({"frameworks": ("pytorch",)}, "did you mean 'torch'"),
        ({"frameworks": ("torch", "torch")}, "none twice"),
        ({"frameworks": ("cupy",)}, "cupy does not compute on cpu"),
        ({"dtype": "int32"}, "floating-point type"),
        ({"processes": 0}, "processes is 0"),
        ({"budget_seconds": 0.0}, "budget is 0"),
    ],
)
def test_wrong_values_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        OperatorBench(**changes)  # type: ignore[arg-type]
