"""Pooling: the greatest, the mean, the norm, in windows and over whole images"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, final

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.global_pooling import GlobalAveragePool, GlobalMaxPool
from d5ray.ops.arrays.sliding import gathered, padded, taps
from d5ray.ops.arrays.wide import WideOperator
from d5ray.ops.geometry.windows import Windows, pooling


@final
class MaxPool(WideOperator):
    """y[n, c, o] = max x[n, c, i] over the window's elements inside the image; of several the first.

    Indices, where they are asked for: where the greatest lies in all of x, row by row, or column by column
    with storage_order 1.
    """

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        windows = pooling(context, x.shape[2:])
        image = padded(xp, x, windows, _least(xp, x.dtype))
        if context.has_output(1):
            greatest, position = _first_greatest(xp, image, windows)
            by_columns = bool(context.attribute("storage_order", 0))
            return greatest, _flat_indices(xp, position, windows, by_columns=by_columns)
        views = taps(image, windows)
        greatest = next(views).copy()
        for view in views:
            xp.maximum(greatest, view, out=greatest)
        return (greatest,)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x: Array = inputs[0]
        windows = pooling(context, x.shape[2:])
        image = padded(xp, x, windows, _least(xp, x.dtype))
        whole, inside = gathered(xp, x.shape, x.dtype, windows)
        free = xp.ones(outputs[0].shape, dtype=bool)
        for view, target in zip(taps(image, windows), taps(whole, windows), strict=True):
            chosen = free & (view == outputs[0])
            target += chosen * gradients[0]
            free &= ~chosen
        return (inside,)


@final
class AveragePool(WideOperator):
    """y[n, c, o] = Σ x[n, c, i] / count over the window's elements.

    count: those inside the image, or those inside the image and its padding with count_include_pad.
    """

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        windows = pooling(context, x.shape[2:])
        total = _sum(taps(padded(xp, x, windows), windows))
        total /= _elements(xp, context, windows, x.dtype)
        return (total,)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x: Array = inputs[0]
        windows = pooling(context, x.shape[2:])
        whole, inside = gathered(xp, x.shape, x.dtype, windows)
        share = gradients[0] / _elements(xp, context, windows, x.dtype)
        for target in taps(whole, windows):
            target += share
        return (inside,)


@final
class LpPool(WideOperator):
    """y[n, c, o] = (Σ |x[n, c, i]|^p)^(1/p) over the window's elements."""

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        p = int(context.attribute("p", 2))
        windows = pooling(context, x.shape[2:])
        return (_sum(abs(view) ** p for view in taps(padded(xp, x, windows), windows)) ** (1 / p),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x: Array = inputs[0]
        p = int(context.attribute("p", 2))
        windows = pooling(context, x.shape[2:])
        whole, inside = gathered(xp, x.shape, x.dtype, windows)
        zero = outputs[0] == 0  # where every element is 0 the norm has a corner: no gradient
        share = xp.where(zero, 0, gradients[0] / xp.where(zero, 1, outputs[0]) ** (p - 1))
        for view, target in zip(taps(padded(xp, x, windows), windows), taps(whole, windows), strict=True):
            target += share * xp.sign(view) * abs(view) ** (p - 1)
        return (inside,)


def _sum(arrays: Any) -> Array:
    total = next(views := iter(arrays)).copy()
    for array in views:
        total += array
    return total


def _least(xp: Any, dtype: Any) -> Any:
    """The number that no element is smaller than."""
    return -xp.inf if dtype.kind == "f" else xp.iinfo(dtype).min


def _elements(xp: Any, context: NodeContext, windows: Windows, dtype: Any) -> Array:
    """The divisors of each window's sum: (*counts), at least 1."""
    with_padding = bool(context.attribute("count_include_pad", 0))
    result = xp.ones((), dtype=dtype)
    axes = zip(
        windows.counts, windows.strides, windows.before, windows.kernel, windows.dilations, windows.image,
        windows.after, strict=True,
    )  # fmt: skip
    for count, stride, before, kernel, dilation, size, after in axes:
        low, high = (-before, size + after) if with_padding else (0, size)
        where = xp.arange(count)[:, None] * stride - before + xp.arange(kernel) * dilation
        result = result[..., None] * ((where >= low) & (where < high)).sum(axis=1).astype(dtype)
    return xp.maximum(result, 1)


def _first_greatest(xp: Any, image: Array, windows: Windows) -> tuple[Array, Array]:
    """The greatest element of every window, and which of the kernel's taps has it."""
    views = taps(image, windows)
    greatest = next(views).copy()
    position = xp.zeros(greatest.shape, dtype=xp.int64)
    for index, view in enumerate(views, start=1):
        greater = (view > greatest) | (view != view)  # what is not a number counts as the greatest
        greatest = xp.where(greater, view, greatest)
        position = xp.where(greater, index, position)
    return greatest, position


def _flat_indices(xp: Any, position: Array, windows: Windows, *, by_columns: bool) -> Array:
    """The positions of these taps in the whole array (batch, channels, *image), flattened."""
    offsets = xp.asarray(list(itertools.product(*map(range, windows.kernel))))  # (taps, axes)
    rank = len(windows.image)
    size, result = 1, xp.zeros(position.shape, dtype=xp.int64)
    for axis in range(rank) if by_columns else reversed(range(rank)):
        window = xp.arange(windows.counts[axis]).reshape(-1, *(1,) * (rank - 1 - axis))
        first = window * windows.strides[axis] - windows.before[axis]
        result += (first + offsets[position, axis] * windows.dilations[axis]) * size
        size *= windows.image[axis]
    planes = xp.arange(position.shape[0] * position.shape[1]).reshape(*position.shape[:2], *(1,) * rank)
    return result + planes * size


OPERATORS: Mapping[str, ArrayOperator] = {
    "AveragePool": AveragePool(),
    "GlobalAveragePool": GlobalAveragePool(),
    "GlobalMaxPool": GlobalMaxPool(),
    "LpPool": LpPool(),
    "MaxPool": MaxPool(),
}
