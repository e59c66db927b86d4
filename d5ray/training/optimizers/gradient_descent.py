"""Gradient descent: plain, with momentum, with Nesterov momentum"""

from dataclasses import dataclass
from typing import Any, final

from d5ray.training.arrays import add_scaled, scale_and_add, zeros_like
from d5ray.training.optimizers.optimizer import Optimizer, Rate, Share, State


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
