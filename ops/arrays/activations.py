"""Activations: Relu, Gelu, Sigmoid, Clip and their family"""

import math
from collections.abc import Mapping
from typing import Any

from d5ray.operators.array_operator import Array, ArrayOperator
from d5ray.ops.arrays.clip import Clip
from d5ray.ops.arrays.formula import BroadcastFormula, Formula
from d5ray.ops.arrays.special import normal_distribution

# The derivatives at a kink are those that PyTorch takes: 0 for Relu at 0.


def sigmoid(xp: Any, x: Array) -> Array:
    """1 / (1 + exp(−x)), without an overflow for large −x."""
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1, small) / (1 + small)


def softplus(xp: Any, x: Array) -> Array:
    """ln(1 + exp(x)), without an overflow for large x."""
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


def exponential_below(xp: Any, x: Array, alpha: float, gamma: float = 1.0) -> Array:
    """γ x above 0, γ α (exp(x) − 1) below."""
    return gamma * xp.where(x > 0, x, alpha * xp.expm1(xp.minimum(x, 0)))


def exponential_slope(xp: Any, x: Array, y: Array, alpha: float, gamma: float = 1.0) -> Array:
    """The derivative of `exponential_below`: γ above 0, γ α exp(x) below."""
    return gamma * xp.where(x > 0, 1, alpha * xp.exp(xp.minimum(x, 0)))


def celu(xp: Any, x: Array, alpha: float) -> Array:
    """max(x, 0) + α (exp(min(x, 0) / α) − 1)   (Barron, arXiv:1704.07483)."""
    return xp.maximum(x, 0) + alpha * xp.expm1(xp.minimum(x, 0) / alpha)


def gelu(xp: Any, x: Array, approximate: str) -> Array:
    """x Φ(x)   (Hendrycks and Gimpel, arXiv:1606.08415), or with Φ approximated by a tanh."""
    if approximate == "tanh":
        return 0.5 * x * (1 + xp.tanh(_CUBIC * (x + 0.044715 * x**3)))
    return x * normal_distribution(xp, x)


def gelu_slope(xp: Any, x: Array, y: Array, approximate: str) -> Array:
    """Φ(x) + x φ(x), or the derivative of the approximation."""
    if approximate == "tanh":
        bent = xp.tanh(_CUBIC * (x + 0.044715 * x**3))
        inner = _CUBIC * (1 + 3 * 0.044715 * x * x)
        return 0.5 * (1 + bent) + 0.5 * x * (1 - bent * bent) * inner
    return normal_distribution(xp, x) + x * xp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


_CUBIC = math.sqrt(2 / math.pi)


def mish_slope(xp: Any, x: Array, y: Array) -> Array:
    """The derivative of x tanh(softplus x)   (Misra, arXiv:1908.08681)."""
    bent = xp.tanh(softplus(xp, x))
    return bent + x * (1 - bent * bent) * sigmoid(xp, x)


def swish_slope(xp: Any, x: Array, y: Array, alpha: float) -> Array:
    """The derivative of x σ(α x)   (Ramachandran, Zoph and Le, arXiv:1710.05941)."""
    gate = sigmoid(xp, alpha * x)
    return gate + alpha * x * gate * (1 - gate)


def shrink(xp: Any, x: Array, lambd: float, bias: float) -> Array:
    """x + bias below −λ, x − bias above λ, and 0 between them."""
    return xp.where(x < -lambd, x + bias, xp.where(x > lambd, x - bias, 0))


def prelu_slopes(xp: Any, dz: Array, x: Array, slope: Array, z: Array) -> tuple[Array, Array]:
    """The gradients with respect to x and to the slope, from dz, that of the output."""
    return xp.where(x > 0, dz, slope * dz), xp.where(x < 0, x * dz, 0)


OPERATORS: Mapping[str, ArrayOperator] = {
    "Celu": Formula(
        celu, lambda xp, x, y, alpha: xp.where(x > 0, 1, xp.exp(xp.minimum(x, 0) / alpha)), {"alpha": 1.0}
    ),
    "Clip": Clip(),
    "Elu": Formula(exponential_below, exponential_slope, {"alpha": 1.0}),
    "Gelu": Formula(gelu, gelu_slope, {"approximate": "none"}),
    "HardSigmoid": Formula(
        lambda xp, x, alpha, beta: xp.clip(alpha * x + beta, 0, 1),
        lambda xp, x, y, alpha, beta: alpha * (xp.abs(alpha * x + beta - 0.5) < 0.5),
        {"alpha": 0.2, "beta": 0.5},
    ),
    "HardSwish": Formula(
        lambda xp, x: x * xp.clip(x / 6 + 0.5, 0, 1),
        lambda xp, x, y: xp.where(x <= -3, 0, xp.where(x >= 3, 1, x / 3 + 0.5)),
    ),
    "LeakyRelu": Formula(
        lambda xp, x, alpha: xp.where(x < 0, alpha * x, x),
        lambda xp, x, y, alpha: xp.where(x > 0, 1, alpha),
        {"alpha": 0.01},
    ),
    "Mish": Formula(lambda xp, x: x * xp.tanh(softplus(xp, x)), mish_slope),
    "PRelu": BroadcastFormula(lambda xp, x, slope: xp.where(x < 0, slope * x, x), prelu_slopes),
    "Relu": Formula(lambda xp, x: xp.maximum(x, 0), lambda xp, x, y: x > 0),
    "Selu": Formula(
        exponential_below,
        exponential_slope,
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    ),
    "Shrink": Formula(shrink, lambda xp, x, y, lambd, bias: xp.abs(x) > lambd, {"lambd": 0.5, "bias": 0.0}),
    "Sigmoid": Formula(sigmoid, lambda xp, x, y: y * (1 - y)),
    "Softplus": Formula(softplus, lambda xp, x, y: sigmoid(xp, x)),
    "Softsign": Formula(lambda xp, x: x / (1 + xp.abs(x)), lambda xp, x, y: (1 + xp.abs(x)) ** -2.0),
    "Swish": Formula(lambda xp, x, alpha: x * sigmoid(xp, alpha * x), swish_slope, {"alpha": 1.0}),
    "Tanh": Formula(lambda xp, x: xp.tanh(x), lambda xp, x, y: 1 - y * y),
    "ThresholdedRelu": Formula(
        lambda xp, x, alpha: xp.where(x > alpha, x, 0), lambda xp, x, y, alpha: x > alpha, {"alpha": 1.0}
    ),
}
