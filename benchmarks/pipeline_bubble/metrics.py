"""The bubble of pipelines that were measured side by side"""

from dataclasses import dataclass
from typing import final

from d5ray.metrics.definitions.pipelines import BubbleShare
from d5ray.metrics.definitions.side_by_side import time_of
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.intervals import Estimate


@final
@dataclass(frozen=True)
class BubbleShareOf(Metric):
    """The share of a contender's passes in which its stages neither compute nor send."""

    contender: str

    name = "bubble_share"
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "median over passes, median over fresh processes"
    description = "the share of a pipeline's pass in which the stages of this contender wait"

    def estimate(self, run: RunTables) -> Estimate:
        return time_of(run, BubbleShare.name, self.contender)
