"""Lion: the sign of a momentum"""

from dataclasses import dataclass
from typing import Any, final

from d5ray.training.arrays import add_scaled, blend, copy_of, sign, zeros_like
from d5ray.training.optimizers.optimizer import Optimizer, Rate, RateOrZero, Share, State


@final
@dataclass(frozen=True)
class Lion(Optimizer):
    """x ← x − η (sign(β₁ m + (1 − β₁) g) + λ x);  m ← β₂ m + (1 − β₂) g   (Chen et al., arXiv:2302.06675)."""

    elementwise = True
    learning_rate: Rate = 1e-4
    beta1: Share = 0.9
    beta2: Share = 0.99
    weight_decay: RateOrZero = 0.0

    def state(self, x: Any) -> State:
        return {"mean": zeros_like(x)}

    def update(self, x: Any, gradient: Any, state: State) -> None:
        mean = state["mean"]
        direction = copy_of(mean)
        blend(direction, 1 - self.beta1, gradient)
        if self.weight_decay:
            x *= 1 - self.learning_rate * self.weight_decay
        add_scaled(x, -self.learning_rate, sign(direction))
        blend(mean, 1 - self.beta2, gradient)
