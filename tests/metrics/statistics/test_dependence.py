"""Intervals of one run: how the dependence of steps is measured, and how often they hold the truth"""

import math

import numpy as np
import pytest
from scipy import stats

from d5ray.metrics.statistics.dependence import FEWEST_TIMES, FINEST, autocorrelation_time, worth
from d5ray.metrics.statistics.intervals import fewest_samples, quantile_interval_ranks, student
from d5ray.metrics.statistics.time_series import Quantile, Quotient, mean
from tests.metrics.statistics.coverage import MACHINES, STATISTICS, autoregressive, coverage

# -- the autocorrelation time ------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6, 0.9, 0.95])
def test_the_autocorrelation_time_is_the_closed_form(rho: float) -> None:
    """(1 + ρ)/(1 − ρ) of an autoregressive series, in the median over twenty of 20,000 values, to 10 %."""
    found = [autocorrelation_time(x) for x in autoregressive(np.random.default_rng(1), 20, 20_000, rho)]
    assert np.median(found) == pytest.approx((1 + rho) / (1 - rho), rel=0.1)


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_long_series_are_looked_at_in_means_of_neighbours(rho: float) -> None:
    """Ten times as many values as are looked at one by one: the same closed form."""
    found = [autocorrelation_time(x) for x in autoregressive(np.random.default_rng(2), 5, 10 * FINEST, rho)]
    assert np.median(found) == pytest.approx((1 + rho) / (1 - rho), rel=0.15)


def test_the_autocorrelations_are_those_of_the_definition() -> None:
    """The sum over lags from plain products, as long as pairs of them are positive and fall."""
    x = autoregressive(np.random.default_rng(3), 1, 300, 0.7)[0]
    centred = x - x.mean()
    rho = [float(centred[: len(x) - k] @ centred[k:] / (centred @ centred)) for k in range(len(x))]
    pairs = [rho[k] + rho[k + 1] for k in range(0, len(x) - 1, 2)]
    kept = pairs[: next(k for k, pair in enumerate(pairs) if pair <= 0)]
    expected = 2 * sum(min(kept[: k + 1]) for k in range(len(kept))) - 1
    assert autocorrelation_time(x) == pytest.approx(expected)


def test_what_does_not_vary_or_alternates() -> None:
    """Equal values are independent for all one can see; what makes up for its neighbour has less than 1."""
    assert autocorrelation_time(np.full(100, 0.1)) == 1.0
    assert autocorrelation_time(np.tile([1.0, 2.0], 100)) < 0.1
    assert worth(np.full(100, 0.1), np.zeros(100)).samples == 100


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_the_unit_does_not_matter(scale: float) -> None:
    x = autoregressive(np.random.default_rng(4), 1, 500, 0.5)[0]
    assert autocorrelation_time(scale * x) == pytest.approx(autocorrelation_time(x))


def test_a_seldom_disturbance_shows_in_the_values_where_the_influence_hides_it() -> None:
    """One slow visit: the median's influence hardly sees it, the values do, and the longest time counts."""
    rng = np.random.default_rng(5)
    seconds = np.asarray(1 + rng.normal(0, 0.02, 600), np.float64)
    seconds[200:230] += 0.3
    below = np.asarray((seconds <= np.median(seconds)) - 0.5, np.float64)
    assert autocorrelation_time(below) < 4 < 10 < worth(seconds, below).time


# -- no interval, and why ----------------------------------------------------------------------------------


def test_fewer_than_thirty_values_are_too_few() -> None:
    interval, samples, reason = Quantile(np.array([0.0, 1.0] * 10)).interval("steps")
    assert (interval, samples) == (None, 20)
    assert reason == "no interval: 20 measured steps are too few, it needs 30: run 10 more"


def test_dependent_steps_say_what_they_are_worth() -> None:
    """What was found, how many are needed, and how many more; that many more are indeed enough."""
    x = 10 + autoregressive(np.random.default_rng(6), 1, 20_000, 0.9)[0]
    interval, samples, reason = Quantile(x[:200]).interval("steps")
    assert interval is None and 3 <= samples <= 20
    assert reason.startswith(
        f"no interval: 200 measured steps are worth {samples} independent ones, it needs 30"
    )
    more = int(reason.rpartition("run ")[2].removesuffix(" more").replace(",", ""))
    assert Quantile(x[: 200 + 2 * more]).interval("steps")[0] is not None


@pytest.mark.parametrize("q", [0.9, 0.95, 0.99])
def test_percentiles_need_their_exact_number(q: float) -> None:
    """Of independent values: none below 36, 72, 368, and what is missing is said."""
    x = np.random.default_rng(7).normal(size=2000)
    n = fewest_samples(q)
    interval, _, reason = Quantile(x[: n - 1], q).interval()
    assert interval is None and f"it needs {n}" in reason
    assert Quantile(x, q).interval()[0] is not None


def test_a_drift_is_no_sample() -> None:
    """What grows all the time is one visit to everywhere."""
    interval, samples, _ = mean(np.linspace(1, 2, 10_000)).interval()
    assert interval is None and samples < FEWEST_TIMES


# -- the intervals themselves ------------------------------------------------------------------------------


