"""Operators that reorder elements: Transpose, DepthToSpace, SpaceToDepth; and Trilu, which keeps some"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating
from d5ray.ops.arrays.known import numbers

Shape = tuple[int, ...]


class Rearranging(ArrayOperator):
    """Axes are split, permuted, and joined; the gradient goes the way back."""

    @abstractmethod
    def plan(self, context: NodeContext, shape: Shape) -> tuple[Shape, Shape, Shape]:
        """The shape with split axes, the permutation of its axes, and the output's shape."""

    @final
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        (x,) = inputs
        assert x is not None
        split, order, joined = self.plan(context, x.shape)
        return (x.reshape(split).transpose(order).reshape(joined),)

    @final
    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), (x,) = gradients, inputs
        if dy is None or x is None or not is_floating(x):
            return (None,)
        split, order, _ = self.plan(context, x.shape)
        back = sorted(range(len(order)), key=order.__getitem__)
        return (dy.reshape([split[axis] for axis in order]).transpose(back).reshape(x.shape),)


@final
class Transpose(Rearranging):
    """Axis i of the output is axis perm[i] of the input; all in reverse where nothing is said."""

    def plan(self, context: NodeContext, shape: Shape) -> tuple[Shape, Shape, Shape]:
        order = tuple(context.attribute("perm", range(len(shape))[::-1]))
        if sorted(order) != list(range(len(shape))):
            raise ConfigurationError(
                f"the node {context.node} has perm {order} for a tensor with {len(shape)} axes: it must name "
                "each of them once"
            )
        return shape, order, tuple(shape[axis] for axis in order)


@final
class DepthToSpace(Rearranging):
    """(N, C, H, W) to (N, C/b², bH, bW): the channels of every place become a square of b × b."""

    def plan(self, context: NodeContext, shape: Shape) -> tuple[Shape, Shape, Shape]:
        (n, c, h, w), b = shape, context.required("blocksize")
        joined = (n, c // (b * b), h * b, w * b)
        if context.attribute("mode", "DCR") == "DCR":
            return (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2), joined
        return (n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3), joined


@final
class SpaceToDepth(Rearranging):
    """(N, C, H, W) to (N, b²C, H/b, W/b): DepthToSpace undone."""

    def plan(self, context: NodeContext, shape: Shape) -> tuple[Shape, Shape, Shape]:
        (n, c, h, w), b = shape, context.required("blocksize")
        order = (0, 3, 5, 1, 2, 4) if context.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
        return (n, c, h // b, b, w // b, b), order, (n, c * b * b, h // b, w // b)


@final
class Trilu(ArrayOperator):
    """The triangle on and above the k-th diagonal of the last two axes, or on and below; 0 elsewhere."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        return (_triangle(xp, context, inputs, inputs[0]),)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,) = gradients
        rest = [None] * (len(inputs) - 1)
        if dy is None or not is_floating(outputs[0]):
            return (None, *rest)
        return (_triangle(xp, context, inputs, dy), *rest)


def _triangle(xp: Any, context: NodeContext, inputs: Sequence[Array | None], x: Array) -> Array:
    (k,) = numbers(context, inputs, 1) or (0,)
    rows, columns = xp.arange(x.shape[-2])[:, None], xp.arange(x.shape[-1])
    kept = columns - rows >= k if context.attribute("upper", 1) else columns - rows <= k
    return xp.where(kept, x, xp.zeros((), x.dtype))


OPERATORS: Mapping[str, ArrayOperator] = {
    "DepthToSpace": DepthToSpace(),
    "SpaceToDepth": SpaceToDepth(),
    "Transpose": Transpose(),
    "Trilu": Trilu(),
}
