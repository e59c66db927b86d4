"""Adafactor: Adam's second moment of a matrix in the memory of a row and a column"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, final

from d5ray.checks import check_number
from d5ray.training.arrays import add_scaled, blend, norm, sqrt, zeros_like
from d5ray.training.optimizers.optimizer import Rate, RateOrZero, State
from d5ray.training.optimizers.tensorwise import TensorwiseOptimizer

DECAYS: Final = partial(check_number, low=-1.0, low_included=True, high=0.0)
TINY = 1e-30  # so that a gradient of 0 moves nothing


@final
@dataclass(frozen=True)
class Adafactor(TensorwiseOptimizer):
    """R ← β R + (1 − β) rows of g²;  C likewise of columns;  V = R C / mean(R);  u = g / √V
    w ← w − max(ε, rms(w)) min(η, 1/√t) u / max(1, rms(u) / d).

    β = 1 − t^c, c = `decay_power`; V is g² itself, averaged alike, where w has one dimension; of more than
    two the last two are factored (Shazeer and Stern, arXiv:1804.04235). As in PyTorch, but for its first ε:
    there it is the precision of the type, in float32 more than the squares of small gradients; here 1e-30, as
    in the paper.
    """

    learning_rate: Rate = 0.01
    decay_power: Annotated[float, DECAYS] = -0.8
    epsilon: Rate = 1e-3
    threshold: Rate = 1.0
    weight_decay: RateOrZero = 0.0

    def tensor_state(self, w: Any) -> State:
        if w.ndim > 1:
            return {"rows": zeros_like(w[..., :1]), "columns": zeros_like(w[..., :1, :])}
        return {"squares": zeros_like(w)}

    def update_tensor(self, w: Any, gradient: Any, state: State, step: int) -> None:
        fresh = step**self.decay_power  # 1 − β
        alpha = max(self.epsilon, _rms(w)) * min(self.learning_rate, step**-0.5)
        if self.weight_decay:
            w *= 1 - self.learning_rate * self.weight_decay
        squared = gradient * gradient
        if w.ndim > 1:
            rows, columns = state["rows"], state["columns"]
            blend(rows, fresh, squared.mean(-1)[..., None])
            blend(columns, fresh, squared.mean(-2)[..., None, :])
            deviation = sqrt(rows / (rows.mean(-2)[..., None, :] + TINY)) * sqrt(columns)
        else:
            blend(state["squares"], fresh, squared)
            deviation = sqrt(state["squares"])
        deviation += TINY
        u = gradient / deviation
        add_scaled(w, -alpha / max(1.0, _rms(u) / self.threshold), u)


def _rms(array: Any) -> float:
    """The root of the mean square."""
    elements = 1
    for length in array.shape:
        elements *= length
    return norm(array) / math.sqrt(max(1, elements))