def test_student_is_scipys() -> None:
    for degrees in range(5, 20):
        assert student(degrees) == pytest.approx(stats.t(degrees).ppf(0.975))
    assert student(math.inf, 0.99) == pytest.approx(stats.norm.ppf(0.995))


def test_a_median_has_never_a_narrower_interval_than_independent_values_give() -> None:
    """Neighbours that make up for each other do not make ranks that no independent values have."""
    x = np.tile([1.0, 3.0], 100) + np.random.default_rng(8).normal(0, 0.1, 200)
    interval, samples, _ = Quantile(x).interval()
    ranks = quantile_interval_ranks(200)
    assert interval is not None and ranks is not None and samples == 200
    ordered = np.sort(x)
    assert interval == (ordered[ranks[0] - 1], ordered[ranks[1] - 1])


def test_a_quotient_of_symmetric_values_has_students_interval() -> None:
    """mean ± t · s/√samples where nothing is skewed, and a rate is the quotient turned over."""
    half = np.random.default_rng(9).normal(0, 1, 2000)
    x = 10 + np.r_[half, -half][np.random.default_rng(10).permutation(4000)]
    q = mean(x)
    interval, found = q.interval()[0], q.worth
    assert interval is not None
    reach = student(found.blocks - 1) * x.std() / math.sqrt(found.samples)
    assert interval == pytest.approx((10 - reach, 10 + reach), abs=1e-3)
    turned = Quotient(np.ones(4000), x).interval()[0]
    assert turned is not None
    assert (1 / turned.high, 1 / turned.low) == pytest.approx(interval, rel=1e-3)


def test_no_mean_leaves_what_there_is() -> None:
    """A share stays between 0 and 1, and equal values have no width."""
    shares = np.r_[np.ones(60), 0.2, np.ones(60)]
    interval = mean(shares).interval()[0]
    assert interval is not None and 0.2 <= interval.low < interval.high <= 1
    assert mean(np.full(60, 0.5)).interval()[0] == (0.5, 0.5)


# -- coverage ----------------------------------------------------------------------------------------------

# Too short to know, what is seldom given is given to the runs that look less dependent than they are. So few
# that they decide nothing are given at all; of all runs, few are wrong.
QUICK = [
    ("ρ = 0.0", "median", 60, 0.9), ("ρ = 0.0", "rate", 200, 1), ("ρ = 0.5", "median", 200, 0.95),
    ("ρ = 0.9", "median", 200, 0), ("ρ = 0.9", "median", 1000, 0.9), ("ρ = 0.9", "rate", 1000, 0.9),
    ("ρ = 0.9", "p90", 1000, 0.85), ("ρ = 0.95", "median", 300, 0), ("ρ = 0.95", "median", 3000, 0.95),
    ("heavy tails", "rate", 1000, 1), ("a spike every 10 steps", "rate", 200, 1),
    ("two speeds, 30 and 10 steps", "median", 1000, 0.9),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "statistic", "n", "given"), QUICK)
def test_intervals_hold_the_truth_or_are_not_given(
    machine: str, statistic: str, n: int, given: float
) -> None:
    """At least 95 of 100, less three standard errors, wherever most runs are long enough to have one."""
    found = coverage(machine, statistic, n, tries=250)
    assert found.given >= given
    assert found.given <= 0.1 or given
    assert found.wrong <= 0.05 + 3 * math.sqrt(0.95 * 0.05 / 250)


# the fewest steps from which on most runs of the machine have an interval of the median
ENOUGH = {
    "ρ = 0.0": 60, "ρ = 0.3": 100, "ρ = 0.5": 200, "ρ = 0.7": 300, "ρ = 0.9": 1000, "ρ = 0.95": 2000,
    "log-normal, σ = 1, ρ = 0.5": 200, "heavy tails": 60, "heavy tails, ρ = 0.9": 1000,
    "two speeds, 30 and 10 steps": 1000, "two speeds, 100 and 100 steps": 6000,
    "two speeds, 400 and 100 steps": 12_000, "a spike every 10 steps": 60, "a spike every 100 steps": 400,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("machine", MACHINES)
def test_coverage_of_many_runs(machine: str, statistic: str) -> None:
    """93 to 99 of 100 from where most runs have an interval, and at ten times that all have one.

    More than 97 where the statistic has few samples beyond it, as p99, or where spikes come in turn.
    """
    for n in (max(ENOUGH[machine], 1000 if statistic == "p99" else 0), 10 * ENOUGH[machine]):
        found = coverage(machine, statistic, n, tries=1500 if n <= 3000 else 500)
        if statistic != "p99" or n >= 5 * ENOUGH[machine]:
            assert found.given >= 0.8 if n == ENOUGH[machine] else found.given >= 0.99
            assert found.right >= 0.93 - (0.01 if n > 3000 else 0)
        assert found.wrong <= 0.07
    if statistic == "median" and "spike" not in machine:
        assert found.right <= 0.985


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.5, 0.7, 0.9, 0.95])
def test_too_short_runs_are_told(rho: float) -> None:
    """At a third of the steps few runs have an interval, and of all runs hardly any has a wrong one."""
    found = coverage(f"ρ = {rho}", "median", ENOUGH[f"ρ = {rho}"] // 4, tries=2000)
    assert found.given <= 0.25 and found.wrong <= 0.03
