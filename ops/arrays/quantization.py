"""Numbers on a grid: QuantizeLinear and DequantizeLinear, and products of quantized numbers"""

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients, WithoutGradient
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.convolution import Conv
from d5ray.ops.arrays.element_types import onnx_type
from d5ray.ops.arrays.formula import silently
from d5ray.ops.arrays.known import checked_axis
from d5ray.ops.arrays.narrow import cast_to, saturated
from d5ray.ops.arrays.wide import optional


@final
class QuantizeLinear(WithoutGradient):
    """y = saturate(round(x / scale) + zero), halves to even; floating-point types of 8 bits without zero."""

    @silently
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, scale, zero = inputs[0], inputs[1], optional(inputs, 2)
        assert x is not None and scale is not None
        dtype = (
            zero.dtype if zero is not None else onnx_type(context, context.attribute("output_dtype", 0) or 2)
        )
        precise = context.attribute("precision", 0)
        wider = onnx_type(context, precise) if precise else _precise(x, scale)
        steps = _numbers(xp, x, wider) / _numbers(xp, spread(xp, context, scale, x.shape), wider)
        if "float" in dtype.name:
            return (cast_to(xp, steps, dtype, bool(context.attribute("saturate", 1))),)
        steps = xp.rint(steps.astype("float64"))
        if zero is not None:
            steps = steps + _numbers(xp, spread(xp, context, zero, x.shape), np.dtype("float64"))
        return (saturated(xp, steps, dtype),)


