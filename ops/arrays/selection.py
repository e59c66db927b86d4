"""Operators that choose elements by their value or place: NonZero, OneHot, TopK"""

from collections.abc import Mapping, Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients, WithoutGradient
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating, narrowed, wide
from d5ray.ops.arrays.indexed import along
from d5ray.ops.arrays.known import checked_axis, required_number


@final
class NonZero(WithoutGradient):
    """The coordinates of all elements that are not 0: (axes, how many), int64."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        (x,) = inputs
        assert x is not None
        if not x.ndim:  # a number has no coordinates, only the count
            return (xp.zeros((0, int(x != 0)), "int64"),)
        return (xp.stack(xp.nonzero(wide(x))).astype("int64"),)


@final
class OneHot(ArrayOperator):
    """`on` where an index says so along a new axis of size depth, `off` elsewhere; values are (off, on)."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        values = inputs[2]
        assert values is not None
        return (xp.where(_places(xp, context, inputs), values[1], values[0]),)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), values = gradients, inputs[2]
        if dy is None or values is None or not is_floating(values):
            return (None, None, None)
        places, dy = _places(xp, context, inputs), wide(dy)
        sums = xp.stack([xp.where(places, 0, dy).sum(), xp.where(places, dy, 0).sum()])
        return (None, None, narrowed(xp, sums, values))


def _places(xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Array:
    """True where the output is on. An index counts from the end where it is negative; one that
    is out of range is on nowhere."""
    indices = inputs[0]
    assert indices is not None
    depth = int(required_number(context, inputs, 1, "depth"))
    axis = checked_axis(context, context.attribute("axis", -1), indices.ndim + 1)
    indices = xp.expand_dims(indices.astype("int64"), axis)
    indices = xp.where(indices < 0, indices + depth, indices)
    return indices == xp.arange(depth).reshape(-1, *[1] * (indices.ndim - 1 - axis))


@final
class TopK(ArrayOperator):
    """The K greatest, or least, along an axis, in order, and their places; of equal ones the first."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        axis = checked_axis(context, context.attribute("axis", -1), x.ndim)
        size, k = x.shape[axis], int(required_number(context, inputs, 1, "number K"))
        if not 0 <= k <= size:
            raise ConfigurationError(
                f"the node {context.node} asks for {k} of {size} elements along the axis {axis}: K must be "
                f"from 0 up to {size}"
            )
        keys = xp.moveaxis(wide(x), axis, -1)
        if context.attribute("largest", 1):
            # Sorted upwards from behind, and read from behind: the first of equal ones stays the first.
            order = (size - 1 - xp.argsort(keys[..., ::-1], axis=-1, kind="stable"))[..., ::-1]
        else:
            order = xp.argsort(keys, axis=-1, kind="stable")
        places = xp.moveaxis(order[..., :k], -1, axis).astype("int64")
        return (x[along(xp, places, axis)], places)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        dy, x = gradients[0], inputs[0]
        if dy is None or x is None or not is_floating(x):
            return (None, None)
        axis = checked_axis(context, context.attribute("axis", -1), x.ndim)
        dx = xp.zeros(x.shape, x.dtype)
        dx[along(xp, outputs[1], axis)] = dy
        return (dx, None)


OPERATORS: Mapping[str, ArrayOperator] = {
    "NonZero": NonZero(),
    "OneHot": OneHot(),
    "TopK": TopK(),
}
