"""Families of metrics: of rows, the largest or the time of a step, the last evaluation, totals and rates"""

from abc import ABC, abstractmethod
from typing import ClassVar, Final, final

import numpy as np

from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.estimates import (
    Floats,
    Integers,
    Rows,
    last_of_each,
    of_each_run,
    over_steps,
    side_by_side,
)
from d5ray.metrics.statistics.intervals import Estimate
from d5ray.metrics.statistics.time_series import Quantile, Quotient

STEP_TIME: Final = "step_time"  # the rows of how long each step took


class MetricOfRows(Metric, ABC):
    """A metric of the rows that have its name, of one phase or of all."""

    phase: ClassVar[str | None] = None

    @final
    def reads(self) -> tuple[str, ...]:
        return (self.name,)

    @final
    def estimate(self, run: RunTables) -> Estimate:
        rows = Rows(run, self.name, self.phase)
        return self.of(rows) if len(rows) else Estimate(None, reason=self.why_none(rows))

    @abstractmethod
    def of(self, rows: Rows) -> Estimate:
        """The value of these rows, of which there is one or more."""

    def why_none(self, rows: Rows) -> str:
        """The reason to give when there is no row with a value."""
        return rows.why_none(self.name)


class LargestOfAStep(MetricOfRows, ABC):
    """A metric that ranks write at every step, of which the largest counts; its value is the median."""

    phase = "train"
    counted: ClassVar[str] = "steps"
    direction = "min"
    aggregation = "largest over ranks, median over steps"

    def of(self, rows: Rows) -> Estimate:
        runs, _, largest = rows.per(rows.step, np.maximum)
        return over_steps(runs, Quantile(largest), self.counted)


class TimeOfAStep(LargestOfAStep, ABC):
    """A time that every rank writes at every step: the slowest rank is what the step took.

    The ranks meet at the end of a synchronous step, so the largest over the ranks is the time of the step.
    """

    unit = "s"
    kind = "cost"


class LastEvaluation(MetricOfRows, ABC):
    """A quality that every rank writes at every evaluation: the worst rank at the last evaluation counts.

    An exact fact of one run, as the test set is fixed; with several runs the median over them.
    """

    unit = "1"
    kind = "quality"
    aggregation = "last evaluation, worst over ranks"
    phase = "test"

    def of(self, rows: Rows) -> Estimate:
        worst = np.minimum if self.direction == "max" else np.maximum
        runs, _, values = rows.per(evaluation_of(rows), worst)
        last = np.flatnonzero(np.r_[np.diff(runs) != 0, True])
        return of_each_run(runs[last], values[last], np.max)


class TotalOfAnAgent(MetricOfRows, ABC):
    """A count that every rank writes at every step: its sum over all of an agent's steps, warm-up included.

    What a restarted agent did twice was done twice and counts twice. The agent with the largest sum counts:
    it is the one whose link or memory must hold it.
    """

    direction = "min"
    kind = "count"
    aggregation = "sum over steps, largest over agents"

    def of(self, rows: Rows) -> Estimate:
        new = np.flatnonzero(np.r_[True, (np.diff(rows.run) != 0) | (np.diff(rows.agent) != 0)])
        return of_each_run(rows.run[new], np.add.reduceat(rows.value, new), np.max)


class RateOfSteps(Metric, ABC):
    """The sum of what all agents do in steps, over the sum of the steps' times.

    The time of a step is that of its slowest rank. A ratio of sums, because the mean of rates would count
    fast steps too often (Hoefler and Belli, SC'15, doi 10.1145/2807591.2807644, rule 3).
    """

    work: ClassVar[str]  # the rows of what is done
    unit = "1/s"
    direction = "max"
    kind = "rate"

    def reads(self) -> tuple[str, ...]:
        return (self.work, STEP_TIME)

    @final
    def estimate(self, run: RunTables) -> Estimate:
        work, times = Rows(run, self.work, "train"), Rows(run, STEP_TIME, "train")
        for rows, metric in ((work, self.work), (times, STEP_TIME)):
            if not len(rows):
                return Estimate(None, reason=rows.why_none(metric))
        runs, done, seconds = side_by_side(work, times)
        if not len(done):
            return Estimate(None, reason=f"unavailable: no step has both {self.work} and {STEP_TIME}")
        if not seconds.any():
            return Estimate(None, reason="unavailable: the steps took no time")
        return self.rate(run, runs, done, seconds)

    def rate(self, run: RunTables, runs: Integers, done: Floats, seconds: Floats) -> Estimate:
        """The estimate, of what was done in each step and the seconds that it took."""
        return over_steps(runs, Quotient(done, seconds), "steps")


def evaluation_of(rows: Rows) -> Integers:
    """The evaluation that each row belongs to, numbered in their order: its epoch's, or that after its step.

    Each call of `train` ends with an evaluation, also within an epoch: where a rank has several of an epoch,
    those after the same step are one. A row without an epoch belongs to its step.
    """
    epoch = np.where(rows.epoch >= 0, rows.epoch, rows.step)
    each = last_of_each(rows.run, epoch, rows.rank, rows.step)
    keys = np.stack([rows.run[each], epoch[each], rows.rank[each]])
    again = np.flatnonzero((keys[:, 1:] == keys[:, :-1]).all(axis=0))
    if not len(again):
        return epoch
    number = np.unique([rows.run, epoch], axis=1, return_inverse=True)[1]
    several = np.isin(number, number[each[again]])
    found: Integers = np.unique([epoch, np.where(several, rows.step, -1)], axis=1, return_inverse=True)[1]
    return found
