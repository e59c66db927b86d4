"""AdaMax: Adam with the largest gradient in place of the second moment"""

from dataclasses import dataclass
from typing import Any, final

from d5ray.checks import check_rate, check_share
from d5ray.training.arrays import maximum, zeros_like
from d5ray.training.optimizers.optimizer import STEPS, Optimizer, State


@final
@dataclass(frozen=True)
class AdaMax(Optimizer):
    """m ← β₁ m + (1 − β₁) g;  u ← max(β₂ u, |g| + ε);  x ← x − η / (1 − β₁ᵗ) m / u

    (Kingma and Ba, arXiv:1412.6980, section 7.1; ε as in PyTorch, so that u is never 0.)
    """

    elementwise = True
    learning_rate: float = 0.002
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        check_rate("learning_rate", self.learning_rate)
        check_share("beta1", self.beta1)
        check_share("beta2", self.beta2)
        check_rate("epsilon", self.epsilon)

    def state(self, x: Any) -> State:
        return {STEPS: 0, "mean": zeros_like(x), "largest": zeros_like(x)}

    def update(self, x: Any, gradient: Any, state: State) -> None:
        mean, largest = state["mean"], state["largest"]
        mean *= self.beta1
        mean += (1 - self.beta1) * gradient
        largest *= self.beta2
        largest[...] = maximum(largest, abs(gradient) + self.epsilon)
        x -= self.learning_rate / (1 - self.beta1 ** state[STEPS]) * mean / largest
