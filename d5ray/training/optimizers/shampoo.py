"""Shampoo: a preconditioner for each dimension of a tensor"""

from dataclasses import dataclass
from typing import Any, final

from d5ray.training.arrays import identity, library_of, zeros_like
from d5ray.training.optimizers.optimizer import Count, Rate, Share, State
from d5ray.training.optimizers.tensorwise import TensorwiseOptimizer


@final
@dataclass(frozen=True)
class Shampoo(TensorwiseOptimizer):
    """Hᵢ ← Hᵢ + G₍ᵢ₎ G₍ᵢ₎ᵀ;  u = g ×₁ H₁^(−1/2k) … ×ₖ Hₖ^(−1/2k);  v ← μ v + u;  w ← w − η v.

    G₍ᵢ₎ is g (k dimensions) unfolded along dimension i, Hᵢ begins with ε (Gupta, Koren, Singer,
    arXiv:1802.09568, with its momentum outside). The roots are computed anew every `period` steps; a
    dimension longer than `longest` has H = 1.
    """

    learning_rate: Rate = 0.1
    momentum: Share = 0.0
    epsilon: Rate = 1e-4
    period: Count = 1
    longest: Count = 1024

    def tensor_state(self, w: Any) -> State:
        factors: list[Any] = []
        for length in w.shape:
            factors.append(self.epsilon * identity(length, w) if length <= self.longest else None)
        return {"velocity": zeros_like(w), "factors": factors, "roots": list(factors)}

    def update_tensor(self, w: Any, gradient: Any, state: State, step: int) -> None:
        u, order = gradient, max(1, gradient.ndim)
        for axis, factor in enumerate(state["factors"]):
            if factor is not None:
                unfolded = _unfold(gradient, axis)
                factor += unfolded @ unfolded.T
                if (step - 1) % self.period == 0:
                    state["roots"][axis] = _power(factor, -1 / (2 * order), self.epsilon)
                u = _along(state["roots"][axis], u, axis)
        velocity = state["velocity"]
        velocity *= self.momentum
        velocity += u
        w -= self.learning_rate * velocity


def _unfold(tensor: Any, axis: int) -> Any:
    """(length of the axis, all others)."""
    return tensor.swapaxes(0, axis).reshape(tensor.shape[axis], -1)


def _along(matrix: Any, tensor: Any, axis: int) -> Any:
    """The tensor whose fibres along the axis are multiplied by the matrix."""
    front = tensor.swapaxes(0, axis)
    return (matrix @ front.reshape(front.shape[0], -1)).reshape(front.shape).swapaxes(0, axis)


def _power(matrix: Any, exponent: float, least: float) -> Any:
    """A positive definite matrix to a power, by its eigenvalues; below `least` is none but by rounding."""
    values, vectors = library_of(matrix).linalg.eigh(matrix)
    return (vectors * values.clip(min=least) ** exponent) @ vectors.T
