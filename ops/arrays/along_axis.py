"""Operators along one axis: ArgMax, ArgMin, CumSum and CumProd"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients, WithoutGradient
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating, narrowed, wide
from d5ray.ops.arrays.known import checked_axis, required_number


@final
@dataclass(frozen=True)
class Extreme(WithoutGradient):
    """The position of the extreme along an axis: the first of several, or the last; int64.

    search is the name of the array module's function.
    """

    search: str

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        (x,) = inputs
        assert x is not None
        axis = checked_axis(context, context.attribute("axis", 0), x.ndim)
        search = getattr(xp, self.search)
        if context.attribute("select_last_index", 0):
            place = x.shape[axis] - 1 - search(xp.flip(wide(x), axis), axis=axis)
        else:
            place = search(wide(x), axis=axis)
        if context.attribute("keepdims", 1):
            place = xp.expand_dims(place, axis)
        return (xp.asarray(place, dtype="int64"),)


@final
class CumulativeSum(ArrayOperator):
    """yᵢ = x₁ + … + xᵢ along an axis; without xᵢ itself (exclusive), or from the end (reverse)."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        axis = checked_axis(context, int(required_number(context, inputs, 1, "axis")), x.ndim)
        y = _summed(xp, wide(x), axis, context.attribute("exclusive", 0), context.attribute("reverse", 0))
        return (narrowed(xp, y, x),)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), x = gradients, inputs[0]
        if dy is None or x is None or not is_floating(x):
            return (None, None)
        axis = checked_axis(context, int(required_number(context, inputs, 1, "axis")), x.ndim)
        exclusive, reverse = context.attribute("exclusive", 0), context.attribute("reverse", 0)
        return (narrowed(xp, _summed(xp, wide(dy), axis, exclusive, not reverse), x), None)


def _summed(xp: Any, x: Array, axis: int, exclusive: int, reverse: int) -> Array:
    x = xp.moveaxis(x, axis, -1)
    if reverse:
        x = x[..., ::-1]
    if exclusive:
        x = xp.concatenate([xp.zeros_like(x[..., :1]), x[..., :-1]], axis=-1)
    y = xp.cumsum(x, axis=-1, dtype=x.dtype)
    return xp.moveaxis(y[..., ::-1] if reverse else y, -1, axis)


@final
class CumulativeProduct(ArrayOperator):
    """yᵢ = x₁ · … · xᵢ along an axis; without xᵢ itself (exclusive), or from the end (reverse)."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        return (
            narrowed(xp, self._multiplied(xp, wide(self._turned(xp, context, inputs)), context, inputs), x),
        )

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        """dxⱼ = Σ_{i ≥ j} dyᵢ · Π_{k ≤ i, k ≠ j} xₖ, also where some x are 0; n² terms for n elements."""
        (dy,), x = gradients, inputs[0]
        if dy is None or x is None or not is_floating(x):
            return (None, None)
        axis = checked_axis(context, int(required_number(context, inputs, 1, "axis")), x.ndim)
        z, dz = (self._turned(xp, context, [each, inputs[1]]) for each in (wide(x), wide(dy)))
        n, ones = z.shape[-1], xp.ones_like(z)
        exclusive = bool(context.attribute("exclusive", 0))
        dx = xp.zeros_like(z)
        for j in range(n):
            others = xp.where(xp.arange(n) == j, ones, z)
            products = xp.cumprod(others, axis=-1)  # (…, i): without xⱼ, up to i
            if exclusive:
                dx[..., j] = (dz[..., j + 1 :] * products[..., j : n - 1]).sum(axis=-1)
            else:
                dx[..., j] = (dz[..., j:] * products[..., j:]).sum(axis=-1)
        if context.attribute("reverse", 0):
            dx = dx[..., ::-1]
        return (narrowed(xp, xp.moveaxis(dx, -1, axis), x), None)

    def _turned(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Array:
        """The input with the axis last, in the order of the product."""
        x = inputs[0]
        axis = checked_axis(context, int(required_number(context, inputs, 1, "axis")), x.ndim)  # type: ignore[union-attr]
        x = xp.moveaxis(x, axis, -1)
        return x[..., ::-1] if context.attribute("reverse", 0) else x

    def _multiplied(self, xp: Any, x: Array, context: NodeContext, inputs: Sequence[Array | None]) -> Array:
        if context.attribute("exclusive", 0):
            x = xp.concatenate([xp.ones_like(x[..., :1]), x[..., :-1]], axis=-1)
        y = xp.cumprod(x, axis=-1, dtype=x.dtype)
        axis = int(required_number(context, inputs, 1, "axis"))
        return xp.moveaxis(y[..., ::-1] if context.attribute("reverse", 0) else y, -1, axis)


OPERATORS: Mapping[str, ArrayOperator] = {
    "ArgMax": Extreme("argmax"),
    "ArgMin": Extreme("argmin"),
    "CumProd": CumulativeProduct(),
    "CumSum": CumulativeSum(),
}
