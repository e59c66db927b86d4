"""Problems that update rules are tried on: functions with gradients in float64, as tensors of a model"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import numpy.typing as npt

from d5ray.networks.executors.flat_buffers import Slot
from d5ray.training.optimizers.optimizer import Slots

Vector = npt.NDArray[np.float64]


class ValidationProblem(ABC):
    """A function of flat parameters x (n,) in float64, whose tensors lie at `slots`."""

    slots: Slots

    @property
    @abstractmethod
    def start(self) -> Vector:
        """The parameters at which a trajectory begins, a new array (n,)."""

    @abstractmethod
    def value(self, x: Vector) -> float:
        """The value f(x)."""

    @abstractmethod
    def gradient(self, x: Vector) -> Vector:
        """∇f(x), a new array (n,)."""


@final
@dataclass(frozen=True)
class Quadratic(ValidationProblem):
    """f(x) = ½ Σ a_i x_i², a from 1 / condition to 1, as a matrix, a vector and a number."""

    condition: float = 100.0
    slots: Slots = (Slot("matrix", 0, (4, 3)), Slot("vector", 12, (3,)), Slot("number", 15, (1,)))

    @property
    def curvatures(self) -> Vector:
        """a, in an order in which neighbours differ."""
        size = sum(slot.size for slot in self.slots)
        return np.logspace(0, -math.log10(self.condition), size)[np.random.default_rng(5).permutation(size)]

    @property
    def start(self) -> Vector:
        signs = np.random.default_rng(6).choice([-1.0, 1.0], len(self.curvatures))
        return signs * np.linspace(0.5, 2.0, len(signs))

    def value(self, x: Vector) -> float:
        return float(0.5 * (self.curvatures * x * x).sum())

    def gradient(self, x: Vector) -> Vector:
        return self.curvatures * x


@final
@dataclass(frozen=True)
class SmallNetwork(ValidationProblem):
    """The cross entropy of a network of two layers, tanh between them, on 30 random samples of 3 classes."""

    features: int = 5
    hidden: int = 4
    classes: int = 3

    @property
    def slots(self) -> Slots:  # type: ignore[override]
        """The places of w1, b1, w2 and b2 in the vector of all parameters."""
        first, second = (self.hidden, self.features), (self.classes, self.hidden)
        found: list[Slot] = []
        for name, shape in (("w1", first), ("b1", first[:1]), ("w2", second), ("b2", second[:1])):
            found.append(Slot(name, sum(slot.size for slot in found), shape))
        return tuple(found)

    @property
    def start(self) -> Vector:
        return np.random.default_rng(7).standard_normal(sum(slot.size for slot in self.slots)) * 0.5

    @property
    def samples(self) -> tuple[Vector, npt.NDArray[np.int64]]:
        """The samples (30, features) and their labels (30,)."""
        rng = np.random.default_rng(8)
        inputs = rng.standard_normal((30, self.features))
        return inputs, (inputs @ rng.standard_normal((self.features, self.classes))).argmax(axis=1)

    def value(self, x: Vector) -> float:
        _, scores, labels = self._forward(x)
        shifted = scores - scores.max(axis=1, keepdims=True)
        logarithms = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return float(-logarithms[np.arange(len(labels)), labels].mean())

    def gradient(self, x: Vector) -> Vector:
        inner, scores, labels = self._forward(x)
        w2 = self._tensors(x)[2]
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(labels)), labels] -= 1
        outer = shares / len(labels)  # (30, classes)
        within = (outer @ w2) * (1 - inner**2)  # (30, hidden)
        parts = within.T @ self.samples[0], within.sum(axis=0), outer.T @ inner, outer.sum(axis=0)
        return np.concatenate([part.ravel() for part in parts])

    def _forward(self, x: Vector) -> tuple[Vector, Vector, npt.NDArray[np.int64]]:
        w1, b1, w2, b2 = self._tensors(x)
        inputs, labels = self.samples
        inner = np.tanh(inputs @ w1.T + b1)
        return inner, inner @ w2.T + b2, labels

    def _tensors(self, x: Vector) -> list[Vector]:
        return [x[slot.offset : slot.offset + slot.size].reshape(slot.shape) for slot in self.slots]


PROBLEMS: Final[tuple[ValidationProblem, ...]] = (Quadratic(), SmallNetwork())
