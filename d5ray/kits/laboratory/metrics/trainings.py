"""Metrics of whole trainings that are compared: how well they learn, in how many updates, in what time"""

from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.kits.laboratory.metrics.side_by_side import (
    RatioOfPairs,
    times_by_pair,
    too_few,
    why_not_measured,
)
from d5ray.kits.laboratory.metrics.simulations import TRAINING_TIME
from d5ray.metrics.definitions.catalogue import TestAccuracy
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.intervals import Estimate, median_interval

UPDATES = "updates"  # of the parameters, in a whole training


@final
@dataclass(frozen=True)
class AccuracyDifference(Metric):
    """The final test accuracy of `ours` less that of `base`, both with the same seed in each pair."""

    ours: str
    base: str

    name = "accuracy_difference"
    unit = "1"
    direction = "max"
    kind = "quality"
    aggregation = "median over pairs of trainings with equal seeds"
    description = "the final test accuracy less that of the base"

    def estimate(self, run: RunTables) -> Estimate:
        above, below = (times_by_pair(run, TestAccuracy.name, name) for name in (self.ours, self.base))
        pairs = sorted(above.keys() & below.keys())
        if not pairs:
            return Estimate(None, reason=why_not_measured(run, self.base if above else self.ours))
        differences = np.array([above[pair] - below[pair] for pair in pairs])
        interval, median = median_interval(differences), float(np.median(differences))
        if interval is None:
            return Estimate(median, n=len(pairs), sample_unit="pairs", reason=too_few(len(pairs), "pairs"))
        return Estimate(median, *interval, len(pairs), "pairs of equal seeds")


@final
class UpdatesRatio(RatioOfPairs, name="updates_ratio", recorded=UPDATES):
    """Updates of the parameters over those of the base."""

    aggregation = "median over pairs of trainings"


@final
class TrainingTimeRatio(RatioOfPairs, name="training_time_ratio", recorded=TRAINING_TIME):
    """The time of a whole training over that of the base."""
