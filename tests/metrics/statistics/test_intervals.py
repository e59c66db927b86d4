"""The statistics against exact binomial sums, published ranks and simulation."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.metrics.statistics.intervals import (
    median_interval,
    median_log_ratio,
    quantile_interval_ranks,
    tukey_outliers,
)

# n -> ranks of the exact 95% interval of the median, computed independently
MEDIAN_RANKS = {
    5: None, 6: (1, 6), 7: (1, 7), 8: (1, 8), 9: (2, 8), 10: (2, 9), 11: (2, 10), 15: (4, 12), 20: (6, 15),
    30: (10, 21), 50: (18, 33), 100: (40, 61), 200: (86, 115), 1000: (469, 532),
}  # fmt: skip
COVERAGE = {6: 0.9688, 9: 0.9609, 10: 0.9785, 20: 0.9586, 30: 0.9572, 100: 0.9648, 1000: 0.9537}


def binomial_sum(n: int, q: Fraction, first: int, last: int) -> Fraction:
    """P(first <= K <= last) for K ~ Bin(n, q), without rounding."""
    return sum(
        (math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(first, last + 1)), start=Fraction(0)
    )


@pytest.mark.parametrize(("n", "ranks"), MEDIAN_RANKS.items())
def test_median_ranks_are_the_published_exact_ones(n: int, ranks: tuple[int, int] | None) -> None:
    """From n = 5 (no interval) to n = 1000 the ranks are those of the exact binomial table."""
    assert quantile_interval_ranks(n) == ranks


@pytest.mark.parametrize(("n", "coverage"), COVERAGE.items())
def test_coverage_of_the_ranks_is_the_published_one(n: int, coverage: float) -> None:
    """P(x_(low) <= median <= x_(high)) = P(low <= K <= high − 1) agrees with the table to 4 digits."""
    ranks = quantile_interval_ranks(n)
    assert ranks is not None
    assert float(binomial_sum(n, Fraction(1, 2), ranks[0], ranks[1] - 1)) == pytest.approx(coverage, abs=5e-5)


@pytest.mark.parametrize(
    ("q", "confidence", "fewest"),
    [(0.9, 0.95, 36), (0.95, 0.95, 72), (0.99, 0.95, 368), (0.5, 0.9, 5), (0.5, 0.95, 6), (0.5, 0.99, 8)],
)
def test_no_interval_below_the_fewest_samples(q: float, confidence: float, fewest: int) -> None:
    """A two-sided interval of p90, p95, p99 needs 36, 72, 368 samples; one of the median 5, 6, 8."""
    assert quantile_interval_ranks(fewest - 1, q, confidence) is None
    assert quantile_interval_ranks(fewest, q, confidence) is not None


@given(
    n=st.integers(1, 120),
    q=st.sampled_from([Fraction(1, 2), Fraction(9, 10), Fraction(1, 4)]),
    alpha=st.sampled_from([Fraction(1, 20), Fraction(1, 10), Fraction(1, 100)]),
)
def test_ranks_are_the_narrowest_with_both_tails_small(n: int, q: Fraction, alpha: Fraction) -> None:
    """Each tail outside is at most α/2, and would be larger with the next rank, in exact fractions."""
    ranks = quantile_interval_ranks(n, float(q), 1 - float(alpha))
    if ranks is None:
        assert (1 - q) ** n > alpha / 2 or q**n > alpha / 2
    else:
        low, high = ranks
        assert binomial_sum(n, q, 0, low - 1) <= alpha / 2 < binomial_sum(n, q, 0, low)
        assert binomial_sum(n, q, high, n) <= alpha / 2 < binomial_sum(n, q, high - 1, n)


def test_a_tail_that_is_exactly_alpha_is_allowed() -> None:
    """With n = 6 both tails are 1/64, so that 1 − 2/64 is reached exactly, in spite of rounding."""
    assert quantile_interval_ranks(6, 0.5, 1 - 2 / 64) == (1, 6)


@pytest.mark.parametrize("n", [6, 10, 30, 100])
def test_median_interval_covers_the_median_of_a_skewed_distribution(n: int) -> None:
    """Over 4000 lognormal samples the true median (1) lies inside at least 95% of the time, less noise."""
    data = np.random.default_rng(n).lognormal(0, 0.3, size=(4000, n))
    intervals = [median_interval(row) for row in data]
    inside = np.mean([i is not None and i.low <= 1 <= i.high for i in intervals])
    assert inside >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 4000)


@given(st.lists(st.floats(-1e300, 1e300), min_size=6, max_size=60))
def test_median_interval_encloses_the_sample_median(values: list[float]) -> None:
    """Whatever the values and ties, low <= median of the sample <= high, and both are sample values."""
    interval = median_interval(values)
    assert interval is not None
    assert interval.low <= np.median(values) <= interval.high
    assert {interval.low, interval.high} <= set(values)


def test_infinite_values_keep_their_rank() -> None:
    """A run that missed its target counts as +∞; only with too many of them the bound is infinite."""
    assert median_interval([1, 2, 3, 4, 5, 6, 7, 8, 9, math.inf]) == (2, 9)
    assert median_interval([1, 2, 3, 4, 5, 6, 7, 8, math.inf, math.inf]) == (2, math.inf)


def test_nan_has_no_rank() -> None:
    """NaN among the values is an error that says so, not a silently shifted interval."""
    with pytest.raises(ConfigurationError, match="NaN"):
        median_interval([1, 2, 3, 4, 5, math.nan])


def test_log_ratio_is_the_median_of_the_ratios() -> None:
    """For an odd number of pairs it is the median of a/b, and the interval two of its order statistics."""
    a = np.array([1.0, 8.0, 3.0, 10.0, 9.0, 24.0, 7.0])
    b = np.array([1.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0])
    ratios = np.sort(a / b)
    found = median_log_ratio(a, b)
    assert found.interval is not None
    assert found.value == pytest.approx(ratios[3])
    assert found.interval == pytest.approx((ratios[0], ratios[6]))
    assert found.n == 7


def test_log_ratio_of_identical_sides_rarely_excludes_one() -> None:
    """Ten pairs with a common 5% drift and no difference: ratio 1 is excluded at most 5% of the time."""
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(1000):
        drift = rng.normal(0, 0.05, 10)
        a, b = np.exp(drift + rng.normal(0, 0.01, 10)), np.exp(drift + rng.normal(0, 0.01, 10))
        interval = median_log_ratio(a, b).interval
        assert interval is not None
        wrong += not interval.low <= 1 <= interval.high
    assert wrong / 1000 <= 0.05


@pytest.mark.parametrize(
    ("a", "b"), [([], []), ([1.0], [1.0, 2.0]), ([1.0], [0.0]), ([math.nan], [1.0]), ([math.inf], [1.0])]
)
def test_log_ratio_refuses_what_has_no_logarithm_or_no_partner(a: list[float], b: list[float]) -> None:
    """Unequal or empty sides, zeros, NaN and infinity are errors."""
    with pytest.raises(ConfigurationError, match="median_log_ratio"):
        median_log_ratio(a, b)


def test_outliers_are_counted_beyond_one_and_a_half_interquartile_ranges() -> None:
    """With quartiles near 25 and 75 the fences are near −50 and 150: 160 is outside, 140 is not."""
    inside = list(range(101))
    assert np.quantile(inside, [0.25, 0.75]).tolist() == [25, 75]
    assert tukey_outliers(inside) == 0
    assert tukey_outliers([*inside, 160, -60]) == 2
    assert tukey_outliers([*inside, 140, -40]) == 0
    assert tukey_outliers([]) == 0
