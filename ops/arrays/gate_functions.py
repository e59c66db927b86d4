"""The activations inside recurrent operators, with their derivatives"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from d5ray.operators.array_operator import Array
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.recurrence.activations import activations_of


@final
@dataclass(frozen=True)
class GateFunction:
    """y = function(xp, min(max(x, −clip), clip), *parameters), without bounds where clip is None.

    derivative: as a function of (xp, x, y, *parameters); parameters: alpha, beta, or none.
    """

    xp: Any
    function: Callable[..., Array]
    derivative: Callable[..., Array]
    parameters: tuple[float, ...]
    clip: float | None

    def __call__(self, x: Array) -> Array:
        bounded = x if self.clip is None else self.xp.clip(x, -self.clip, self.clip)
        return self.function(self.xp, bounded, *self.parameters)

    def derivative_at(self, x: Array, y: Array) -> Array:
        """dy/dx, which is 0 where x is clipped."""
        found = self.derivative(self.xp, x, y, *self.parameters)
        return found if self.clip is None else self.xp.where(abs(x) <= self.clip, found, 0)


def gate_functions(xp: Any, context: NodeContext) -> list[list[GateFunction]]:
    """The functions of every direction, as the node names them, or ONNX's defaults."""
    clip = context.attribute("clip") or None  # a bound of 0 is none, as exporters write it
    return [
        [GateFunction(xp, *FUNCTIONS[name], parameters, clip) for name, parameters in own]
        for own in activations_of(context)
    ]


# Functions and their derivatives, a and b being alpha and beta.
FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Array], Callable[..., Array]]]] = {
    "Affine": (lambda xp, x, a, b: a * x + b, lambda xp, x, y, a, b: xp.full_like(y, a)),
    "Elu": (
        lambda xp, x, a: xp.where(x >= 0, x, a * xp.expm1(x)),
        lambda xp, x, y, a: xp.where(x >= 0, 1, y + a),
    ),
    "HardSigmoid": (
        lambda xp, x, a, b: xp.clip(a * x + b, 0, 1),
        lambda xp, x, y, a, b: xp.where((y > 0) & (y < 1), a, 0),
    ),
    "LeakyRelu": (lambda xp, x, a: xp.where(x >= 0, x, a * x), lambda xp, x, y, a: xp.where(x >= 0, 1, a)),
    "Relu": (lambda xp, x: xp.maximum(x, 0), lambda xp, x, y: x > 0),
    "ScaledTanh": (
        lambda xp, x, a, b: a * xp.tanh(b * x),
        lambda xp, x, y, a, b: a * b * (1 - xp.square(xp.tanh(b * x))),
    ),
    "Sigmoid": (lambda xp, x: 1 / (1 + xp.exp(-x)), lambda xp, x, y: y * (1 - y)),
    "Softplus": (lambda xp, x: xp.logaddexp(x, 0), lambda xp, x, y: -xp.expm1(-y)),
    "Softsign": (lambda xp, x: x / (1 + abs(x)), lambda xp, x, y: xp.square(1 - abs(y))),
    "Tanh": (lambda xp, x: xp.tanh(x), lambda xp, x, y: 1 - y * y),
    "ThresholdedRelu": (lambda xp, x, a: xp.where(x >= a, x, 0), lambda xp, x, y, a: x >= a),
}
