"""Claims about figures whose data are planted: what is drawn is where it belongs."""

import numpy as np
import pytest

from d5ray.dashboards.quantities import spread, told, unit_of
from d5ray.dashboards.report.sections import verdict
from d5ray.metrics.judge.criteria import Verdict
from d5ray.metrics.statistics.intervals import Estimate


@pytest.mark.parametrize(
    ("value", "low", "high", "target", "expected"),
    [
        (0.9, 0.8, 1.2, 1.0, (0.9, 0.8, 1.2)),
        (2.0, None, None, 4.0, (0.5, 0.5, 0.5)),
        (2.0, 1.0, np.inf, 4.0, (0.5, 0.25, 0.5)),
        (None, None, None, 1.0, None),
        (1.0, 0.5, 2.0, 0.0, None),
        (np.inf, 1.0, np.inf, 1.0, None),
    ],
)
def test_a_criterion_stands_at_its_value_over_the_target(
    value: float | None, low: float | None, high: float | None, target: float,
    expected: tuple[float, float, float] | None,
) -> None:  # fmt: skip
    """Where no finite ratio says anything it is not drawn; the table has it."""
    made = Verdict("", "m", "1", "<=", target, value, low, high, 6, "runs", "PASS", "")
    assert verdict.position(made) == expected


def test_error_bars_end_where_the_interval_ends() -> None:
    found = [Estimate(2.0, 1.5, 4.0), Estimate(3.0), Estimate(None)]
    values, around = spread(found, 0.5)
    assert values[:2].tolist() == [4.0, 6.0] and np.isnan(values[2])
    assert around[:, :2].tolist() == [[1.0, 0.0], [4.0, 0.0]]


@pytest.mark.parametrize(
    ("found", "unit", "text"),
    [
        (Estimate(2.5e-7, 2e-7, 3e-7), "s", "250 ns [200, 300]"),
        (Estimate(39_350_240.0), "B", "39.35 MB"),
        (Estimate(20094.5, 19000.0, 21000.0), "1/s", "20,094 /s [19,000, 21,000]"),
        (Estimate(0.0), "s", "0 s"),
        (Estimate(None), "s", "–"),
    ],
)
def test_a_value_and_its_interval_have_one_unit(found: Estimate, unit: str, text: str) -> None:
    assert told(found, unit) == text
    assert unit_of("s", [0.002, 0.5, 0.003]).name == "ms"  # which suits most of them
