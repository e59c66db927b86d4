"""Adam and its family: both moments of the gradient, freed of the bias with which they start"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, final

from d5ray.training.arrays import (
    add_scaled_product,
    add_scaled_quotient,
    blend,
    raise_to,
    sqrt,
    zeros_like,
)
from d5ray.training.optimizers.optimizer import STEPS, Optimizer, Rate, RateOrZero, Share, State


@dataclass(frozen=True)
class Betas(Optimizer):
    """The settings of Adam and its family: how quickly each moment forgets, and ε."""

    elementwise = True
    learning_rate: Rate = 0.001
    beta1: Share = 0.9
    beta2: Share = 0.999
    epsilon: Rate = 1e-8

    @final
    def rate(self, state: State) -> float:
        """η / (1 − β₁ᵗ)."""
        steps: int = state[STEPS]
        return float(self.learning_rate / (1 - self.beta1**steps))


@dataclass(frozen=True)
class Moments(Betas):
    """m ← β₁ m + (1 − β₁) g;  v ← β₂ v + (1 − β₂) g²;  then x moves by what both say.

    m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ) at step t, from 1. ε stands outside the root.
    """

    def state(self, x: Any) -> State:
        return {STEPS: 0, "mean": zeros_like(x), "squares": zeros_like(x)}

    @final
    def update(self, x: Any, gradient: Any, state: State) -> None:
        mean, squares = state["mean"], state["squares"]
        blend(mean, 1 - self.beta1, gradient)
        squares *= self.beta2
        add_scaled_product(squares, 1 - self.beta2, gradient, gradient)
        self.move(x, gradient, state)

    @abstractmethod
    def move(self, x: Any, gradient: Any, state: State) -> None:
        """Move x by the moments."""

    @final
    def deviation(self, squares: Any, state: State) -> Any:
        """The divisor √v̂ + ε of the step."""
        root = sqrt(squares)
        root *= (1 - self.beta2 ** state[STEPS]) ** -0.5
        root += self.epsilon
        return root


@final
@dataclass(frozen=True)
class Adam(Moments):
    """x ← x − η m̂ / (√v̂ + ε)   (Kingma and Ba, arXiv:1412.6980)."""

    def move(self, x: Any, gradient: Any, state: State) -> None:
        deviation = self.deviation(state["squares"], state)
        add_scaled_quotient(x, -self.rate(state), state["mean"], deviation)


@final
@dataclass(frozen=True)
class AdamW(Moments):
    """x ← x − η λ x;  then as Adam   (Loshchilov and Hutter, arXiv:1711.05101)."""

    weight_decay: RateOrZero = 0.01

    def move(self, x: Any, gradient: Any, state: State) -> None:
        x *= 1 - self.learning_rate * self.weight_decay
        deviation = self.deviation(state["squares"], state)
        add_scaled_quotient(x, -self.rate(state), state["mean"], deviation)


@final
@dataclass(frozen=True)
class AMSGrad(Moments):
    """u ← max(u, v);  x ← x − η m̂ / (√û + ε), û = u / (1 − β₂ᵗ)   (Reddi, Kale, Kumar, arXiv:1904.09237).

    The bias is corrected as PyTorch does it; the paper leaves it.
    """

    def state(self, x: Any) -> State:
        return super().state(x) | {"largest": zeros_like(x)}

    def move(self, x: Any, gradient: Any, state: State) -> None:
        largest = state["largest"]
        raise_to(largest, state["squares"])
        add_scaled_quotient(x, -self.rate(state), state["mean"], self.deviation(largest, state))


@final
@dataclass(frozen=True)
class NAdam(Moments):
    """x ← x − η ( (1 − μₜ) g / (1 − Πₜ) + μₜ₊₁ m / (1 − Πₜ μₜ₊₁) ) / (√v̂ + ε)   (Dozat, ICLR workshop 2016).

    μₜ = β₁ (1 − ½ 0.96^(t ψ)), ψ = `momentum_decay`, and Πₜ is the product of μ₁ to μₜ.
    """

    learning_rate: Rate = 0.002
    momentum_decay: RateOrZero = 0.004

    def state(self, x: Any) -> State:
        return super().state(x) | {"product": 1.0}

    def advance(self, state: State) -> None:
        super().advance(state)
        state["product"] *= self._mu(state[STEPS])

    def move(self, x: Any, gradient: Any, state: State) -> None:
        mu, after, product = self._mu(state[STEPS]), self._mu(state[STEPS] + 1), state["product"]
        deviation = self.deviation(state["squares"], state)
        add_scaled_quotient(x, -self.learning_rate * (1 - mu) / (1 - product), gradient, deviation)
        ahead = self.learning_rate * after / (1 - product * after)
        add_scaled_quotient(x, -ahead, state["mean"], deviation)

    def _mu(self, step: int) -> float:
        return float(self.beta1 * (1 - 0.5 * 0.96 ** (step * self.momentum_decay)))


@final
@dataclass(frozen=True)
class AdaMax(Betas):
    """m ← β₁ m + (1 − β₁) g;  u ← max(β₂ u, |g| + ε);  x ← x − η / (1 − β₁ᵗ) m / u.

    (Kingma and Ba, arXiv:1412.6980, section 7.1; ε as in PyTorch, so that u is never 0.)
    """

    learning_rate: Rate = 0.002

    def state(self, x: Any) -> State:
        return {STEPS: 0, "mean": zeros_like(x), "largest": zeros_like(x)}

    def update(self, x: Any, gradient: Any, state: State) -> None:
        mean, largest = state["mean"], state["largest"]
        blend(mean, 1 - self.beta1, gradient)
        largest *= self.beta2
        size = abs(gradient)
        size += self.epsilon
        raise_to(largest, size)
        add_scaled_quotient(x, -self.rate(state), mean, largest)
