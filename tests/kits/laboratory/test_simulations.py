"""Costs of simulations, and simulated times beside their formulas, against planted rows"""

import math

import pyarrow as pa
import pytest

from d5ray.kits.laboratory.metrics import simulations
from d5ray.kits.laboratory.metrics.simulations import (
    HighestPredictionRatio,
    LowestPredictionRatio,
    WallTime,
    prediction_ratios,
    values_by_scope,
)
from tests.kits.laboratory.comparing import Row, written


def rows(*planted: Row) -> dict[str, pa.Table]:
    return written(planted)


def exchange(scope: str, found: float, predicted: float | None = None) -> list[Row]:
    """The rows of one exchange."""
    row = [("exchange_time", scope, 0, 0, found)]
    return row if predicted is None else [*row, ("predicted_exchange_time", scope, 0, 0, predicted)]


def test_the_longest_simulation_counts_and_is_a_fact() -> None:
    run = rows(*((simulations.WALL_TIME, "ASGD[1024]", 0, n, seconds) for n, seconds in enumerate((90, 181))))
    assert (WallTime("ASGD[1024]") <= 180).judge(run).verdict == "FAIL"
    assert (WallTime("ASGD[1024]") <= 181).judge(run).verdict == "PASS"
    missing = (WallTime("DPSGD[1024]") <= 180).judge(run)
    assert (missing.verdict, missing.reason) == (
        "INCONCLUSIVE", "unavailable: DPSGD[1024] was not measured",
    )  # fmt: skip


def test_the_extremes_are_those_of_an_algorithms_simulated_exchanges() -> None:
    """0.96 and 1.2; not what was not predicted, cost nothing, is real, or is another algorithm's."""
    run = rows(
        *exchange("allreduce, fast[4]", 1.2, 1.0),
        *exchange("allreduce, slow[4]", 4.8, 5.0),
        *exchange("allreduce, fast[1]", 3.0, 0.0),
        *exchange("allreduce, fast[2]", 3.0),
        *exchange("allreduce server, fast[4]", 9.0, 1.0),
        *exchange("real allreduce, socket[4]", 7.0, 1.0),
    )
    lowest, highest = (
        kind("allreduce").estimate(run) for kind in (LowestPredictionRatio, HighestPredictionRatio)
    )
    assert lowest.value == pytest.approx(0.96) and (lowest.n, lowest.exact) == (2, True)
    assert highest.value == pytest.approx(1.2) and (highest.n, highest.exact) == (2, True)
    assert (LowestPredictionRatio("allreduce") >= 0.95).judge(run).verdict == "PASS"
    assert (HighestPredictionRatio("allreduce") <= 1.1).judge(run).verdict == "FAIL"
    assert LowestPredictionRatio("LocalSGD").estimate(run).reason == "unavailable: LocalSGD was not measured"


def test_an_exchange_that_was_measured_often_is_its_median() -> None:
    run = rows(
        *(("exchange_time", "a", 0, 0, seconds) for seconds in (3.0, 1.0, 100.0)), *exchange("a", 2.0, 1.0)
    )
    assert prediction_ratios(run) == {"a": (2.5, 1.0)}


def test_values_are_found_by_whom_they_are_about_in_order_of_appearance() -> None:
    run = rows(
        ("x", "b", 0, 0, 1.0), ("x", "a", 0, 0, math.inf), ("y", "b", 0, 0, 7.0), ("x", "b", 0, 1, 2.0)
    )  # fmt: skip
    found = values_by_scope(run, "x")
    assert {scope: values.tolist() for scope, values in found.items()} == {"b": [1.0, 2.0], "a": [math.inf]}
    assert list(found) == ["b", "a"]
