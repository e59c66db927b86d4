"""Families of metrics: the largest or the time of a step, the last evaluation, the total of an agent."""

from abc import ABC

import numpy as np

from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.estimates import Integers, Rows, of_each_run, over_steps
from d5ray.metrics.statistics.intervals import Estimate
from d5ray.metrics.statistics.time_series import Quantile


class LargestOfAStep(Metric, ABC):
    """A metric that ranks write at every step, of which the largest counts; its value is the median."""

    direction = "min"
    aggregation = "largest over ranks, median over steps"

    def reads(self) -> tuple[str, ...]:
        return (self.name,)

    def estimate(self, run: RunTables) -> Estimate:
        rows = Rows(run, self.name, "train")
        if not len(rows):
            return Estimate(None, reason=rows.why_none(self.name))
        runs, _, largest = rows.per(rows.step, np.maximum)
        return over_steps(runs, Quantile(largest), "steps")


class TimeOfAStep(LargestOfAStep, ABC):
    """A time that every rank writes at every step: the slowest rank is what the step took.

    The ranks meet at the end of a synchronous step, so the largest over the ranks is the time of the step.
    """

    unit = "s"
    kind = "cost"


class LastEvaluation(Metric, ABC):
    """A quality that every rank writes at every evaluation: the worst rank at the last evaluation counts.

    An exact fact of one run, as the test set is fixed; with several runs the median over them.
    """

    unit = "1"
    kind = "quality"
    aggregation = "last evaluation, worst over ranks"

    def reads(self) -> tuple[str, ...]:
        return (self.name,)

    def estimate(self, run: RunTables) -> Estimate:
        rows = Rows(run, self.name, "test")
        if not len(rows):
            return Estimate(None, reason=rows.why_none(self.name))
        worst = np.minimum if self.direction == "max" else np.maximum
        runs, _, values = rows.per(evaluation_of(rows), worst)
        last = np.flatnonzero(np.r_[np.diff(runs) != 0, True])
        return of_each_run(runs[last], values[last], np.max)


class TotalOfAnAgent(Metric, ABC):
    """A count that every rank writes at every step: its sum over all of an agent's steps, warm-up included.

    What a restarted agent did twice was done twice and counts twice. The agent with the largest sum counts:
    it is the one whose link or memory must hold it.
    """

    direction = "min"
    kind = "count"
    aggregation = "sum over steps, largest over agents"

    def reads(self) -> tuple[str, ...]:
        return (self.name,)

    def estimate(self, run: RunTables) -> Estimate:
        rows = Rows(run, self.name)
        if not len(rows):
            return Estimate(None, reason=rows.why_none(self.name))
        new = np.flatnonzero(np.r_[True, (np.diff(rows.run) != 0) | (np.diff(rows.agent) != 0)])
        return of_each_run(rows.run[new], np.add.reduceat(rows.value, new), np.max)


def evaluation_of(rows: Rows) -> Integers:
    """The evaluation that each row belongs to: its epoch, or its step where it has no epoch."""
    return np.where(rows.epoch >= 0, rows.epoch, rows.step)
