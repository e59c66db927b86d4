"""Muon: momentum, made orthogonal, for matrices; AdamW for the rest"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, final

from d5ray.checks import check_count
from d5ray.training.arrays import norm, zeros_like
from d5ray.training.optimizers.adam import AdamW
from d5ray.training.optimizers.optimizer import Rate, RateOrZero, Share, State
from d5ray.training.optimizers.tensorwise import TensorwiseOptimizer

MOST_ITERATIONS = 1000  # long after which it is as near as it comes
QUINTIC = (3.4445, -4.775, 2.0315)


@final
@dataclass(frozen=True)
class Muon(TensorwiseOptimizer):
    """m ← μ m + (1 − μ) g;  u = (1 − μ) g + μ m;  w ← (1 − η λ) w − η √max(1, rows/columns) UVᵀ, u = U S Vᵀ.

    UVᵀ is neared by `iterations` of Newton and Schulz with the quintic polynomial (Jordan et al., 2024,
    kellerjordan.github.io/posts/muon), as in PyTorch, but in the precision of w. Kernels of convolutions are
    matrices with a row for every channel that goes out. Vectors and single numbers are moved by AdamW with
    `vector_rate`, β = (0.9, 0.999) and the same λ.
    """

    learning_rate: Rate = 0.02
    momentum: Share = 0.95
    weight_decay: RateOrZero = 0.0
    vector_rate: Rate = 0.001
    iterations: Annotated[int, partial(check_count, high=MOST_ITERATIONS)] = 5

    def tensor_state(self, w: Any) -> State:
        return {"mean": zeros_like(w)} if w.ndim > 1 else self._vectors.state(w.reshape(-1))

    def update_tensor(self, w: Any, gradient: Any, state: State, step: int) -> None:
        if w.ndim > 1:
            self._update_matrix(w, gradient, state)
        else:
            self._vectors.step(w.reshape(-1), gradient.reshape(-1), state)

    @property
    def _vectors(self) -> AdamW:
        return AdamW(self.vector_rate, weight_decay=self.weight_decay)

    def _update_matrix(self, w: Any, gradient: Any, state: State) -> None:
        mean = state["mean"]
        mean *= self.momentum
        mean += (1 - self.momentum) * gradient
        u = (1 - self.momentum) * gradient + self.momentum * mean
        matrix = u.reshape(len(w), -1)
        rows, columns = matrix.shape
        w *= 1 - self.learning_rate * self.weight_decay
        rate = self.learning_rate * max(1.0, rows / columns) ** 0.5
        w -= rate * orthogonal(matrix, self.iterations).reshape(w.shape)


def orthogonal(matrix: Any, iterations: int) -> Any:
    """About UVᵀ of a matrix (rows, columns) = U S Vᵀ: singular values come to lie between 0.5 and 1.5."""
    a, b, c = QUINTIC
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    wide = wide / max(norm(wide), 1e-7)
    for _ in range(iterations):
        gram = wide @ wide.T
        wide = a * wide + (b * gram + c * gram @ gram) @ wide
    return wide if matrix.shape[0] <= matrix.shape[1] else wide.T
