"""Rates of every coordinate's own, by the size of its gradients: AdaGrad and RMSProp"""

from dataclasses import dataclass
from typing import Any, final

from d5ray.training.arrays import add_scaled_product, add_scaled_quotient, sqrt, zeros_like
from d5ray.training.optimizers.optimizer import Optimizer, Rate, Share, State


@final
@dataclass(frozen=True)
class AdaGrad(Optimizer):
    """s ← s + g²;  x ← x − η g / (√s + ε)   (Duchi, Hazan, Singer, JMLR 12:2121)."""

    elementwise = True
    learning_rate: Rate = 0.01
    epsilon: Rate = 1e-10

    def state(self, x: Any) -> State:
        return {"squares": zeros_like(x)}

    def update(self, x: Any, gradient: Any, state: State) -> None:
        squares = state["squares"]
        add_scaled_product(squares, 1.0, gradient, gradient)
        deviation = sqrt(squares)
        deviation += self.epsilon
        add_scaled_quotient(x, -self.learning_rate, gradient, deviation)


@final
@dataclass(frozen=True)
class RMSProp(Optimizer):
    """s ← ρ s + (1 − ρ) g²;  x ← x − η g / (√s + ε)   (Tieleman and Hinton, Coursera 2012, lecture 6.5)."""

    elementwise = True
    learning_rate: Rate = 0.01
    decay: Share = 0.99
    epsilon: Rate = 1e-8

    def state(self, x: Any) -> State:
        return {"squares": zeros_like(x)}

    def update(self, x: Any, gradient: Any, state: State) -> None:
        squares = state["squares"]
        squares *= self.decay
        add_scaled_product(squares, 1 - self.decay, gradient, gradient)
        deviation = sqrt(squares)
        deviation += self.epsilon
        add_scaled_quotient(x, -self.learning_rate, gradient, deviation)
