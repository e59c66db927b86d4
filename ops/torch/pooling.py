"""Pooling: the greatest, the mean, the norm, in windows and over whole images"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.geometry.windows import Sizes, Window
from d5ray.ops.torch.types import is_floating, known_rank
from d5ray.ops.torch.windows import needs_sizes, padded, window_for, with_sizes

_AVERAGES: tuple[Kernel, ...] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
_MAXIMA: tuple[Kernel, ...] = (torch.max_pool1d, torch.max_pool2d, torch.max_pool3d)
_MAXIMA_WITH_PLACES: tuple[Kernel, ...] = (
    F.max_pool1d_with_indices,
    F.max_pool2d_with_indices,
    F.max_pool3d_with_indices,
)


def average(context: NodeContext) -> Kernel:
    """AveragePool; where the padding depends on the sizes of the image, it is built when they are known."""
    return with_sizes(_average, context, needs_sizes(context))


def _average(context: NodeContext, kernel: Sizes, sizes: Sizes | None) -> Kernel:
    """PyTorch's own function, unless windows are dilated, or the padding is of a kind it does not take."""
    own = window_for(context, kernel, sizes)
    with_padding = bool(context.attribute("count_include_pad", 0))
    function, strides, padding, ceil = _AVERAGES[len(kernel) - 1], own.strides, own.before, own.rounds_up
    if not own.dilated and _fits(own):

        def avg_pool(x: Tensor) -> Any:
            return function(x, kernel, strides, padding, ceil, with_padding)

        return avg_pool

    def avg_of_sums(x: Tensor) -> Tensor:
        return _sums(x, own) / _elements(x, own, with_padding)

    return avg_of_sums


def norm(context: NodeContext) -> Kernel:
    """LpPool; where the padding depends on the sizes of the image, it is built when they are known."""
    return with_sizes(_norm, context, needs_sizes(context))


def _norm(context: NodeContext, kernel: Sizes, sizes: Sizes | None) -> Kernel:
    """(Σ |x|ᵖ)^(1/p) over every window."""
    own, p = window_for(context, kernel, sizes), context.attribute("p", 2)

    def lp_pool(x: Tensor) -> Tensor:
        return _sums(x.abs().pow(p), own).pow(1 / p)

    return lp_pool


def maximum(context: NodeContext) -> Kernel:
    """MaxPool for any type: integers are computed in float32, which holds those of 8 bits exactly."""
    built = with_sizes(_maximum, context, needs_sizes(context))

    def max_pool_of_any(x: Tensor) -> Any:
        """Integers, which ONNX has of 8 bits here, are exact in float32."""
        if x.is_floating_point():
            return built(x)
        found = built(x.float())
        return (found[0].to(x.dtype), found[1]) if isinstance(found, tuple) else found.to(x.dtype)

    return built if is_floating(context) else max_pool_of_any


def _maximum(context: NodeContext, kernel: Sizes, sizes: Sizes | None) -> Kernel:
    own, rank = window_for(context, kernel, sizes), len(kernel)
    strides, dilations, ceil = own.strides, own.dilations, own.rounds_up
    with_places = len(context.node.outputs) > 1
    function = (_MAXIMA_WITH_PLACES if with_places else _MAXIMA)[rank - 1]
    fits, padding = _fits(own), own.before
    columns_first = bool(context.attribute("storage_order", 0))

    def max_pool(x: Tensor) -> Any:
        return function(x, kernel, strides, padding, dilations, ceil)

    def of_padded(x: Tensor) -> Any:
        """Padding of any kind, with what is smaller than everything."""
        more = own.beyond(x.shape[2:])
        return function(padded(x, own, -torch.inf, more), kernel, strides, (0,) * rank, dilations, False)

    values = max_pool if fits else of_padded

    def max_pool_with_places(x: Tensor) -> Any:
        greatest, places = values(x)
        frame, begins = list(x.shape[2:]), (0,) * rank
        if not fits:
            more, begins = own.beyond(frame), own.before
            frame = [sum(each) for each in zip(frame, begins, own.after, more, strict=True)]
        return greatest, _flat_places(places, x, frame, begins, columns_first)

    return max_pool_with_places if with_places else values


