"""Rules of d5ray, and beside each the class of torch.optim that does the same"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from d5ray.training.optimizers.optimizer import Optimizer

HASHED_AS = "d5ray.recipes.rule_speeds"  # where the first runs knew it


@final
@dataclass(frozen=True)
class RulePair:
    """A rule of d5ray, the class of torch.optim that does the same, and its settings."""

    rule: Optimizer
    native: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    HASHED_AS = "Peers"

    @property
    def name(self) -> str:
        return type(self.rule).__name__
