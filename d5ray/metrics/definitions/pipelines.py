"""Metrics of networks in stages: the bubble, its formula, and what a stage does in a pass"""

from abc import ABC
from typing import final

from d5ray.metrics.definitions.families import LargestOfAStep, TimeOfAStep, TotalOfAnAgent


class _ShareOfAPass(LargestOfAStep, ABC):
    """A share that the first stage of every replica writes at every step."""

    unit = "1"
    kind = "ratio"


@final
class BubbleShare(_ShareOfAPass):
    """The share of a pipeline's pass in which its stages neither compute nor send, on average."""

    name = "bubble_share"
    description = "the share of a pipeline's pass in which its stages neither compute nor send, on average"


@final
class BubbleFormula(_ShareOfAPass):
    """The bubble share by the schedule's formula, for stages that take equally long."""

    name = "bubble_formula"
    description = "bubble_share by the schedule's formula, for stages that take equally long"


@final
class StageComputeTime(TimeOfAStep):
    """Seconds of the forward and backward passes of a step's micro-batches, on the slowest stage."""

    name = "stage_compute_time"
    description = "forward and backward passes of all micro-batches of a step, of the slowest stage"


@final
class StageSendTime(TimeOfAStep):
    """Seconds in a step in which a pipeline's stage hands tensors to others, copies included."""

    name = "stage_send_time"
    description = "what a stage of a pipeline hands over to others in a step, copies included"


@final
class StageWaitTime(TimeOfAStep):
    """Seconds in a step in which a pipeline's stage waits for tensors of others."""

    name = "stage_wait_time"
    description = "the time in a step in which a stage of a pipeline waits for what others make"


@final
class StageBytesSent(TotalOfAnAgent):
    """Bytes of activations and gradients that an agent sent to other stages in training steps."""

    name = "stage_bytes_sent"
    unit = "B"
    description = "the activations and gradients that an agent sent to other stages in training steps"


@final
class PartBytesSent(TotalOfAnAgent):
    """Bytes that an agent sent for the exchanges of divided operators in training steps."""

    name = "part_bytes_sent"
    unit = "B"
    description = "what an agent sent for the exchanges of divided operators in training steps"


PIPELINES = (
    BubbleShare, BubbleFormula, StageComputeTime, StageSendTime, StageWaitTime, StageBytesSent, PartBytesSent,
)  # fmt: skip
OF_A_REPLICA = (BubbleShare.name, BubbleFormula.name)
OF_A_STAGE = (
    StageComputeTime.name, StageSendTime.name, StageWaitTime.name, StageBytesSent.name, PartBytesSent.name,
)  # fmt: skip
