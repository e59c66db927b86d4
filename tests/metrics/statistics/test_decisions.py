"""Verdicts of one run whose steps depend on each other: how often they are wrong, and when they are open"""

import math

import numpy as np
import pytest

from d5ray.metrics.statistics.estimates import over_steps
from d5ray.metrics.statistics.intervals import Estimate
from d5ray.metrics.statistics.time_series import OverTime, Quantile
from tests.metrics.statistics.coverage import autoregressive, rate
from tests.metrics.statistics.decisions import (
    BURSTS,
    MACHINES,
    TWO_SPEEDS,
    WANDERING,
    Floats,
    Given,
    bursts,
    decisions,
    two_speeds,
    wandering,
)

WRONG = 0.05


def verdict(statistic: OverTime, target: float) -> tuple[str, str]:
    """The verdict of one run on `statistic <= target`, and its reason."""
    estimate = over_steps(np.zeros(len(statistic), np.int64), statistic, "steps")
    found = (Given(estimate) <= target).judge({})
    return found.verdict, found.reason


def dependent(n: int = 1370) -> Floats:
    """Steps of 1.2 ms in the median that are worth fewer than thirty independent ones."""
    found: Floats = 0.0012 * np.exp(0.2 * autoregressive(np.random.default_rng(6), 1, n, 0.99)[0])
    assert Quantile(found).interval()[0] is None
    return found


# -- what decides ------------------------------------------------------------------------------------------


def test_a_far_target_is_decided_without_an_interval() -> None:
    """PASS and FAIL, with the factor and the step nearest to the target; at less than twice neither."""
    steps = dependent()
    median, slowest, fastest = float(np.median(steps)), steps.max(), steps.min()
    times = f"{0.05 / median:.3g}"
    assert verdict(Quantile(steps), 0.05) == (
        "PASS", f"decided by its margin: {times} times below the target, and all 1,370 steps ≤ {slowest:.3g}"
    )  # fmt: skip
    assert verdict(Quantile(steps), median / 3) == (
        "FAIL", f"decided by its margin: 3 times above the target, and all 1,370 steps ≥ {fastest:.3g}"
    )  # fmt: skip
    for ratio in (0.51, 1 / 1.5, 1.0, 1.5, 1.99):
        word, reason = verdict(Quantile(steps), ratio * median)
        assert word == "INCONCLUSIVE" and "it needs 30" in reason


def test_a_hiccup_is_counted_and_turns_nothing() -> None:
    """Two steps of 100 ms in 1,370: the others decide the median and the rate, and the two are told."""
    steps = dependent()
    steps[[400, 900]] = 0.1
    word, reason = verdict(Quantile(steps), 0.05)
    assert word == "PASS" and reason.endswith("1,368 of 1,370 steps ≤ 0.05")
    assert verdict(rate(steps), 100.0)[0] == "FAIL"  # of steps a second, as `<=`


def test_one_long_stall_decides_no_rate() -> None:
    """It takes two thirds of the time: most steps alone are beyond a target that is twice away."""
    steps = dependent()
    steps[500] = 2 * steps.sum()
    stalled = rate(steps)
    assert stalled.interval()[0] is None
    assert verdict(stalled, 2.2 * stalled.of(slice(None)))[0] == "INCONCLUSIVE"
    assert verdict(stalled, 9.0 * stalled.of(slice(None)))[0] == "PASS"


def test_a_percentile_passes_only_if_all_steps_do() -> None:
    """What one burst has shown another may bring; it fails where half of the steps do."""
    steps = dependent()
    percentile = Quantile(steps, 0.9, "inverted_cdf")
    assert verdict(percentile, 0.05)[0] == "PASS"
    assert verdict(percentile, 0.0004)[0] == "FAIL"
    steps[400] = 0.1
    assert verdict(Quantile(steps, 0.9, "inverted_cdf"), 0.05)[0] == "INCONCLUSIVE"