@final
class DequantizeLinear(ArrayOperator):
    """y = (x − zero) · scale."""

    @silently
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        scale = inputs[1]
        assert scale is not None
        asked = context.attribute("output_dtype", 0)
        dtype = onnx_type(context, asked) if asked else scale.dtype
        x = self._centred(xp, context, inputs)
        return (cast_to(xp, x * _numbers(xp, spread(xp, context, scale, x.shape), x.dtype), dtype),)

    @silently
    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        """dscale = Σ dy (x − zero), over what each scale belongs to; what is quantized has none."""
        (dy,), scale = gradients, inputs[1]
        rest = [None] * (len(inputs) - 2)
        if dy is None or scale is None:
            return (None, None, *rest)
        x = self._centred(xp, context, inputs)
        terms = dy.astype(x.dtype) * x
        return (None, cast_to(xp, _gathered(xp, context, terms, scale.shape), scale.dtype), *rest)

    def _centred(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Array:
        x, scale, zero = inputs[0], inputs[1], optional(inputs, 2)
        assert x is not None and scale is not None
        wider = np.dtype("float64" if scale.dtype == "float64" else "float32")
        found = _numbers(xp, x, wider)
        return found if zero is None else found - _numbers(xp, spread(xp, context, zero, x.shape), wider)


def _precise(x: Array, scale: Array) -> "np.dtype[Any]":
    """The type in which the quotient is computed."""
    wide = x.dtype == "float64" or scale.dtype == "float64" or x.dtype == "int32"
    return np.dtype("float64" if wide else "float16" if x.dtype == scale.dtype == "float16" else "float32")


def _numbers(xp: Any, x: Array, dtype: "np.dtype[Any]") -> Array:
    return cast_to(xp, x, dtype)


def spread(xp: Any, context: NodeContext, each: Array, shape: tuple[int, ...]) -> Array:
    """Scales or zeros spread over a tensor: one for all, one a place on the axis, or one a block along it.

    Raises `ConfigurationError` where it is none of these.
    """
    if each.size == 1 and each.ndim <= 1:
        return each.reshape(())
    axis = checked_axis(context, int(context.attribute("axis", 1)), len(shape))
    block = int(context.attribute("block_size", 0))
    if block:
        return xp.repeat(each, block, axis=axis)[tuple(map(slice, shape))]
    if each.ndim != 1 or each.size != shape[axis]:
        raise ConfigurationError(
            f"the node {context.node} has scales {each.shape} for {shape}: give one, or {shape[axis]} for "
            f"the axis {axis}"
        )
    return each.reshape(*(size if place == axis else 1 for place, size in enumerate(shape)))


def _gathered(xp: Any, context: NodeContext, terms: Array, shape: tuple[int, ...]) -> Array:
    """The sums of what belongs to each scale: the way back of `spread`."""
    if int(np.prod(shape)) == 1 and len(shape) <= 1:
        return terms.sum().reshape(shape)
    axis = checked_axis(context, int(context.attribute("axis", 1)), terms.ndim)
    block = int(context.attribute("block_size", 0))
    if not block:
        return terms.sum(axis=tuple(place for place in range(terms.ndim) if place != axis))
    missing = -terms.shape[axis] % block  # of the last block
    whole = xp.pad(terms, [(0, missing if place == axis else 0) for place in range(terms.ndim)])
    return whole.reshape(*terms.shape[:axis], -1, block, *terms.shape[axis + 1 :]).sum(axis=axis + 1)


def _centred(x: Array, zero: Array | None, axis: int | None = None) -> Array:
    """x − zero in 32 bits; a zero for each place on the axis, or one for all."""
    x = x.astype("int32")
    if zero is None:
        return x
    zero = zero.astype("int32")
    if zero.ndim == 1 and zero.size > 1 and axis is not None:
        zero = zero.reshape(*(-1 if place == axis % x.ndim else 1 for place in range(x.ndim)))
    return x - (zero.reshape(()) if zero.size == 1 else zero)


def _product(xp: Any, a: Array, b: Array) -> Array:
    """The product in 32 bits, modulo 2³²."""
    return xp.asarray(xp.matmul(a, b), dtype="int32")


@final
class MatMulInteger(WithoutGradient):
    """(A − a zero)(B − b zero) in 32 bits; a's zeros by row, b's by column."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        return (_product(xp, _centred(a, optional(inputs, 2), -2), _centred(b, optional(inputs, 3), -1)),)


@final
class QuantizedMatMul(WithoutGradient):
    """y = saturate(round((a − a zero)(b − b zero) · a scale · b scale / y scale) + y zero)."""

    @silently
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
        assert a is not None and b is not None and y_zero is not None
        product = _product(xp, _centred(a, a_zero, -2), _centred(b, b_zero, -1))
        scales = (
            _by(a_scale, -2, product.ndim) * _by(b_scale, -1, product.ndim) / _by(y_scale, -2, product.ndim)
        )
        return (_requantized(xp, product, scales, _by(y_zero, -2, product.ndim), y_zero.dtype),)


@final
class ConvInteger(WithoutGradient):
    """A Conv of x − x zero and w − w zero in 32 bits; w's zeros by feature."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, w = inputs[0], inputs[1]
        assert x is not None and w is not None
        x, w = _centred(x, optional(inputs, 2)), _centred(w, optional(inputs, 3), 0)
        return (_correlated(xp, context, x, w),)


@final
class QuantizedConv(WithoutGradient):
    """QLinearMatMul for a Conv; w's scales and zeros by feature, the bias on the grid of the products."""

    @silently
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = inputs[:8]
        bias = optional(inputs, 8)
        assert x is not None and w is not None and y_zero is not None
        found = _correlated(xp, context, _centred(x, x_zero), _centred(w, w_zero, 0))
        if bias is not None:
            found = found + bias.reshape(-1, *[1] * (x.ndim - 2))
        scales = _by(x_scale, 1, x.ndim) * _by(w_scale, 1, x.ndim) / _by(y_scale, 1, x.ndim)
        return (_requantized(xp, found, scales, _by(y_zero, 1, x.ndim), y_zero.dtype),)


def _correlated(xp: Any, context: NodeContext, x: Array, w: Array) -> Array:
    """Exact: float64 has all integers that 32 bits have, and their sums up to 2⁵³."""
    (y,) = Conv().forward(xp, context, [x.astype("float64"), w.astype("float64")])
    return y.astype("int64").astype("int32")


def _by(each: Array | None, axis: int, rank: int) -> Array:
    """A scale or zero in float64: one, or one for each place on the axis; of more axes as it is."""
    assert each is not None
    found = each.astype("float64")
    if found.size == 1:
        return found.reshape(())
    return found.reshape(*(-1 if p == axis % rank else 1 for p in range(rank))) if found.ndim == 1 else found


def _requantized(xp: Any, found: Array, scales: Array, zero: Array, dtype: "np.dtype[Any]") -> Array:
    return saturated(xp, xp.rint(found * scales) + zero, dtype)


OPERATORS: Mapping[str, ArrayOperator] = {
    "ConvInteger": ConvInteger(),
    "DequantizeLinear": DequantizeLinear(),
    "MatMulInteger": MatMulInteger(),
    "QLinearConv": QuantizedConv(),
    "QLinearMatMul": QuantizedMatMul(),
    "QuantizeLinear": QuantizeLinear(),
}
