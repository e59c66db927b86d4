"""One rate for each layer, by the ratio of its weights to its step: LARS and LAMB"""

from dataclasses import dataclass
from typing import Any, final

from d5ray.training.arrays import add_scaled, add_scaled_product, blend, norm, sqrt, zeros_like
from d5ray.training.optimizers.optimizer import Rate, RateOrZero, Share, State
from d5ray.training.optimizers.tensorwise import TensorwiseOptimizer


@final
@dataclass(frozen=True)
class LARS(TensorwiseOptimizer):
    """v ← μ v + η ρ (g + λ w);  w ← w − v;  ρ = `trust` ‖w‖ / (‖g‖ + λ ‖w‖).

    (You, Gitman, Ginsburg, arXiv:1708.03888.) Tensors of one dimension, such as biases, have ρ = 1 and no
    decay, as in practice; so has a tensor that is zero or has no gradient.
    """

    learning_rate: Rate
    momentum: Share = 0.9
    weight_decay: RateOrZero = 0.0
    trust: Rate = 0.001

    def tensor_state(self, w: Any) -> State:
        return {"velocity": zeros_like(w)}

    def update_tensor(self, w: Any, gradient: Any, state: State, step: int) -> None:
        velocity, ratio, decay = state["velocity"], 1.0, 0.0
        if w.ndim > 1:
            decay, weights, gradients = self.weight_decay, norm(w), norm(gradient)
            if weights > 0 and gradients > 0:
                ratio = self.trust * weights / (gradients + decay * weights)
        velocity *= self.momentum
        velocity += self.learning_rate * ratio * (gradient + decay * w)
        w -= velocity


@final
@dataclass(frozen=True)
class LAMB(TensorwiseOptimizer):
    """r = m̂ / (√v̂ + ε) + λ w;  w ← w − η ‖w‖ / ‖r‖ r.

    m̂ and v̂ are Adam's (You et al., arXiv:1904.00962, with φ the identity). Tensors of one dimension, such as
    biases, have the ratio 1 and no decay, as in practice; so has a tensor that is zero.
    """

    learning_rate: Rate = 0.001
    beta1: Share = 0.9
    beta2: Share = 0.999
    epsilon: Rate = 1e-6
    weight_decay: RateOrZero = 0.01

    def tensor_state(self, w: Any) -> State:
        return {"mean": zeros_like(w), "squares": zeros_like(w)}

    def update_tensor(self, w: Any, gradient: Any, state: State, step: int) -> None:
        mean, squares = state["mean"], state["squares"]
        blend(mean, 1 - self.beta1, gradient)
        squares *= self.beta2
        add_scaled_product(squares, 1 - self.beta2, gradient, gradient)
        unbiased = mean / (1 - self.beta1**step)
        r = unbiased / (sqrt(squares / (1 - self.beta2**step)) + self.epsilon)
        ratio = 1.0
        if w.ndim > 1:
            r += self.weight_decay * w
            weights, length = norm(w), norm(r)
            if weights > 0 and length > 0:
                ratio = weights / length
        add_scaled(w, -self.learning_rate * ratio, r)
