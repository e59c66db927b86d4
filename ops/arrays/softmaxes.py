"""Softmax, LogSoftmax and Hardmax"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients, WithoutGradient
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import narrowed, wide
from d5ray.ops.arrays.formula import silently


@final
@dataclass(frozen=True)
class Softmax(ArrayOperator):
    """A function of all the numbers along one axis: function(xp, x, axis) gives y, and
    derivative(xp, dy, y, axis) gives dx."""

    function: Callable[[Any, Array, int], Array]
    derivative: Callable[[Any, Array, Array, int], Array]

    @silently
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        (x,) = inputs
        assert x is not None
        if not x.size:
            return (x,)
        return (narrowed(xp, self.function(xp, wide(x), context.attribute("axis", -1)), x),)

    @silently
    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), (y,) = gradients, outputs
        if dy is None:
            return (None,)
        return (narrowed(xp, self.derivative(xp, wide(dy), wide(y), context.attribute("axis", -1)), y),)


def softmax(xp: Any, x: Array, axis: int) -> Array:
    """exp x / Σ exp x."""
    exponentials = xp.exp(x - x.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def softmax_derivative(xp: Any, dy: Array, y: Array, axis: int) -> Array:
    """y (dy − Σ dy y) along the axis, the gradient of y = softmax(x)."""
    return y * (dy - (dy * y).sum(axis=axis, keepdims=True))


def log_softmax(xp: Any, x: Array, axis: int) -> Array:
    """x − ln Σ exp x."""
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(axis=axis, keepdims=True))


def log_softmax_derivative(xp: Any, dy: Array, y: Array, axis: int) -> Array:
    """dy − eʸ Σ dy along the axis, the gradient of y = log softmax(x)."""
    return dy - xp.exp(y) * dy.sum(axis=axis, keepdims=True)


@final
class Hardmax(WithoutGradient):
    """1 for the first of the greatest along an axis, 0 for all others."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        (x,) = inputs
        assert x is not None
        axis = context.attribute("axis", -1)
        if not x.size:
            return (x,)
        place = xp.expand_dims(wide(x).argmax(axis=axis), axis)
        along = xp.arange(x.shape[axis]).reshape(-1, *[1] * (x.ndim - axis % x.ndim - 1))
        return (narrowed(xp, along == place, x),)


OPERATORS: Mapping[str, ArrayOperator] = {
    "Hardmax": Hardmax(),
    "LogSoftmax": Softmax(log_softmax, log_softmax_derivative),
    "Softmax": Softmax(softmax, softmax_derivative),
}
