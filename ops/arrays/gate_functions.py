"""The activations inside recurrent operators, with their derivatives"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.errors import ConfigurationError, nearest
from d5ray.operators.array_operator import Array
from d5ray.operators.nodes.node_context import NodeContext


@final
@dataclass(frozen=True)
class GateFunction:
    """y = function(xp, min(max(x, −clip), clip)), without bounds where clip is None.

    slope: its derivative as a function of (xp, x, y).
    """

    function: Callable[[Any, Array], Array]
    slope: Callable[[Any, Array, Array], Array]
    clip: float | None

    def __call__(self, xp: Any, x: Array) -> Array:
        return self.function(xp, x if self.clip is None else xp.clip(x, -self.clip, self.clip))

    def slopes(self, xp: Any, x: Array, y: Array) -> Array:
        """dy/dx, which is 0 where x is clipped."""
        found = self.slope(xp, x, y)
        return found if self.clip is None else xp.where(abs(x) <= self.clip, found, 0)


def gate_functions(
    context: NodeContext, defaults: Sequence[str], directions: int
) -> list[list[GateFunction]]:
    """The functions of every direction, as the node names them, or these defaults (ONNX: LSTM).

    activation_alpha and activation_beta are given out in the order of the functions that take one.
    """
    names = tuple(context.attribute("activations") or tuple(defaults) * directions)
    if len(names) != len(defaults) * directions:
        raise ConfigurationError(
            f"{context.node} has the activations {names}: for {directions} directions it needs "
            f"{len(defaults) * directions}"
        )
    alphas, betas = (
        iter(context.attribute("activation_alpha") or ()),
        iter(context.attribute("activation_beta") or ()),
    )
    clip = context.attribute("clip") or None  # a bound of 0 is none, as exporters write it
    found = [_function(context, name, alphas, betas, clip) for name in names]
    return [found[first : first + len(defaults)] for first in range(0, len(found), len(defaults))]


def _function(
    context: NodeContext, name: str, alphas: Iterator[float], betas: Iterator[float], clip: float | None
) -> GateFunction:
    known = {each.lower(): each for each in _PLAIN.keys() | _PARAMETRIC.keys()}
    if name.lower() not in known:
        raise ConfigurationError(
            f"{context.node} has the activation {name!r}; {nearest(name, known.values())}"
        )
    name = known[name.lower()]
    if name in _PLAIN:
        function, slope = _PLAIN[name]
        return GateFunction(function, slope, clip)
    make, alpha, beta = _PARAMETRIC[name]
    function, slope = make(next(alphas, alpha), None if beta is None else next(betas, beta))
    return GateFunction(function, slope, clip)


def _affine(a: float, b: Any) -> Any:
    return lambda xp, x: a * x + b, lambda xp, x, y: xp.full_like(y, a)


def _leaky_relu(a: float, b: Any) -> Any:
    return lambda xp, x: xp.where(x >= 0, x, a * x), lambda xp, x, y: xp.where(x >= 0, 1, a)


def _elu(a: float, b: Any) -> Any:
    return (
        lambda xp, x: xp.where(x >= 0, x, a * xp.expm1(x)),
        lambda xp, x, y: xp.where(x >= 0, 1, y + a),
    )


def _thresholded_relu(a: float, b: Any) -> Any:
    return lambda xp, x: xp.where(x >= a, x, 0), lambda xp, x, y: x >= a


def _scaled_tanh(a: float, b: Any) -> Any:
    return lambda xp, x: a * xp.tanh(b * x), lambda xp, x, y: a * b * (1 - xp.square(xp.tanh(b * x)))


def _hard_sigmoid(a: float, b: Any) -> Any:
    return lambda xp, x: xp.clip(a * x + b, 0, 1), lambda xp, x, y: xp.where((y > 0) & (y < 1), a, 0)


_PLAIN: dict[str, Any] = {
    "Relu": (lambda xp, x: xp.maximum(x, 0), lambda xp, x, y: x > 0),
    "Sigmoid": (lambda xp, x: 1 / (1 + xp.exp(-x)), lambda xp, x, y: y * (1 - y)),
    "Softplus": (lambda xp, x: xp.logaddexp(x, 0), lambda xp, x, y: -xp.expm1(-y)),
    "Softsign": (lambda xp, x: x / (1 + abs(x)), lambda xp, x, y: xp.square(1 - abs(y))),
    "Tanh": (lambda xp, x: xp.tanh(x), lambda xp, x, y: 1 - y * y),
}
# What makes the function and its slope of alpha and beta, and their defaults: None for one that it lacks.
_PARAMETRIC: dict[str, tuple[Any, float, float | None]] = {
    "Affine": (_affine, 1.0, 0.0),
    "Elu": (_elu, 1.0, None),
    "HardSigmoid": (_hard_sigmoid, 0.2, 0.5),
    "LeakyRelu": (_leaky_relu, 0.01, None),
    "ScaledTanh": (_scaled_tanh, 1.0, 1.0),
    "ThresholdedRelu": (_thresholded_relu, 1.0, None),
}
