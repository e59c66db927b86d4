"""When measuring stops, and what that does to coverage: simulated, beside the published figures"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.metrics.estimates import over_blocks
from d5ray.metrics.statistics import median_interval, quantile_interval, quantile_interval_ranks
from d5ray.metrics.stopping import Looks, StoppingRule, half_width, missing

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


@pytest.mark.parametrize(
    ("name", "coverage", "values"), [
        ("lognormal", 0.942, 220), ("shifted exponential", 0.963, 30), ("bimodal", 0.964, 30),
    ],
)  # fmt: skip
def test_the_rule_keeps_coverage_and_stops_early(name: str, coverage: float, values: int) -> None:
    """30 values, then a look at every tenth, until 5 %: coverage and median number as published."""
    draw, truth = DRAWN[name]
    data = draw(np.random.default_rng(1), (TRIES, 400))
    low, high, n = stopped(data, list(range(30, 401, 10)), 0.05)
    assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(coverage, abs=NOISE)
    assert np.median(n) == pytest.approx(values, abs=10)


def test_looking_after_every_value_loses_coverage() -> None:
    """From the sixth value on, at 2.5 % of a shifted exponential: 0.91 is published, and less than 0.94."""
    draw, truth = DRAWN["shifted exponential"]
    low, high, _ = stopped(draw(np.random.default_rng(2), (TRIES, 120)), list(range(6, 121)), 0.025)
    assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(0.912, abs=0.02)


@given(
    seed=st.integers(0, 10_000), fewest=st.integers(6, 40), every=st.integers(1, 15), most=st.integers(30, 90)
)
def test_it_stops_exactly_where_it_says(seed: int, fewest: int, every: int, most: int) -> None:
    """At the first look with a narrow interval, or with `most` values; against the plain definition."""
    data = np.random.default_rng(seed).lognormal(0, 0.2, most)
    rule = StoppingRule(fewest=fewest, every=every, precision=0.06, most=most)
    reasons = [rule.reason(data[:n], 0.0) for n in range(1, most + 1)]
    first = next(n for n in range(1, most + 1) if reasons[n - 1])
    looks = [n for n in range(fewest, most + 1, every) if half_width(data[:n]) <= 0.06]
    assert first == min([*looks, most])
    assert reasons[first - 1].startswith("precise" if first in looks else "most")


def test_the_bounds_and_the_reason() -> None:
    """Time ends it whatever the values; equal values are precise; an interval that is infinite is not."""
    rule = StoppingRule(most=50, seconds=2.0)
    assert rule.reason([1.0, 5.0], 2.5) == "time: 2 s have passed, 2 values"
    assert rule.reason([3.0] * 30, 0.0) == "precise: half-width 0 % of the median, 30 values"
    assert rule.reason([math.inf] * 30, 0.0) == ""
    assert rule.reason([math.inf] * 50, 0.0).startswith("most: 50 values")
    assert half_width([-1.0, 1.0] * 10) == math.inf  # around zero nothing is precise
    assert half_width([1.0] * 5) == math.inf


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"fewest": 5}, "at least 6"), ({"every": 0}, "every"), ({"precision": 1.0}, "precision"),
     ({"precision": "x"}, "precision"), ({"seconds": 0}, "seconds"), ({"most": 0}, "most")],
)  # fmt: skip
def test_a_rule_that_cannot_be_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        StoppingRule(**wrong)


# -- the rule for pairs of fresh processes -----------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.005, 0.01, 0.02, 0.04, 0.08])
def test_looks_keep_coverage_whatever_the_spread(spread: float) -> None:
    """Median log-ratios after 8, 14, 27 pairs: at least 96 % by the union bound, whichever look was last."""
    looks = Looks()
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
        Looks(tuple(range(6, 28)))


@pytest.mark.parametrize("pairs", [(), (8, 8), (14, 8), (5, 14), 8, (8.0, 14)])
def test_looks_that_cannot_be_are_refused(pairs: Any) -> None:
    with pytest.raises(ConfigurationError, match="pairs"):
        Looks(pairs)


def test_looks_stop_where_all_ratios_are_narrow() -> None:
    """The widest ratio decides; between the looks nothing does; the last look ends it."""
    looks = Looks((8, 14), precision=0.02)
    assert looks.reason(8, [0.01, 0.03]) == looks.reason(9, [0.0]) == looks.reason(8, []) == ""
    assert looks.reason(8, [0.01, 0.02]) == "precise: half-width at most 2 %, 8 pairs"
    assert looks.reason(14, [math.inf]) == "most: 14 pairs"
    assert missing(5) == 1.0


# -- dependence --------------------------------------------------------------------------------------------


def autoregressive(rng: np.random.Generator, tries: int, n: int, phi: float) -> Floats:
    """(tries, n) of x_t = φ x_(t−1) + ε_t, stationary, median 0, variance 1."""
    noise = rng.normal(0, math.sqrt(1 - phi**2), (tries, n))
    noise[:, 0] = rng.normal(size=tries)
    for at in range(1, n):
        noise[:, at] += phi * noise[:, at - 1]
    return noise


@pytest.mark.parametrize(("phi", "coverage"), [(0.0, 0.965), (0.3, 0.908), (0.6, 0.777), (0.9, 0.439)])
def test_the_naive_interval_breaks_when_neighbours_are_alike(phi: float, coverage: float) -> None:
    """100 values that each count: nominal 95 % becomes what is published."""
    low, high = intervals(autoregressive(np.random.default_rng(5), TRIES, 100, phi))
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(coverage, abs=0.04)


def test_blocks_hold_it() -> None:
    """With a correlation of 0.6 the interval over blocks, as step times have it, covers as it says."""
    data = autoregressive(np.random.default_rng(6), 500, 600, 0.6)
    one_run = np.zeros(600, np.int64)
    inside = 0
    for series in data:
        found = over_blocks(one_run, 600, lambda block: float(np.median(series[block])), "steps")  # noqa: B023
        assert found.low is not None and found.high is not None
        inside += found.low <= 0 <= found.high
    assert inside / 500 >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 500)


@pytest.mark.parametrize(("phi", "naive"), [(0.0, 0.93), (0.6, 0.0), (0.8, 0.0)])
def test_percentiles_hold_it_too(phi: float, naive: float) -> None:
    """p90 of 720 values: ten that count once cover at least 95 %, each that counts only if independent."""
    data = autoregressive(np.random.default_rng(7), 400, 720, phi)
    truth = 1.2815515655446004  # of a standard normal variable
    bounds = {b: [quantile_interval(series, 0.9, per_block=b) for series in data] for b in (1, 10)}
    inside = {b: np.mean([i is not None and i.low <= truth <= i.high for i in found]) for b, found in
              bounds.items()}  # fmt: skip
    assert inside[10] >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 400)
    assert inside[1] >= naive if naive else inside[1] < 0.9


def test_what_differs_between_processes_is_the_unit() -> None:
    """20 processes of 30 values, 2 % within and 1 % between: pooled 64 %, over process medians 96 %."""
    rng = np.random.default_rng(8)
    data = rng.normal(0, 0.02, (TRIES, 20, 30)) + rng.normal(0, 0.01, (TRIES, 20, 1))
    low, high = intervals(data.reshape(TRIES, 600))
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(0.6435, abs=0.04)
    low, high = intervals(np.median(data, axis=2))
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(0.957, abs=NOISE)


@given(seed=st.integers(0, 999), n=st.integers(720, 900), q=st.sampled_from([0.5, 0.9, 0.95]))
def test_an_interval_with_blocks_contains_that_without(seed: int, n: int, q: float) -> None:
    """Fewer independent values know less: the interval is never narrower, and has sample values as bounds."""
    values = np.random.default_rng(seed).lognormal(size=n).round(2).tolist()  # with ties
    wide, narrow = quantile_interval(values, q, per_block=10), quantile_interval(values, q)
    assert wide is not None and narrow is not None
    assert wide.low <= narrow.low <= narrow.high <= wide.high
    assert {*wide} <= set(values)
    assert median_interval(values) == quantile_interval(values, 0.5)