@pytest.mark.parametrize(("q", "enough"), [(0.5, 30), (0.95, 72)])
def test_few_steps_decide_nothing(q: float, enough: int) -> None:
    """Fewer than an interval would need may all lie in one burst."""
    steps = dependent()
    assert verdict(Quantile(steps[: enough - 1], q), 1.0)[0] == "INCONCLUSIVE"
    assert verdict(Quantile(steps[:enough], q), 1.0)[0] == "PASS"


def test_several_runs_decide_by_runs_alone() -> None:
    """Five runs are too few, however far the target: runs differ from each other."""
    found = over_steps(np.repeat(np.arange(5), 100), Quantile(dependent()[:500]), "steps")
    assert found.steps is None
    assert (Given(found) <= 1.0).judge({}).verdict == "INCONCLUSIVE"


def test_a_factor_of_zero_or_less_is_no_margin() -> None:
    """Twice as far means nothing where the value or the target is not positive."""
    for steps, target in ((-dependent(), 0.05), (dependent(), 0.0), (dependent(), -1.0)):
        assert verdict(Quantile(steps), target)[0] == "INCONCLUSIVE"


def test_steps_are_no_part_of_what_makes_estimates_equal() -> None:
    found = over_steps(np.zeros(1370, np.int64), Quantile(dependent()), "steps")
    assert found.steps is not None
    assert found == Estimate(found.value, n=found.n, sample_unit=found.sample_unit, reason=found.reason)


# -- how often it is wrong ---------------------------------------------------------------------------------

QUICK = {
    "ρ = 0.8": (WANDERING["ρ = 0.8"], 60),
    "ρ = 0.95": (WANDERING["ρ = 0.95"], 60),
    "ρ = 0.95, longer": (WANDERING["ρ = 0.95"], 300),
    "1.45 times slower, many moods": (two_speeds(1.45, 0.6, 0.05), 200),
    "1.45 times slower, one mood": (two_speeds(1.45, 0.6, 10), 60),
    "2 times slower, many moods": (two_speeds(2, 0.6, 0.05), 200),
    "2 times slower, one mood": (two_speeds(2, 0.6, 10), 60),
    "bursts of one step": (bursts(10, 0.1, 1), 60),
    "bursts of five steps": (bursts(10, 0.1, 5), 200),
}


@pytest.mark.parametrize("statistic", ["median", "rate"])
@pytest.mark.parametrize("name", QUICK)
def test_what_steps_decide_is_right_and_far_targets_are_decided(name: str, statistic: str) -> None:
    """At most 5 of 100 are wrong at any target, also where the run saw one of two speeds.

    None is open at three times what was measured; nor at three times the truth, where machines change their
    speed by 1.45 and no more.
    """
    machine, n = QUICK[name]
    found = decisions(machine, statistic, n, tries=100)
    assert found.by_margin <= WRONG
    if statistic == "median":
        assert found.open_far == 0
    if "1.45" in name:
        assert found.open_true == 0
    if "ρ" in name:
        assert found.wrong <= WRONG + 3 * math.sqrt(WRONG * (1 - WRONG) / 100)


@pytest.mark.full
@pytest.mark.parametrize("statistic", ["median", "rate"])
@pytest.mark.parametrize("name", MACHINES)
def test_no_machine_turns_what_steps_decide(name: str, statistic: str) -> None:
    """The same of all machines, where a run lasts as long as twenty bursts."""
    steps = int(name.split()[2].removesuffix(",")) if name in BURSTS else 1
    for n in (n for n in (60, 200, 1000) if n >= 20 * steps):
        found = decisions(MACHINES[name], statistic, n, tries=300)
        assert found.by_margin <= WRONG
        if name in WANDERING:
            assert found.wrong <= WRONG
        if statistic == "median":
            assert found.open_far == 0
        if name in TWO_SPEEDS and name.startswith("1.45"):
            assert found.open_true == 0


@pytest.mark.full
@pytest.mark.parametrize("rho", [0.5, 0.9, 0.95])
def test_percentiles_of_dependent_steps_are_right(rho: float) -> None:
    for n in (200, 1000):
        assert decisions(wandering(rho, 0.37), "p90", n, tries=300).wrong <= WRONG
