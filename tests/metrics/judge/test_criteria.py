"""Criteria: which can be written, and what the verdict is."""

import inspect
import json
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import cloudpickle
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.metrics.definitions.catalogue import (
    CATALOGUE,
    StepTime,
    TestAccuracy,
    Throughput,
    catalogue_rows,
    metric_named,
)
from d5ray.metrics.definitions.families import LastEvaluation
from d5ray.metrics.judge.criteria import Criterion, Metric, RunTables, as_criterion
from d5ray.metrics.judge.stored_criteria import criterion_of
from d5ray.metrics.record.schema import VERDICTS, table_of
from d5ray.metrics.statistics.intervals import Estimate
from tests.beside_kits import cases_of


@dataclass(frozen=True)
class Known(Metric):
    """A cost whose estimate is given."""

    name = "known"
    unit = "s"
    direction: ClassVar[Literal["min", "max", "target"]] = "min"
    kind = "cost"
    aggregation = ""
    description = ""
    found: Estimate

    def estimate(self, run: RunTables) -> Estimate:
        return self.found


@dataclass(frozen=True)
class Heat(Metric):
    """A quantity that should be near a value."""

    name = "heat"
    unit = "K"
    direction = "target"
    kind = "quality"
    aggregation = ""
    description = ""

    def estimate(self, run: RunTables) -> Estimate:
        return Estimate(300.0, exact=True)


@pytest.mark.parametrize(
    ("gives", "value", "words"),
    [(0.25, 0.25, "without an interval"), (None, None, "gave NoneType"), ([1], None, "gave list"),
     (KeyError("time"), None, "Known.estimate failed: KeyError: 'time'")],
)  # fmt: skip
def test_a_metric_of_ones_own_that_gives_no_estimate_leaves_it_open(
    gives: object, value: float | None, words: str
) -> None:
    """When the training is over its rows are worth more than a traceback."""

    class Fails(Known):
        def estimate(self, run: RunTables) -> Estimate:
            if isinstance(gives, Exception):
                raise gives
            return gives  # type: ignore[return-value]

    Fails.__name__ = "Known"
    judged = (Fails(Estimate(0.0)) <= 1.0).judge({})
    assert (judged.verdict, judged.value) == ("INCONCLUSIVE", value)
    assert words in judged.reason


def test_a_metric_of_a_family_is_a_row_and_a_docstring() -> None:
    """Also one's own, on whatever process it comes to; without a docstring nobody knows what it is."""

    class Worst(LastEvaluation, name="worst", direction="min"):
        """The largest deviation
        on the test set.

        Of all agents.
        """

    class Silent(LastEvaluation, name="silent", direction="min"): ...

    for kind in (Worst, pickle.loads(cloudpickle.dumps(Worst))):
        assert (kind.name, kind.description) == ("worst", "the largest deviation on the test set")
        assert (kind() <= 0.1).described()["metric"] == "worst"
        assert "Unit 1; last evaluation, worst over ranks." in str(inspect.getdoc(kind))
    with pytest.raises(ConfigurationError, match="the metric Silent does not say its description"):
        _ = Silent() <= 0.1


def test_comparison_with_a_number_makes_a_criterion() -> None:
    """Both ways of writing it, `metric >= x` and `x <= metric`, give the same criterion."""
    assert (TestAccuracy() >= 0.97) == Criterion(TestAccuracy(), ">=", 0.97)
    assert (StepTime() <= 0.02) == Criterion(StepTime(), "<=", 0.02)
    assert (TestAccuracy() >= 1) == (1 <= TestAccuracy())  # noqa: SIM300


def of_contenders() -> list[Metric]:
    from d5ray.kits.laboratory.metrics.side_by_side import StepTimeOf, StepTimeRatio  # noqa: PLC0415

    return [StepTimeOf("torch"), StepTimeRatio("d5ray", "torch")]


