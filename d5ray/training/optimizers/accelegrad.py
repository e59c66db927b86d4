"""AcceleGrad: acceleration that needs not know how smooth the loss is"""

from dataclasses import dataclass
from typing import Any, final

from d5ray.training.arrays import copy_of, dot
from d5ray.training.optimizers.optimizer import STEPS, Optimizer, Rate, State


@final
@dataclass(frozen=True)
class AcceleGrad(Optimizer):
    """x = τ z + (1 − τ) y;  z ← z − α η g(x);  y ← x − η g(x);  η = 2 D / √(G² + Σ α² ‖g‖²).

    τ = 1 / α, α = max(1, (t + 1) / 4) at step t from 0, and the sum goes over all steps so far (Levy,
    Yurtsever, Cevher, arXiv:1809.02864, without the projection). D = `diameter` bounds the way to the
    minimum, G = `gradient_bound` the gradients; `learning_rate` multiplies η.
    """

    whole = True
    learning_rate: Rate = 1.0
    diameter: Rate = 1.0
    gradient_bound: Rate = 1.0

    def state(self, x: Any) -> State:
        return {STEPS: 0, "squares": 0.0, "y": copy_of(x), "z": copy_of(x)}

    def update(self, x: Any, gradient: Any, state: State) -> None:
        alpha, y, z = _alpha(state[STEPS] - 1), state["y"], state["z"]
        state["squares"] += alpha**2 * dot(gradient, gradient)
        eta = self.learning_rate * 2 * self.diameter / (self.gradient_bound**2 + state["squares"]) ** 0.5
        z -= alpha * eta * gradient
        y[...] = x - eta * gradient
        tau = 1 / _alpha(state[STEPS])
        x[...] = tau * z + (1 - tau) * y


def _alpha(step: int) -> float:
    return max(1.0, (step + 1) / 4)
