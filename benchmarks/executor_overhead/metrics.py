"""Metrics of executors: the time of a whole network's pass over that of the same network written by hand"""

from dataclasses import dataclass
from typing import Final, final

from d5ray.kits.laboratory.metrics.side_by_side import RatioOfSides

EXECUTOR_TIME: Final = "executor_time"
OURS, NATIVE = "d5ray", "by hand"  # the sides
INFERENCE, TRAINING = "inference", "training"  # the passes


@final
@dataclass(frozen=True)
class ExecutorTimeRatio(RatioOfSides, name="executor_time_ratio", recorded=EXECUTOR_TIME):
    """A pass of d5ray's executor over one of the same network written by hand.

    Both are in one process, in turn. contender: framework and network, with the process; work: inference, or
    training, which is the forward pass with the loss, and the backward pass.
    """

    work: str

    sides = (OURS, NATIVE)
    aggregation = "median over passes in turn, median of the log-ratio over pairs of sides in fresh processes"
