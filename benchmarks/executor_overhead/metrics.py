"""Metrics of executors: the time of a whole network's pass over that of the same network written by hand"""

from dataclasses import dataclass
from typing import Final, final

from d5ray.kits.laboratory.metrics.side_by_side import time_ratio
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.intervals import Estimate

EXECUTOR_TIME: Final = "executor_time"
OURS, NATIVE = "d5ray", "by hand"  # the sides
INFERENCE, TRAINING = "inference", "training"  # the passes


@final
@dataclass(frozen=True)
class ExecutorTimeRatio(Metric):
    """How many times as long a pass of d5ray's executor takes as one of the model written by hand.

    Both are in one process, in turn. contender: framework and network, with the process; work: inference, or
    training, which is the forward pass with the loss, and the backward pass.
    """

    contender: str
    work: str

    name = "executor_time_ratio"
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "median over passes in turn, median of the log-ratio over pairs of sides in fresh processes"
    description = "a pass of d5ray's executor over one of the same network written by hand"

    def estimate(self, run: RunTables) -> Estimate:
        ours, native = (f"{self.contender} {self.work} {side}" for side in (OURS, NATIVE))
        return time_ratio(run, EXECUTOR_TIME, ours, native)
