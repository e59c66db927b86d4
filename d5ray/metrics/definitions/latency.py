"""Latencies: the percentiles of the time of a step and of an inference, and the time of an inference"""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from d5ray.checks import check_number
from d5ray.metrics.definitions.families import TimeOfAStep
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.estimates import Rows, over_steps
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

    measured: ClassVar[str]
    phase: ClassVar[str]
    unit = "s"
    direction = "min"
    kind = "cost"
    aggregation = "largest over ranks, percentile over steps"

    def __post_init__(self) -> None:
        check_number("quantile", self.quantile, low=0.0, low_included=False, high=1.0)

    @final
    def reads(self) -> tuple[str, ...]:
        return (self.measured,)

    @final
    def estimate(self, run: RunTables) -> Estimate:
        rows = Rows(run, self.measured, self.phase)
        if not len(rows):
            return Estimate(None, reason=rows.why_none(self.measured))
        runs, _, seconds = rows.per(rows.step, np.maximum)
        return over_steps(runs, Quantile(seconds, self.quantile, "inverted_cdf"), "steps")


@final
class StepLatency(Latency, name="step_latency", measured="step_time", phase="train"):
    """A percentile of the time of a training step."""


@final
class InferenceLatency(Latency, name="inference_latency", measured=INFERENCE_TIME, phase="test"):
    """A percentile of the time of an inference."""


@final
class InferenceTime(TimeOfAStep, name=INFERENCE_TIME, phase="test", counted="calls"):
    """One inference on one batch."""

    aggregation = "largest over ranks, median over calls"
