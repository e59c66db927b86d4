"""Metrics of networks in stages: the bubble, its formula, and what a stage does in a pass"""

from abc import ABC
from typing import final

from d5ray.metrics.definitions.families import LargestOfAStep, TimeOfAStep, TotalOfAnAgent


class _ShareOfAPass(LargestOfAStep, ABC):
    """A share that the first stage of every replica writes at every step."""

    unit = "1"
    kind = "ratio"


@final
class BubbleShare(_ShareOfAPass, name="bubble_share"):
    """The share of a pipeline's pass in which its stages neither compute nor send, on average."""


@final
class BubbleFormula(_ShareOfAPass, name="bubble_formula"):
    """The bubble share by the schedule's formula, for stages that take equally long."""


@final
class StageComputeTime(TimeOfAStep, name="stage_compute_time"):
    """Forward and backward passes of all micro-batches of a step, of the slowest stage."""


@final
class StageSendTime(TimeOfAStep, name="stage_send_time"):
    """The time in which a stage of a pipeline hands tensors to others in a step, copies included."""


@final
class StageWaitTime(TimeOfAStep, name="stage_wait_time"):
    """The time in a step in which a stage of a pipeline waits for what others make."""


@final
class StageBytesSent(TotalOfAnAgent, name="stage_bytes_sent", unit="B"):
    """The activations and gradients that an agent sent to other stages in training steps."""


@final
class PartBytesSent(TotalOfAnAgent, name="part_bytes_sent", unit="B"):
    """The bytes that an agent sent for the exchanges of divided operators in training steps."""
