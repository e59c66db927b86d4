"""Latencies: the percentiles of the time of a step and of an inference, and the time of an inference"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np

from d5ray.checks import check_number
from d5ray.metrics.criteria import Metric, RunTables
from d5ray.metrics.estimates import STEPS_PER_BLOCK, Floats, Integers, Rows, edges_of, over_blocks, over_runs
from d5ray.metrics.statistics import Estimate, fewest_samples, quantile_interval

INFERENCE_TIME = "inference_time"  # of one call on one batch


@dataclass(frozen=True)
class Latency(Metric, ABC):
    """A percentile of a time: at least this share of all steps takes no longer.

    Consecutive steps resemble each other, so that, as everywhere here, ten of them count as one independent
    sample: the interval has the exact ranks of a tenth of the steps, stretched to all of them. With a
    correlation of 0.6 between neighbours it still holds the truth in at least 95 of 100 cases. It needs ten
    times 36, 72 or 368 steps for p90, p95, p99; with fewer the percentile stands without one. With several
    runs, each a fresh process, one run counts once, by its own percentile.

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
        if np.isnan(seconds).any():
            return Estimate(float("nan"), n=len(seconds), sample_unit="steps", reason="not a number")
        edges = edges_of(runs)
        own = [
            float(np.quantile(seconds[a:b], self.quantile, method="inverted_cdf")) for a, b in pairwise(edges)
        ]
        if len(own) > 1:
            return over_runs(own)
        samples = len(seconds) // STEPS_PER_BLOCK
        unit = f"tens of {len(seconds):,} steps"
        interval = quantile_interval(seconds, self.quantile, per_block=STEPS_PER_BLOCK) if samples else None
        if interval is None:
            needed = fewest_samples(self.quantile) * STEPS_PER_BLOCK
            reason = (
                f"no interval: {len(seconds)} measured steps are too few for p{100 * self.quantile:g}, it "
                f"needs {needed}: run {needed - len(seconds)} more"
            )
            return Estimate(own[0], n=samples, sample_unit=unit, reason=reason)
        return Estimate(own[0], *interval, samples, unit)


@final
@dataclass(frozen=True)
class StepLatency(Latency):
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
    """One inference, from the call to its result; value: the median over blocks of the median within one."""

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
        return over_blocks(runs, len(seconds), lambda block: float(np.median(seconds[block])), "calls")
