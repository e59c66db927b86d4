"""Latencies: the percentiles of the time of a step and of an inference, and the time of an inference"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.checks import check_number
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.estimates import Floats, Integers, Rows, over_steps
from d5ray.metrics.statistics.intervals import Estimate
from d5ray.metrics.statistics.time_series import Quantile

INFERENCE_TIME = "inference_time"  # of one call on one batch


@dataclass(frozen=True)
class Latency(Metric, ABC):
    """A percentile of a time: at least this share of all steps takes no longer.

    Consecutive steps resemble each other: the interval has the exact ranks of as many independent ones as the
    steps are worth. It needs 36, 72 or 368 of these for p90, p95, p99; with fewer the percentile stands
    without one. With several runs, each a fresh process, one run counts once, by its own percentile.

    quantile: 0.5, 0.9, 0.95, 0.99, or any other between 0 and 1
    """

    quantile: float = 0.95

    unit = "s"
    direction = "min"
    kind = "cost"
    aggregation = "largest over ranks, percentile over steps"

    def __post_init__(self) -> None:
        check_number("quantile", self.quantile, low=0.0, low_included=False, high=1.0)

    @abstractmethod
    def times(self, run: RunTables) -> tuple[Rows, Integers, Floats]:
        """The rows, and for each step (run, seconds) of it."""

    def estimate(self, run: RunTables) -> Estimate:
        rows, runs, seconds = self.times(run)
        if not len(seconds):
            return Estimate(None, reason=rows.why_none(self.reads()[0]))
        return over_steps(runs, Quantile(seconds, self.quantile, "inverted_cdf"), "steps")


@final
@dataclass(frozen=True)
class StepLatency(Latency):
    """A percentile of the time of a training step, in seconds, the slowest agent's time of each step."""

    name = "step_latency"
    description = "a percentile of the time of a training step"

    def reads(self) -> tuple[str, ...]:
        return ("step_time",)

    def times(self, run: RunTables) -> tuple[Rows, Integers, Floats]:
        rows = Rows(run, "step_time", "train")
        runs, _, seconds = rows.per(rows.step, np.maximum)
        return rows, runs, seconds


@final
@dataclass(frozen=True)
class InferenceLatency(Latency):
    """A percentile of the time of an inference on one batch, in seconds, the slowest agent's time."""

    name = "inference_latency"
    description = "a percentile of the time of an inference"

    def reads(self) -> tuple[str, ...]:
        return (INFERENCE_TIME,)

    def times(self, run: RunTables) -> tuple[Rows, Integers, Floats]:
        rows = Rows(run, INFERENCE_TIME, "test")
        runs, _, seconds = rows.per(rows.step, np.maximum)
        return rows, runs, seconds


@final
class InferenceTime(Metric):
    """Seconds of one inference, from the call to its result; value: the median."""

    name = INFERENCE_TIME
    unit = "s"
    direction = "min"
    kind = "cost"
    aggregation = "largest over ranks, median over calls"
    description = "one inference on one batch"

    def reads(self) -> tuple[str, ...]:
        return (self.name,)

    def estimate(self, run: RunTables) -> Estimate:
        rows = Rows(run, self.name, "test")
        if not len(rows):
            return Estimate(None, reason=rows.why_none(self.name))
        runs, _, seconds = rows.per(rows.step, np.maximum)
        return over_steps(runs, Quantile(seconds), "calls")
