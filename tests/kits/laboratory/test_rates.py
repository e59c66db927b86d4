"""Rates of several agents together, against planted rows; who is missing is told"""

import pyarrow as pa
import pytest

from d5ray.kits.laboratory.metrics.rates import (
    SAMPLE_RATE,
    UPDATE_RATE,
    SampleRateRatio,
    UpdateRateRatio,
    rate_of,
)
from d5ray.kits.laboratory.metrics.side_by_side import scope_of
from tests.kits.laboratory.comparing import written

PAIRS = 7
DRIFT = [1.0, 1.3, 0.7, 2.0, 0.9, 1.1, 1.6]  # of the machine, from pair to pair


def two(metric: str, at: str, quick: float, pairs: int = PAIRS) -> dict[str, pa.Table]:
    """a's three agents do quick · (1 + 2 + 3) a second, b's two 1 + 2, both as the machine drifts.

    Each after a warm-up value that must not count.
    """
    rows = [
        (metric, scope_of(name, at), rank, pair, own * (rank + 1) * DRIFT[pair])
        for name, agents, own in (("a[3]", 3, quick), ("b[2]", 2, 1.0))
        for rank in range(agents)
        for pair in range(pairs)
    ]
    warm = [(*row[:4], 1e9) for row in rows]
    both = (written(warm, "warmup")["samples"], written(rows)["samples"])
    return {"samples": pa.concat_tables(both)}


def test_what_all_agents_do_in_a_second_is_the_sum_of_what_each_does() -> None:
    """5 · 6 against 3: ten times as much in every pair, though the machine is quicker in some."""
    run = two(UPDATE_RATE, "1 MB", quick=5.0)
    found = UpdateRateRatio("a[3]", "b[2]", "1 MB").estimate(run)
    assert (found.value, found.low, found.high) == pytest.approx((10, 10, 10))
    assert (found.n, found.sample_unit) == (PAIRS, "pairs of fresh processes")
    assert (UpdateRateRatio("a[3]", "b[2]", "1 MB") >= 10.001).judge(run).verdict == "FAIL"
    assert (UpdateRateRatio("a[3]", "b[2]", "1 MB") >= 9.999).judge(run).verdict == "PASS"


def test_samples_a_second_are_summed_alike() -> None:
    run = two(SAMPLE_RATE, "", quick=0.5)
    assert SampleRateRatio("a[3]", "b[2]").estimate(run).value == pytest.approx(1.0)
    assert SampleRateRatio("b[2]", "a[3]").estimate(run).value == pytest.approx(1.0)


def test_a_rate_is_the_median_over_fresh_processes() -> None:
    """6 · drift, whose median is 1.1; the exact interval of seven is from the least to the greatest."""
    found = rate_of(two(UPDATE_RATE, "1 MB", quick=1.0), UPDATE_RATE, "a[3]", "1 MB")
    assert (found.value, found.low, found.high) == pytest.approx((6.6, 4.2, 12.0))


def test_few_pairs_have_no_interval_and_leave_the_verdict_open() -> None:
    verdict = (UpdateRateRatio("a[3]", "b[2]", "1 MB") >= 5).judge(two(UPDATE_RATE, "1 MB", 5.0, pairs=4))
    assert verdict.value == pytest.approx(10) and verdict.verdict == "INCONCLUSIVE"
    assert verdict.reason == "no interval: 4 pairs are too few, it needs 6: make 2 more"


@pytest.mark.parametrize(
    ("metric", "who"),
    [
        (UpdateRateRatio("a[3]", "c[2]", "1 MB"), "c[2]"),
        (UpdateRateRatio("c[2]", "a[3]", "1 MB"), "c[2]"),
        (UpdateRateRatio("a[3]", "b[2]", "2 MB"), "a[3]"),
    ],
)
def test_who_was_not_measured_is_named(metric: UpdateRateRatio, who: str) -> None:
    found = metric.estimate(two(UPDATE_RATE, "1 MB", quick=1.0))
    assert (found.value, found.reason) == (None, f"unavailable: {who} was not measured")
