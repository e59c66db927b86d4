"""When measuring stops, and what that does to coverage: simulated, beside the published figures"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.metrics.statistics.intervals import (
    Interval,
    median_interval,
    quantile_interval,
    quantile_interval_ranks,
)
from d5ray.metrics.statistics.sequential_stopping import (
    PRECISE,
    SequentialStopping,
    StoppingRule,
    half_width,
    missing,
)
from d5ray.metrics.statistics.time_series import Quantile
from tests.metrics.statistics.coverage import autoregressive

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]
TRIES = 1500
NOISE = 3 * math.sqrt(0.95 * 0.05 / TRIES)  # of a coverage of 95 %, three standard errors: 0.017


def bimodal(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """70 % near 1, 30 % near 1.3."""
    modes: Floats = np.where(rng.random(shape) < 0.7, 1.0, 1.3)
    return modes + rng.normal(0, 0.0125, shape)


# name -> what is drawn, and its median
DRAWN: dict[str, tuple[Draw, float]] = {
    "lognormal": (lambda rng, shape: rng.lognormal(0, 0.3, shape), 1.0),
    "shifted exponential": (lambda rng, shape: 1 + rng.exponential(0.1, shape), 1 + 0.1 * math.log(2)),
    "bimodal": (bimodal, 1 + 0.0125 * 0.5659488),  # the quantile 5/7 of the lower mode
}


def intervals(data: Floats) -> tuple[Floats, Floats]:
    """(low, high), each (tries,), of data (tries, n)."""
    ranks = quantile_interval_ranks(data.shape[1])
    assert ranks is not None
    ordered = np.sort(data, axis=1)
    return ordered[:, ranks[0] - 1], ordered[:, ranks[1] - 1]


def stopped(data: Floats, looks: list[int], precision: float) -> tuple[Floats, Floats, Floats]:
    """(low, high, n) at the first look at which the half-width is small enough, or at the last."""
    low, high, n = (np.full(len(data), math.nan) for _ in range(3))
    going = np.ones(len(data), bool)
    for look in looks:
        a, b = intervals(data[going, :look])
        middle = np.median(data[going, :look], axis=1)
        done = (b - a) / 2 <= precision * middle if look != looks[-1] else np.ones(len(a), bool)
        at = np.flatnonzero(going)[done]
        low[at], high[at], n[at] = a[done], b[done], look
        going[at] = False
        if not going.any():
            break
    return low, high, n


# -- the rule for repetitions ------------------------------------------------------------------------------


def at_the_stop(rule: StoppingRule, series: Floats) -> tuple[Interval | None, str]:
    """The interval when the rule says to stop, and the reason; it is asked when it looks."""
    for n in sorted(rule.looks):
        if reason := rule.reason(series[:n], 0.0):
            return Quantile(series[:n]).interval()[0], reason
    raise AssertionError("it goes on after the most")


def stops(rule: StoppingRule, data: Floats, truth: float) -> tuple[float, float, float]:
    """(share precise, share without an interval, share of right intervals at the stop), whatever made it."""
    found = [at_the_stop(rule, series) for series in data]
    given = [interval for interval, _ in found if interval is not None]
    right = sum(interval.low <= truth <= interval.high for interval in given)
    precise = sum(reason.startswith(PRECISE) for _, reason in found)
    return precise / len(data), 1 - len(given) / len(data), right / len(given)


@pytest.mark.full
@pytest.mark.parametrize("name", DRAWN)
def test_the_rule_keeps_coverage_of_independent_values(name: str) -> None:
    """Looks after 30, 45, 68, … values until 5 %: at least 95 %, less noise, and nearly all are precise."""
    draw, truth = DRAWN[name]
    precise, none, right = stops(StoppingRule(), draw(np.random.default_rng(1), (200, 1000)), truth)
    assert right >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 200)
    assert none == 0
    assert precise == pytest.approx(1, abs=0.01)


# correlation of neighbours -> shares, of 1000 values with 10 % of spread, that are precise, or too few
DEPENDENT = {0.5: (1.0, 0.0), 0.9: (0.9, 0.03), 0.95: (0.35, 0.48)}


@pytest.mark.full
@pytest.mark.parametrize(("rho", "shares"), DEPENDENT.items())
def test_the_rule_keeps_coverage_where_neighbours_are_alike(rho: float, shares: tuple[float, float]) -> None:
    """Peeking at dependent values: what it stops with is right, or it says that there is no interval."""
    data = np.exp(0.1 * autoregressive(np.random.default_rng(2), 300, 1000, rho))
    precise, none, right = stops(StoppingRule(), data, 1.0)
    assert right >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / (300 * (1 - none)))
    assert (precise, none) == pytest.approx(shares, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.3, 0.5, 0.7, 0.9, 0.95])
@pytest.mark.parametrize("growth", [1.5, 2.0])
def test_the_rule_covers_93_to_98_of_100(rho: float, growth: float) -> None:
    """2,000 measurements of at most 2,000 values; over half of them precise at every correlation."""
    data = np.exp(0.1 * autoregressive(np.random.default_rng(3), 2000, 2000, rho))
    precise, none, right = stops(StoppingRule(growth=growth, most=2000), data, 1.0)
    assert 0.93 <= right <= 0.985
    assert precise > 0.5 and none < 0.1


def test_values_taken_for_independent_stop_too_early() -> None:
    """A look at every tenth value from 30 on, at the exact interval: far below 95 % of dependent values."""
    for rho, most in ((0.5, 0.85), (0.9, 0.5)):
        data = np.exp(0.1 * autoregressive(np.random.default_rng(4), TRIES, 400, rho))
        low, high, _ = stopped(data, list(range(30, 401, 10)), 0.05)
        assert np.mean((low <= 1) & (high >= 1)) < most


def test_looking_after_every_value_loses_coverage() -> None:
    """From the sixth value on, at 2.5 % of a shifted exponential: 0.91 is published, and less than 0.94."""
    draw, truth = DRAWN["shifted exponential"]
    low, high, _ = stopped(draw(np.random.default_rng(2), (TRIES, 120)), list(range(6, 121)), 0.025)
    assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(0.912, abs=0.02)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 10_000),
    fewest=st.integers(30, 60),
    growth=st.floats(1.2, 3),
    most=st.integers(1, 150),
)
def test_it_stops_exactly_where_it_says(seed: int, fewest: int, growth: float, most: int) -> None:
    """At the first look with a narrow interval, or with `most` values; against the plain definition."""
    data = np.random.default_rng(seed).lognormal(0, 0.2, most)
    rule = StoppingRule(fewest=fewest, growth=growth, precision=0.06, most=most)
    reasons = [rule.reason(data[:n], 0.0) for n in range(1, most + 1)]
    first = next(n for n in range(1, most + 1) if reasons[n - 1])
    looks, n = [], fewest
    while n < most:
        looks.append(n)
        n = math.ceil(growth * n)
    narrow = [n for n in (*looks, most) if half_width(data[:n]) <= 0.06]
    assert first == min([*narrow, most])
    assert reasons[first - 1].startswith("precise" if first in narrow else "most")


def test_the_bounds_and_the_reason() -> None:
    """Time ends it whatever the values; equal values are precise; an interval that is infinite is not."""
    rule = StoppingRule(most=50, seconds=2.0)
    assert rule.reason([1.0, 5.0], 2.5) == "time: 2 s have passed, 2 values"
    assert rule.reason([3.0] * 30, 0.0) == "precise: half-width 0 % of the median, 30 values"
    assert rule.reason([math.inf] * 30, 0.0) == ""
    assert rule.reason([math.inf] * 50, 0.0).startswith("most: 50 values")
    drifting = rule.reason(np.linspace(1, 2, 50), 0.0)
    assert drifting.startswith(
        "most: 50 values, no interval: 50 measured values are worth 2 independent ones"
    )
    assert half_width([-1.0, 1.0] * 30) == math.inf  # around zero nothing is precise
    assert half_width([1.0] * 5) == math.inf


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"fewest": 29}, "at least 30"), ({"growth": 1.0}, "growth"), ({"precision": 1.0}, "precision"),
     ({"precision": "x"}, "precision"), ({"seconds": 0}, "seconds"), ({"most": 0}, "most")],
)  # fmt: skip
def test_a_rule_that_cannot_be_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        StoppingRule(**wrong)


# -- the rule for pairs of fresh processes -----------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.005, 0.01, 0.02, 0.04, 0.08])
def test_looks_keep_coverage_whatever_the_spread(spread: float) -> None:
    """Median log-ratios after 8, 14, 27 pairs: at least 96 % by the union bound, whichever look was last."""
    looks = SequentialStopping()
    assert looks.misses == pytest.approx(0.0399, abs=1e-4)
    logs = 0.1 + spread * np.random.default_rng(3).standard_t(3, (TRIES, 27))
    low, high, n = stopped(np.exp(logs), list(looks.pairs), looks.precision)
    assert np.mean((low <= math.exp(0.1)) & (math.exp(0.1) <= high)) >= 0.96 - NOISE
    assert (spread >= 0.02) == (np.median(n) > 8)


def test_looks_from_six_on_would_not() -> None:
    """A look at every pair from 6 to 27 leaves out the truth in more than 5 of 100 cases, and is refused."""
    logs = 0.03 * np.random.default_rng(4).normal(size=(4 * TRIES, 27))
    low, high, _ = stopped(np.exp(logs), list(range(6, 28)), 0.02)
    assert np.mean((low <= 1) & (high >= 1)) < 0.95 - NOISE / 2
    with pytest.raises(ConfigurationError, match=r"in \d\d.\d % of cases"):
        SequentialStopping(tuple(range(6, 28)))


@pytest.mark.parametrize("pairs", [(), (8, 8), (14, 8), (5, 14), 8, (8.0, 14)])
def test_looks_that_cannot_be_are_refused(pairs: Any) -> None:
    with pytest.raises(ConfigurationError, match="pairs"):
        SequentialStopping(pairs)


def test_looks_stop_where_all_ratios_are_narrow() -> None:
    """The widest ratio decides; between the looks nothing does; the last look ends it."""
    looks = SequentialStopping((8, 14), precision=0.02)
    assert looks.reason(8, [0.01, 0.03]) == looks.reason(9, [0.0]) == looks.reason(8, []) == ""
    assert looks.reason(8, [0.01, 0.02]) == "precise: half-width at most 2 %, 8 pairs"
    assert looks.reason(14, [math.inf]) == "most: 14 pairs"
    assert missing(5) == 1.0


# -- dependence --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("phi", "coverage"), [(0.0, 0.965), (0.3, 0.908), (0.6, 0.777), (0.9, 0.439)])
def test_the_naive_interval_breaks_when_neighbours_are_alike(phi: float, coverage: float) -> None:
    """100 values that each count: nominal 95 % becomes what is published."""
    low, high = intervals(autoregressive(np.random.default_rng(5), TRIES, 100, phi))
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(coverage, abs=0.04)


@given(
    seed=st.integers(0, 999), n=st.integers(720, 900), q=st.sampled_from([0.5, 0.9, 0.95]),
    samples=st.integers(72, 720),
)  # fmt: skip
def test_an_interval_of_fewer_samples_contains_that_of_all(seed: int, n: int, q: float, samples: int) -> None:
    """Fewer independent values know less: the interval is no narrower, and has sample values as bounds."""
    values = np.random.default_rng(seed).lognormal(size=n).round(2).tolist()  # with ties
    wide, narrow = quantile_interval(values, q, samples=samples // 2 + 36), quantile_interval(values, q)
    assert wide is not None and narrow is not None
    assert wide.low <= narrow.low <= narrow.high <= wide.high
    assert {*wide} <= set(values)
    assert median_interval(values) == quantile_interval(values, 0.5)
