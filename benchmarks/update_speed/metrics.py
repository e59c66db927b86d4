"""Metrics of update rules: the time of an update and of a whole step over that of torch.optim's own"""

from abc import ABC
from dataclasses import dataclass
from typing import Final, final

from d5ray.kits.laboratory.metrics.side_by_side import RatioOfSides

RULE_TIME: Final = "rule_update_time"  # of one update of all parameters
RULE_STEP_TIME: Final = "rule_step_time"  # of the forward and backward pass and the update
OURS, NATIVE = "d5ray", "torch.optim"  # the sides; torch.optim's foreach and fused are others


@dataclass(frozen=True)
class RatioOfARule(RatioOfSides, ABC):
    """d5ray's side over torch.optim's with its defaults, both in one process in turn.

    contender: the network, with its process; rule: by its class's name.
    """

    rule: str

    sides = (OURS, NATIVE)
    aggregation = (
        "median over repetitions in turn, median of the log-ratio over pairs of sides in fresh processes"
    )


@final
class UpdateTimeRatio(RatioOfARule, name="update_time_ratio", recorded=RULE_TIME):
    """An update of all parameters over torch.optim's."""


@final
class RuleStepTimeRatio(RatioOfARule, name="rule_step_time_ratio", recorded=RULE_STEP_TIME):
    """A training step with this rule over one with torch.optim's."""