@pytest.mark.parametrize(
    "metric",
    [
        *(kind() for kind in CATALOGUE.values()), d5.metrics.TimeToAccuracy(0.5),
        d5.metrics.StepLatency(0.99), d5.metrics.Cost(d5.metrics.PriceTable(node_per_hour=0.5)),
        *cases_of("laboratory", of_contenders),
    ],
    ids=str,
)  # fmt: skip
def test_a_criterion_that_a_run_keeps_is_made_again(metric: Metric) -> None:
    """By `d5ray check`, which judges it by the rows, by `d5ray rerun`, and for a run that goes on."""
    criterion = Criterion(metric, ">=" if metric.direction == "max" else "<=", 0.5)
    assert criterion_of(json.loads(json.dumps(criterion.described()))) == criterion


@pytest.mark.parametrize("metric", [kind() for kind in CATALOGUE.values()], ids=str)
def test_every_metric_refuses_the_wrong_direction(metric: Metric) -> None:
    """A bound on the side that is good anyway is an error that shows the right one."""
    with pytest.raises(ConfigurationError, match="points the wrong way"):
        _ = metric <= 1 if metric.direction == "max" else metric >= 1
    criterion = metric >= 1 if metric.direction == "max" else metric <= 1
    assert as_criterion((metric, 1)) == criterion


@pytest.mark.parametrize(
    "combine",
    [
        lambda: (d5.metrics.TestAccuracy() >= 0.5) and (d5.metrics.TestLoss() <= 0.1),
        lambda: (d5.metrics.TestAccuracy() >= 0.5) or (d5.metrics.TestLoss() <= 0.1),
        lambda: not (d5.metrics.TestAccuracy() >= 0.5),
        lambda: d5.metrics.StepTime() and d5.metrics.TestLoss() <= 0.1,
        lambda: 0.5 <= d5.metrics.TestAccuracy() <= 0.9,
        lambda: all([d5.metrics.TestAccuracy() >= 0.5, d5.metrics.TestLoss() <= 0.1]),
    ],
)
def test_criteria_have_no_truth_value(combine: Callable[[], object]) -> None:
    """Of criteria that are combined, one alone would be left without a word."""
    with pytest.raises(ConfigurationError, match="truth value"):
        combine()


def test_strict_comparison_is_refused() -> None:
    """`>` and `<` say to write `>=` and `<=`."""
    with pytest.raises(ConfigurationError, match="write >="):
        _ = TestAccuracy() > 0.9
    with pytest.raises(ConfigurationError, match="write <="):
        _ = StepTime() < 1


@pytest.mark.parametrize("target", [math.nan, math.inf, "0.9", None, True])
def test_the_target_must_be_a_finite_number(target: float) -> None:
    """NaN, infinity, text, None and bool are no targets."""
    with pytest.raises(ConfigurationError, match="finite number"):
        _ = TestAccuracy() >= target


def test_a_metric_with_a_target_is_bounded_on_either_side() -> None:
    """Direction "target" allows both relations, and its tuple form is refused as it says neither."""
    assert (Heat() >= 290).judge({}).verdict == (Heat() <= 310).judge({}).verdict == "PASS"
    with pytest.raises(ConfigurationError, match="which side"):
        as_criterion((Heat(), 300))


@pytest.mark.parametrize(
    "item", [0.97, "TestAccuracy", (StepTime,), (StepTime, 1), (StepTime(), 1, 2), StepTime()]
)
def test_anything_else_is_no_criterion(item: object) -> None:
    """A class instead of an instance, a bare metric, a number, a text are errors."""
    with pytest.raises(ConfigurationError, match="not a criterion"):
        as_criterion(item)


