"""Gradient descent: plain, with momentum, with Nesterov momentum, by the sign of a momentum"""

from dataclasses import dataclass
from typing import Any, final

from d5ray.training.arrays import add_scaled, blend, copy_of, scale_and_add, sign, zeros_like
from d5ray.training.optimizers.optimizer import Optimizer, Rate, RateOrZero, Share, State


@final
@dataclass(frozen=True)
class SGD(Optimizer):
    """x ← x − η g   (Robbins and Monro, doi 10.1214/aoms/1177729586)."""

    elementwise = True
    single_pass = True
    learning_rate: Rate

    def update(self, x: Any, gradient: Any, state: State) -> None:
        add_scaled(x, -self.learning_rate, gradient)


@dataclass(frozen=True)
class WithVelocity(Optimizer):
    """A rule that remembers a velocity."""

    elementwise = True
    learning_rate: Rate
    momentum: Share = 0.9

    def state(self, x: Any) -> State:
        return {"velocity": zeros_like(x)}


@final
@dataclass(frozen=True)
class Momentum(WithVelocity):
    """v ← μ v + g;  x ← x − η v   (Polyak's heavy ball, doi 10.1016/0041-5553(64)90137-5, as in PyTorch)."""

    def update(self, x: Any, gradient: Any, state: State) -> None:
        velocity = state["velocity"]
        scale_and_add(velocity, self.momentum, gradient)
        add_scaled(x, -self.learning_rate, velocity)


@final
@dataclass(frozen=True)
class Nesterov(WithVelocity):
    """v ← μ v + g;  x ← x − η (g + μ v)   (Nesterov momentum: Sutskever et al., PMLR 28(3):1139).

    x is the point where the next gradient is computed, as in PyTorch with nesterov=True.
    """

    def update(self, x: Any, gradient: Any, state: State) -> None:
        velocity = state["velocity"]
        scale_and_add(velocity, self.momentum, gradient)
        add_scaled(x, -self.learning_rate, gradient)
        add_scaled(x, -self.learning_rate * self.momentum, velocity)


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
