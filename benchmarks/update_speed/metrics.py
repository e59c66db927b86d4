"""Metrics of update rules: the time of an update and of a whole step over that of torch.optim's own"""

from dataclasses import dataclass
from typing import Final, final

from d5ray.kits.laboratory.metrics.side_by_side import time_ratio
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.intervals import Estimate

RULE_TIME: Final = "rule_update_time"  # of one update of all parameters
RULE_STEP_TIME: Final = "rule_step_time"  # of the forward and backward pass and the update
OURS, NATIVE = "d5ray", "torch.optim"  # the sides; torch.optim's foreach and fused are others
OF_TURNS = "median over repetitions in turn, median of the log-ratio over pairs of sides in fresh processes"


@dataclass(frozen=True)
class RatioOfARule(Metric):
    """d5ray's side over torch.optim's with its defaults, both in one process in turn.

    contender: the network, with its process; rule: by its class's name.
    """

    contender: str
    rule: str

    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = OF_TURNS

    @final
    def ratio(self, run: RunTables, metric: str) -> Estimate:
        """Of the two sides' times by this name."""
        ours, native = (f"{self.contender} {self.rule} {side}" for side in (OURS, NATIVE))
        return time_ratio(run, metric, ours, native)


@final
@dataclass(frozen=True)
class UpdateTimeRatio(RatioOfARule):
    """How many times as long an update on the flat buffer takes as torch.optim's on the tensors."""

    name = "update_time_ratio"
    description = "an update of all parameters over torch.optim's"

    def estimate(self, run: RunTables) -> Estimate:
        return self.ratio(run, RULE_TIME)


@final
@dataclass(frozen=True)
class RuleStepTimeRatio(RatioOfARule):
    """How many times as long a whole training step takes as one written by hand with torch.optim."""

    name = "rule_step_time_ratio"
    description = "a training step with this rule over one with torch.optim's"

    def estimate(self, run: RunTables) -> Estimate:
        return self.ratio(run, RULE_STEP_TIME)
