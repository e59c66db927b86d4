"""Conv and ConvTranspose, in any number of dimensions, grouped, dilated, strided"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.sliding import gathered, padded, seen, taps
from d5ray.ops.arrays.wide import WideOperator, optional
from d5ray.ops.geometry.windows import Windows, convolution, transposed

COLUMN_BYTES = 2**25  # of what is unfolded at a time: images are taken in blocks so that memory stays small


@final
class Conv(WideOperator):
    """y[n, m, o] = b[m] + Σ_{c, k} w[m, c, k] x[n, c, o·stride − pad + k·dilation], c in m's group.

    x (batch, channels, *image), w (features, channels / group, *kernel), b (features,); y (batch, features,
    *counts). The windows are unfolded to the columns of a matrix, which one product multiplies by the weight
    (Chellapilla et al., 2006, "High Performance Convolutional Neural Networks for Document Processing").
    """

    needs = 2

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, weight, bias = inputs[0], inputs[1], optional(inputs, 2)
        assert x is not None and weight is not None
        windows, groups = _of_convolution(context, x, weight)
        return (_with_bias(_correlated(xp, x, weight, windows, groups), bias),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, weight, gradient = inputs[0], inputs[1], gradients[0]
        assert x is not None and weight is not None
        windows, groups = _of_convolution(context, x, weight)
        found = (
            _spread(xp, gradient, weight, windows, groups),
            _weight_gradient(xp, x, gradient, weight.shape, windows, groups),
            _bias_gradient(gradient) if optional(inputs, 2) is not None else None,
        )
        return found[: len(inputs)]


@final
class ConvTranspose(WideOperator):
    """y = the gradient of a Conv with respect to its input, where x is that with respect to its output.

    x (batch, channels, *counts), w (channels, features / group, *kernel), b (features,); y (batch, features,
    *image).
    """

    needs = 2

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, weight, bias = inputs[0], inputs[1], optional(inputs, 2)
        assert x is not None and weight is not None
        windows, groups = _of_transposed(context, x, weight)
        return (_with_bias(_spread(xp, x, weight, windows, groups), bias),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, weight, gradient = inputs[0], inputs[1], gradients[0]
        assert x is not None and weight is not None
        windows, groups = _of_transposed(context, x, weight)
        found = (
            _correlated(xp, gradient, weight, windows, groups),
            _weight_gradient(xp, gradient, x, weight.shape, windows, groups),
            _bias_gradient(gradient) if optional(inputs, 2) is not None else None,
        )
        return found[: len(inputs)]


def _correlated(xp: Any, images: Array, weight: Array, windows: Windows, groups: int) -> Array:
    """images (batch, channels, *image), weight (features, ...) -> (batch, features, *counts)."""
    whole = padded(xp, images, windows)
    matrix = weight.reshape(groups, weight.shape[0] // groups, -1)  # (groups, features', channels'·kernel)
    result = xp.empty((images.shape[0], weight.shape[0], *windows.counts), dtype=images.dtype)
    for block in _blocks(images, windows):
        view = seen(xp, whole[block], windows)
        columns = view.reshape(view.shape[0], groups, matrix.shape[2], -1)  # one column for each window
        target = result[block].reshape(view.shape[0], groups, matrix.shape[1], -1)
        xp.matmul(matrix, columns, out=target)
    return result


def _spread(xp: Any, values: Array, weight: Array, windows: Windows, groups: int) -> Array:
    """The adjoint of `_correlated`: values (batch, features, *counts) -> (batch, channels, *image)."""
    matrix = weight.reshape(groups, weight.shape[0] // groups, -1).swapaxes(1, 2)
    channels = weight.shape[1] * groups
    whole, inside = gathered(xp, (values.shape[0], channels), values.dtype, windows)
    for block in _blocks(inside, windows):
        flat = values[block].reshape(-1, groups, matrix.shape[2], math.prod(windows.counts))
        columns = xp.matmul(matrix, flat).reshape(flat.shape[0], channels, -1, *windows.counts)
        for index, tap in enumerate(taps(whole[block], windows)):
            tap += columns[:, :, index]
    return inside


def _weight_gradient(
    xp: Any, images: Array, values: Array, shape: tuple[int, ...], windows: Windows, groups: int
) -> Array:
    """The gradient of Σ values · _correlated(images, weight) with respect to the weight."""
    whole = padded(xp, images, windows)
    features = shape[0] // groups
    result = xp.zeros((groups, features, math.prod(shape[1:])), dtype=images.dtype)
    for block in _blocks(images, windows):
        view = xp.moveaxis(
            seen(xp, whole[block], windows), 0, len(shape) - 1
        )  # (channels, *kernel, batch, …)
        columns = view.reshape(groups, result.shape[2], -1)
        flat = values[block].swapaxes(0, 1).reshape(groups, features, -1)
        result += xp.matmul(flat, columns.swapaxes(1, 2))
    return result.reshape(shape)


def _blocks(images: Array, windows: Windows) -> Iterator[slice]:
    """Parts of the batch whose columns take no more than `COLUMN_BYTES`, or a single image."""
    batch, channels = images.shape[:2]
    column_bytes = channels * math.prod(windows.kernel) * math.prod(windows.counts) * images.dtype.itemsize
    size = max(1, COLUMN_BYTES // max(1, column_bytes))
    return (slice(first, first + size) for first in range(0, batch, size))


def _with_bias(images: Array, bias: Array | None) -> Array:
    if bias is not None:
        images += bias.reshape(-1, *(1,) * (images.ndim - 2))
    return images


def _bias_gradient(gradient: Array) -> Array:
    return gradient.sum(axis=(0, *range(2, gradient.ndim)))


def _of_convolution(context: NodeContext, x: Array, weight: Array) -> tuple[Windows, int]:
    groups = int(context.attribute("group", 1))
    if x.ndim < 3 or weight.ndim != x.ndim:
        raise _misfit(
            context, x, weight, "both need a batch or features, channels, and the same spatial axes"
        )
    if x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise _misfit(context, x, weight, f"with {groups} groups they must be (batch, channels, …) and "
                                       f"(features, channels / {groups}, …)")  # fmt: skip
    return convolution(context, x.shape[2:], weight.shape[2:]), groups


def _of_transposed(context: NodeContext, x: Array, weight: Array) -> tuple[Windows, int]:
    groups = int(context.attribute("group", 1))
    if x.ndim < 3 or weight.ndim != x.ndim:
        raise _misfit(
            context, x, weight, "both need a batch or channels, features, and the same spatial axes"
        )
    if x.shape[1] != weight.shape[0] or x.shape[1] % groups:
        raise _misfit(context, x, weight, f"with {groups} groups they must be (batch, channels, …) and "
                                       f"(channels, features / {groups}, …)")  # fmt: skip
    return transposed(context, x.shape[2:], weight.shape[2:]), groups


def _misfit(context: NodeContext, x: Array, weight: Array, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{context.node} has x of {x.shape} and weights of {weight.shape}: {expected}")


OPERATORS: Mapping[str, ArrayOperator] = {"Conv": Conv(), "ConvTranspose": ConvTranspose()}