@pytest.mark.parametrize(
    ("estimate", "verdict"),
    [
        (Estimate(1.0, 0.8, 1.2, 10), "PASS"),
        (Estimate(1.0, 0.8, 2.0, 10), "PASS"),  # the bound belongs to the good side
        (Estimate(1.9, 1.8, 2.1, 10), "INCONCLUSIVE"),
        (Estimate(3.0, 2.0, 4.0, 10), "INCONCLUSIVE"),
        (Estimate(3.0, 2.1, 4.0, 10), "FAIL"),
        (Estimate(3.0, 2.1, math.inf, 10), "FAIL"),
        (Estimate(1.0, reason="5 runs"), "INCONCLUSIVE"),
        (Estimate(9.0, reason="5 runs"), "INCONCLUSIVE"),
        (Estimate(2.0, exact=True), "PASS"),
        (Estimate(2.1, exact=True), "FAIL"),
        (Estimate(None, reason="unavailable: no sensor"), "INCONCLUSIVE"),
        (Estimate(math.nan, 1.0, 1.0, 10), "FAIL"),
        (Estimate(math.nan, exact=True), "FAIL"),
    ],
)
def test_the_interval_decides(estimate: Estimate, verdict: str) -> None:
    """For `known <= 2`: wholly below passes, wholly above fails, else the data do not decide."""
    found = (Known(estimate) <= 2).judge({})
    assert found.verdict == verdict
    assert found.reason or verdict == "PASS" or estimate.low is not None or estimate.exact


def test_a_lower_bound_is_judged_the_other_way_round() -> None:
    """The same estimate that passes `<=` fails nothing but its mirror image."""

    @dataclass(frozen=True)
    class Rate(Known):
        direction = "max"

    assert (Rate(Estimate(3.0, 2.0, 4.0, 10)) >= 2).judge({}).verdict == "PASS"
    assert (Rate(Estimate(3.0, 1.9, 4.0, 10)) >= 2).judge({}).verdict == "INCONCLUSIVE"
    assert (Rate(Estimate(1.0, 0.5, 1.9, 10)) >= 2).judge({}).verdict == "FAIL"


def test_a_verdict_is_a_row_of_its_table() -> None:
    """The fields of a verdict are the columns of `verdicts`, and the run is named if there is just one."""
    runs = table_of("runs", [{"run_id": "r1", "status": "completed"}])
    verdict = (Known(Estimate(1.0, 0.8, 1.2, 10, "runs")) <= 2).judge({"runs": runs})
    assert list(verdict.row) == VERDICTS.names
    assert table_of("verdicts", [verdict.row]).to_pylist() == [verdict.row]
    assert verdict.run_id == "r1"
    two = table_of("runs", [{"run_id": name, "status": "completed"} for name in ("r1", "r2")])
    assert (Known(Estimate(1.0)) <= 2).judge({"runs": two}).run_id == ""


def test_metrics_are_found_by_name_and_the_nearest_is_told() -> None:
    """Every name of the catalogue gives its metric; a wrong one names the nearest."""
    assert all(type(metric_named(name)) is kind for name, kind in CATALOGUE.items())
    with pytest.raises(ConfigurationError, match="did you mean 'step_time'"):
        metric_named("steptime")


def test_the_catalogue_fits_the_table_of_metrics() -> None:
    """Each metric has all columns, a known direction and kind, and an SI unit."""
    rows = catalogue_rows()
    assert table_of("metrics", rows).num_rows == len(CATALOGUE)
    assert {row["direction"] for row in rows} <= {"min", "max", "target"}
    assert {row["kind"] for row in rows} <= {"cost", "rate", "ratio", "quality", "count"}
    assert {row["unit"] for row in rows} == {"1", "s", "B", "1/s", "J"}


def test_metrics_of_one_kind_are_equal() -> None:
    """Two instances without parameters are the same metric; two metrics with the same fields are not."""
    assert StepTime() == StepTime()
    assert len({kind() for kind in CATALOGUE.values()}) == len(CATALOGUE)
    assert repr(Throughput() >= 5) == "Criterion(metric=Throughput(), relation='>=', target=5.0)"
