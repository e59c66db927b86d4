"""Convergence of a training: its curve as a table, and the time and the steps to an accuracy"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import final

import numpy as np
import pyarrow as pa

from d5ray.checks import check_kind, check_number
from d5ray.metrics.definitions.catalogue import CATALOGUE
from d5ray.metrics.definitions.families import evaluation_of
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.estimates import Floats, Rows, edges_of, last_of_each, of_each_run, over_runs
from d5ray.metrics.statistics.intervals import Estimate

CURVE = pa.schema(
    [
        ("run_id", pa.utf8()),
        ("step", pa.int64()),  # the last that was done before the evaluation
        ("epoch", pa.int64()),
        ("seconds", pa.float64()),  # of training until then, evaluations left out
        ("value", pa.float64()),
    ]
)


def convergence_curve(run: RunTables, metric: str = "test_accuracy") -> pa.Table:
    """A row for every evaluation: run_id, step, epoch, seconds of training until then, value.

    run: the tables of one run, or of several together. The value is the worst rank's, and of a metric of
    steps, such as "loss", the mean over the ranks at every step. The time is the largest of the ranks' sums
    of step times, warm-up included: what a stopwatch shows that stands still during evaluations. It is NaN
    where no step time was recorded, and in a run that was resumed: its first steps are another run's.
    """
    check_kind("run", run, Mapping, "the tables of a run, such as Run('last').tables()")
    check_kind("metric", metric, str, "the name of a metric")
    values = Rows(run, metric, "validation" if metric.startswith("validation_") else "test")
    moment, combine = evaluation_of(values), _worst(metric)
    if not len(values):
        values = Rows(run, metric)
        moment, combine = values.step, np.mean
    last = last_of_each(values.run, moment, values.rank)
    if not len(last):
        return CURVE.empty_table()
    seconds = _training_seconds(run, values)[last]
    names, steps, epochs, found = (
        np.array(values.words("run_id"))[last], values.step[last], values.epoch[last], values.value[last],
    )  # fmt: skip
    at = edges_of(values.run[last], moment[last])
    rows = [
        (names[a], steps[a:b].max(), epochs[a:b].max(), seconds[a:b].max(), combine(found[a:b]))
        for a, b in pairwise(at)
    ]
    return pa.table(
        [pa.array(c, field.type) for c, field in zip(zip(*rows, strict=True), CURVE, strict=True)],
        schema=CURVE,
    )


@dataclass(frozen=True)
class ToAccuracy(Metric, ABC):
    """The cost until an evaluation first met the accuracy: that evaluation's own mark, nothing between.

    A run that never meets it did not take "no time" and does not drop out: it counts as +∞, as what is known
    of it is that it would have taken longer than it had (a censored value). Medians and rank intervals bear
    that; a bound that is infinite is shown as "> budget".

    accuracy: from 0 to 1, that the worst rank must reach, on the validation split where the data set has one,
        else on the test split
    """

    accuracy: float

    direction = "min"
    kind = "cost"
    aggregation = "first evaluation that meets the target, median over runs"

    def __post_init__(self) -> None:
        check_number("accuracy", self.accuracy, low=0.0, low_included=False, high=1.0 + 1e-12)

    def reads(self) -> tuple[str, ...]:
        return ("test_accuracy", "step_time")

    @abstractmethod
    def judged(self, found: Floats) -> Estimate:
        """The estimate from the values of all runs, infinite if one did not reach the accuracy."""

    @abstractmethod
    def mark(self, curve: pa.Table) -> Floats:
        """The cost so far, at every evaluation."""

    def estimate(self, run: RunTables) -> Estimate:
        curve = convergence_curve(run, "validation_accuracy")
        if not curve.num_rows:
            curve = convergence_curve(run)
        if not curve.num_rows:
            return Estimate(None, reason=Rows(run, "test_accuracy", "test").why_none("test_accuracy"))
        if resumed := [step for step in _first_steps(Rows(run, "step_time")).values() if step > 0]:
            told = f"a run was resumed at step {resumed[0]}, and the steps before are another run's"
            return Estimate(None, reason=f"unavailable: {told}")
        names = curve["run_id"].to_numpy(zero_copy_only=False)
        accuracy, marks = curve["value"].to_numpy(), self.mark(curve)
        if np.isnan(marks).any():
            return Estimate(None, reason="unavailable: no step_time was recorded before an evaluation")
        found, budget = [], []
        for name in dict.fromkeys(names):
            met = marks[(names == name) & (accuracy >= self.accuracy)]
            found.append(float(met.min()) if len(met) else math.inf)
            budget.append(float(marks[names == name].max()))
        missed = [spent for spent, each in zip(budget, found, strict=True) if math.isinf(each)]
        estimate = self.judged(np.array(found))
        if not missed:
            return estimate
        text = (
            f"{len(missed)} of {len(found)} runs did not reach {self.accuracy:g} within their budget of "
            f"{min(missed):.4g} {self.unit if self.unit != '1' else 'steps'}, and count as longer"
        )
        reason = f"{text}; {estimate.reason}" if estimate.reason else text
        unit = f"{estimate.sample_unit}, {len(missed)} censored"
        return replace(estimate, reason=reason, sample_unit=unit)


@final
@dataclass(frozen=True)
class TimeToAccuracy(ToAccuracy):
    """Training time to an accuracy, evaluations left out; an interval needs six runs, as every time does."""

    name = "time_to_accuracy"
    unit = "s"
    description = "training time until an evaluation first meets the accuracy"

    def mark(self, curve: pa.Table) -> Floats:
        seconds: Floats = curve["seconds"].to_numpy()
        return seconds

    def judged(self, found: Floats) -> Estimate:
        return over_runs(found.tolist())


@final
@dataclass(frozen=True)
class StepsToAccuracy(ToAccuracy):
    """Training steps to an accuracy; an exact fact of one run."""

    name = "steps_to_accuracy"
    unit = "1"
    description = "training steps until an evaluation first meets the accuracy"

    def mark(self, curve: pa.Table) -> Floats:
        steps: Floats = curve["step"].to_numpy() + 1.0
        return steps

    def judged(self, found: Floats) -> Estimate:
        return of_each_run(np.arange(len(found)), found, np.max)


def _training_seconds(run: RunTables, values: Rows) -> Floats:
    """The sum of its rank's step times up to every row; NaN where there are none, and in a resumed run."""
    times = Rows(run, "step_time")
    found = np.full(len(values), math.nan)
    for number, first in _first_steps(times).items():
        if first > 0:
            continue
        for rank in np.unique(values.rank[values.run == number]):
            own = (times.run == number) & (times.rank == rank)
            ends = times.wall[own]
            order = np.argsort(ends, kind="stable")
            sums = np.r_[math.nan, np.cumsum(times.value[own][order])]
            of = (values.run == number) & (values.rank == rank)
            found[of] = sums[np.searchsorted(ends[order], values.wall[of], side="right")]
    return found


def _first_steps(times: Rows) -> dict[int, int]:
    """The first step of each run, by its number: more than 0 where it was resumed."""
    return {int(number): int(times.step[times.run == number].min()) for number in np.unique(times.run)}


def _worst(metric: str) -> Callable[[Floats], np.floating]:
    known = CATALOGUE.get(metric)
    if known is None or known.direction == "target":
        return np.mean
    return np.min if known.direction == "max" else np.max
