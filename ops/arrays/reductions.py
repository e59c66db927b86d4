"""Reductions over axes: sums, products, means, norms, extremes"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating, narrowed, wide
from d5ray.ops.arrays.formula import silently
from d5ray.ops.arrays.integers import truncated_quotient
from d5ray.ops.arrays.known import checked_axis, numbers


@final
@dataclass(frozen=True)
class AxisReduction(ArrayOperator):
    """A reduction to one number along some axes.

    The input comes as (kept axes, n), those that are reduced in one at the end: function(xp, x) gives y
    (kept axes, 1), and derivative(xp, dy, x, y) gives dx.
    """

    function: Callable[[Any, Array], Array]
    derivative: Callable[[Any, Array, Array, Array], Array]

    @silently
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        axes = _axes(context, inputs)
        y = self.function(xp, _gathered(wide(x), axes))
        kept = context.attribute("keepdims", 1)
        return (narrowed(xp, y.reshape(_shape(x, axes, kept)), x),)

    @silently
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
            return (None,) * len(inputs)
        axes = _axes(context, inputs)
        gathered = _gathered(wide(x), axes)
        column = (*gathered.shape[:-1], 1)
        dx = self.derivative(xp, wide(dy).reshape(column), gathered, wide(outputs[0]).reshape(column))
        return (
            narrowed(xp, _spread(xp.broadcast_to(dx, gathered.shape), x, axes), x),
            *[None] * (len(inputs) - 1),
        )


def _axes(context: NodeContext, inputs: Sequence[Array | None]) -> tuple[int, ...]:
    """The axes that are reduced, in order; all where none are named, unless the node says none then."""
    axes = numbers(context, inputs, 1)
    rank = inputs[0].ndim  # type: ignore[union-attr]  # it is required
    if not axes:
        return () if context.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({checked_axis(context, axis, rank) for axis in axes}))


def _order(x: Array, axes: tuple[int, ...]) -> list[int]:
    return [axis for axis in range(x.ndim) if axis not in axes] + list(axes)


def _gathered(x: Array, axes: tuple[int, ...]) -> Array:
    """(kept axes, n): n is 1 where no axis is reduced."""
    turned = x.transpose(_order(x, axes))
    kept = turned.shape[: x.ndim - len(axes)]
    size = 1
    for axis in axes:
        size *= x.shape[axis]
    return turned.reshape(*kept, size)


def _spread(gathered: Array, x: Array, axes: tuple[int, ...]) -> Array:
    """`_gathered` undone."""
    order = _order(x, axes)
    back = sorted(range(x.ndim), key=order.__getitem__)
    return gathered.reshape([x.shape[axis] for axis in order]).transpose(back)


def _shape(x: Array, axes: tuple[int, ...], keepdims: int) -> list[int]:
    if keepdims:
        return [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    return [size for axis, size in enumerate(x.shape) if axis not in axes]


def total(xp: Any, x: Array) -> Array:
    """Σ x over the last axis, in the type of x: (..., 1)."""
    return x.sum(axis=-1, keepdims=True, dtype=x.dtype)


def mean(xp: Any, x: Array) -> Array:
    """The mean of x over the last axis, (..., 1); for integers it is cut off towards zero."""
    if is_floating(x):
        return total(xp, x) / x.shape[-1]
    return truncated_quotient(total(xp, x), xp.asarray(x.shape[-1], dtype=x.dtype))


def norm(xp: Any, x: Array) -> Array:
    """√Σx²; that of integers is computed in float64."""
    x = x if is_floating(x) else x.astype("float64")
    return xp.sqrt(total(xp, x * x))


def norm_derivative(xp: Any, dy: Array, x: Array, y: Array) -> Array:
    """dy x / y, the gradient of y = ‖x‖₂; 0 where the norm is 0."""
    return xp.where(y == 0, 0, dy * x / y)


def log_sum_exponentials(xp: Any, x: Array) -> Array:
    """ln Σ exp x, shifted by the greatest so that nothing overflows; −inf where there is nothing."""
    top = greatest(xp, x)
    top = xp.where(xp.isfinite(top), top, 0).astype(x.dtype)
    return xp.log(total(xp, xp.exp(x - top))) + top


def greatest(xp: Any, x: Array) -> Array:
    """max x over the last axis, (..., 1); the type's least value where the axis is empty."""
    return x.max(axis=-1, keepdims=True) if x.shape[-1] else _constant(xp, x, _bounds(xp, x)[0])


def least(xp: Any, x: Array) -> Array:
    """min x over the last axis, (..., 1); the type's greatest value where the axis is empty."""
    return x.min(axis=-1, keepdims=True) if x.shape[-1] else _constant(xp, x, _bounds(xp, x)[1])


def _bounds(xp: Any, x: Array) -> tuple[Any, Any]:
    """The least and the greatest number of the type."""
    if is_floating(x):
        return -xp.inf, xp.inf
    if x.dtype.kind == "b":
        return False, True
    return xp.iinfo(x.dtype).min, xp.iinfo(x.dtype).max


def _constant(xp: Any, x: Array, value: Any) -> Array:
    return xp.full((*x.shape[:-1], 1), value, dtype=x.dtype)


def shared(xp: Any, dy: Array, x: Array, y: Array) -> Array:
    """The gradient of an extreme: elements that are equal to it have equal shares."""
    chosen = x == y
    return xp.where(chosen, dy / chosen.sum(axis=-1, keepdims=True, dtype=x.dtype), 0)


def product(xp: Any, x: Array) -> Array:
    """Π x over the last axis, in the type of x: (..., 1)."""
    return x.prod(axis=-1, keepdims=True, dtype=x.dtype)


def product_derivative(xp: Any, dy: Array, x: Array, y: Array) -> Array:
    """dxᵢ = dy Πⱼ≠ᵢ xⱼ, as what stands before i times what stands after: zeros need no division."""
    ones = xp.ones((*x.shape[:-1], 1), x.dtype)
    before = xp.cumprod(xp.concatenate([ones, x[..., :-1]], axis=-1), axis=-1)
    after = xp.cumprod(xp.concatenate([ones, x[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    return dy * before * after


OPERATORS: Mapping[str, ArrayOperator] = {
    "ReduceL1": AxisReduction(lambda xp, x: total(xp, xp.abs(x)), lambda xp, dy, x, y: dy * xp.sign(x)),
    "ReduceL2": AxisReduction(norm, norm_derivative),
    "ReduceLogSum": AxisReduction(lambda xp, x: xp.log(total(xp, x)), lambda xp, dy, x, y: dy / total(xp, x)),
    "ReduceLogSumExp": AxisReduction(log_sum_exponentials, lambda xp, dy, x, y: dy * xp.exp(x - y)),
    "ReduceMax": AxisReduction(greatest, shared),
    "ReduceMean": AxisReduction(mean, lambda xp, dy, x, y: dy / x.shape[-1]),
    "ReduceMin": AxisReduction(least, shared),
    "ReduceProd": AxisReduction(product, product_derivative),
    "ReduceSum": AxisReduction(total, lambda xp, dy, x, y: dy),
    "ReduceSumSquare": AxisReduction(lambda xp, x: total(xp, x * x), lambda xp, dy, x, y: 2 * dy * x),
}