def _flat_places(places: Tensor, x: Tensor, frame: list[int], begins: Sizes, columns_first: bool) -> Tensor:
    """The places of elements in the whole tensor x, from those in each padded image of a channel.

    places: (batch, channels, ...), counted row by row within a frame of these sizes around each image.
    columns_first: within an image, elements are counted column by column.
    """
    sizes = x.shape[2:]
    strides = [1] * len(sizes)
    order = range(len(sizes)) if columns_first else reversed(range(len(sizes)))
    stride = 1
    for axis in order:
        strides[axis] = stride
        stride *= sizes[axis]
    images = torch.arange(x.shape[0] * x.shape[1], device=x.device).reshape(x.shape[:2])
    flat = (images * stride).reshape(*x.shape[:2], *(1,) * len(sizes)).expand(places.shape)
    for axis in reversed(range(len(sizes))):
        flat = flat + (places % frame[axis] - begins[axis]) * strides[axis]
        places = torch.div(places, frame[axis], rounding_mode="floor")
    return flat


def over_whole(function: Callable[..., Tensor]) -> KernelFactory:
    """A kernel factory for whole images: (batch, channels, …) to (batch, channels, 1, …)."""

    def build(context: NodeContext) -> Kernel:
        rank = known_rank(context)
        axes = None if rank is None else tuple(range(2, rank))

        def of_known(x: Tensor) -> Tensor:
            return function(x, axes, keepdim=True)

        def of_any(x: Tensor) -> Tensor:
            return function(x, tuple(range(2, x.dim())), keepdim=True)

        return of_any if axes is None else of_known

    return build


def _fits(own: Window) -> bool:
    """True if PyTorch takes the padding: equal at both ends, and at most half a window."""
    return own.before == own.after and all(
        before <= size // 2 for before, size in zip(own.before, own.kernel, strict=True)
    )


def _sums(x: Tensor, own: Window) -> Tensor:
    """Sums over windows, axis by axis: as many additions as the kernel has rows and columns."""
    counts = own.counts(x.shape[2:])
    x = padded(x, own, 0.0, own.beyond(x.shape[2:]))
    for axis, count in enumerate(counts):
        stride, dilation = own.strides[axis], own.dilations[axis]
        last = (count - 1) * stride + 1
        pieces = [
            x.narrow(axis + 2, offset * dilation, last)[
                (slice(None),) * (axis + 2) + (slice(None, None, stride),)
            ]
            for offset in range(own.kernel[axis])
        ]
        x = reduce(torch.add, pieces)
    return x


def _elements(x: Tensor, own: Window, with_padding: bool) -> Tensor:
    """The number of elements in each window, in the padding too if `with_padding`; shaped like the image."""
    result = torch.ones((), dtype=x.dtype, device=x.device)
    for axis, (count, size) in enumerate(zip(own.counts(x.shape[2:]), x.shape[2:], strict=True)):
        low, high = own.before[axis], own.before[axis] + size
        if with_padding:
            low, high = 0, high + own.after[axis]
        starts = range(0, count * own.strides[axis], own.strides[axis])
        reach = range(0, own.extents[axis], own.dilations[axis])
        within = [sum(low <= start + offset < high for offset in reach) for start in starts]
        result = result.unsqueeze(-1) * torch.tensor(within, dtype=x.dtype, device=x.device)
    return result


FACTORIES: Mapping[str, KernelFactory] = {
    "AveragePool": average,
    "GlobalAveragePool": over_whole(torch.mean),
    "GlobalMaxPool": over_whole(torch.amax),
    "LpPool": norm,
    "MaxPool": maximum,
}
