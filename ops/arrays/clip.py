"""Clip: values are held between two bounds, which are inputs"""

from collections.abc import Sequence
from typing import Any, final

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating, narrowed, wide
from d5ray.ops.arrays.formula import silently


@final
class Clip(ArrayOperator):
    """y = min(high, max(low, x)). Where x is outside, the gradient goes to the bound that is taken for it."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, low, high = _padded(inputs)
        y = x if low is None else xp.maximum(x, low)
        return (xp.asarray(y if high is None else xp.minimum(y, high)),)

    @silently
    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), (x, low, high) = gradients, _padded(inputs)
        if dy is None or not is_floating(x):
            return (None,) * len(inputs)
        nowhere = xp.zeros(x.shape, bool)
        above = nowhere if high is None else (x > high) | (False if low is None else low > high)
        below = nowhere if low is None else (x < low) & ~above
        inside = xp.where(above | below, 0, dy)

        def part(where: Array, bound: Array | None) -> Array | None:
            if bound is None:
                return None
            return narrowed(xp, xp.where(where, wide(dy), 0).sum().reshape(bound.shape), bound)

        return (narrowed(xp, inside, x), part(below, low), part(above, high))[: len(inputs)]


def _padded(inputs: Sequence[Array | None]) -> tuple[Any, Any, Any]:
    """x, low and high, None where a bound is not given."""
    x, low, high, *_ = (*inputs, None, None)
    return x, low, high
