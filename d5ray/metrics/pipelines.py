"""Metrics of networks in stages: the bubble, its formula, and what a stage does in a pass"""

from abc import ABC
from typing import final

import numpy as np

from d5ray.metrics.criteria import Metric, RunTables
from d5ray.metrics.estimates import Rows, over_blocks
from d5ray.metrics.families import TimeOfAStep
from d5ray.metrics.statistics import Estimate


class _ShareOfAPass(Metric, ABC):
    """A share that the first stage of every replica writes at every step: the largest over the replicas."""

    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "largest over replicas, median over steps"

    def reads(self) -> tuple[str, ...]:
        return (self.name,)

    def estimate(self, run: RunTables) -> Estimate:
        rows = Rows(run, self.name, "train")
        if not len(rows):
            return Estimate(None, reason=rows.why_none(self.name))
        runs, _, shares = rows.per(rows.step, np.maximum)
        return over_blocks(runs, len(shares), lambda block: float(np.median(shares[block])), "steps")


@final
class BubbleShare(_ShareOfAPass):
    name = "bubble_share"
    description = "the share of a pipeline's pass in which its stages neither compute nor send, on average"


@final
class BubbleFormula(_ShareOfAPass):
    name = "bubble_formula"
    description = "bubble_share by the schedule's formula, for stages that take equally long"


@final
class StageComputeTime(TimeOfAStep):
    name = "stage_compute_time"
    description = "forward and backward passes of all micro-batches of a step, of the slowest stage"


@final
class StageSendTime(TimeOfAStep):
    name = "stage_send_time"
    description = "what a stage of a pipeline hands over to others in a step, copies included"


@final
class StageWaitTime(TimeOfAStep):
    name = "stage_wait_time"
    description = "the time in a step in which a stage of a pipeline waits for what others make"


PIPELINES = (BubbleShare, BubbleFormula, StageComputeTime, StageSendTime, StageWaitTime)
OF_A_REPLICA = (BubbleShare.name, BubbleFormula.name)
OF_A_STAGE = (StageComputeTime.name, StageSendTime.name, StageWaitTime.name)
