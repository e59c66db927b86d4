"""Pooling: the greatest, the mean, the norm, in windows and over whole images"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.operators.nodes.kernel_factory import Kernel, KernelFactory
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.torch.types import is_floating, known_rank
from d5ray.ops.torch.windows import Sizes, Windows, needs_sizes, windows, with_sizes

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
    window, ceil = windows(context, kernel, sizes), _ceil(context)
    padded = bool(context.attribute("count_include_pad", 0))
    function, strides, padding = _AVERAGES[len(kernel) - 1], window.strides, window.begins
    if _plain(window) and _fits(window):

        def avg_pool(x: Tensor) -> Any:
            return function(x, kernel, strides, padding, ceil, padded)

        return avg_pool

    def avg_of_sums(x: Tensor) -> Tensor:
        return _sums(x, window, ceil) / _elements(x, window, ceil, padded)

    return avg_of_sums


def norm(context: NodeContext) -> Kernel:
    """LpPool; where the padding depends on the sizes of the image, it is built when they are known."""
    return with_sizes(_norm, context, needs_sizes(context))


def _norm(context: NodeContext, kernel: Sizes, sizes: Sizes | None) -> Kernel:
    """(Σ |x|ᵖ)^(1/p) over every window."""
    window, ceil, p = windows(context, kernel, sizes), _ceil(context), context.attribute("p", 2)

    def lp_pool(x: Tensor) -> Tensor:
        return _sums(x.abs().pow(p), window, ceil).pow(1 / p)

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
    window, ceil, rank = windows(context, kernel, sizes), _ceil(context), len(kernel)
    strides, dilations = window.strides, window.dilations
    with_places = len(context.node.outputs) > 1
    function = (_MAXIMA_WITH_PLACES if with_places else _MAXIMA)[rank - 1]
    padding, padded = (window.begins, False) if _fits(window) else ((0,) * rank, True)
    columns_first = bool(context.attribute("storage_order", 0))

    def max_pool(x: Tensor) -> Any:
        return function(x, kernel, strides, padding, dilations, ceil)

    def of_padded(x: Tensor) -> Any:
        """Padding of any kind, with what is smaller than everything."""
        more = window.counts(x.shape[2:], ceil)[1]
        return function(window.pad(x, -torch.inf, more), kernel, strides, padding, dilations, False)

    values = of_padded if padded else max_pool

    def max_pool_with_places(x: Tensor) -> Any:
        greatest, places = values(x)
        if padded:
            more = window.counts(x.shape[2:], ceil)[1]
            frame = [sum(all_) for all_ in zip(x.shape[2:], window.begins, window.ends, more, strict=True)]
            begins = window.begins
        else:
            frame, begins = list(x.shape[2:]), (0,) * rank
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


def _ceil(context: NodeContext) -> bool:
    return bool(context.attribute("ceil_mode", 0)) and not context.attribute("auto_pad", "NOTSET").startswith(
        "SAME"
    )


def _plain(window: Windows) -> bool:
    return all(dilation == 1 for dilation in window.dilations)


def _fits(window: Windows) -> bool:
    """True if PyTorch takes the padding: equal at both ends, and at most half a window."""
    return window.symmetric and all(
        begin <= size // 2 for begin, size in zip(window.begins, window.kernel, strict=True)
    )


def _sums(x: Tensor, window: Windows, ceil: bool) -> Tensor:
    """Sums over windows, axis by axis: as many additions as the kernel has rows and columns."""
    counts, more = window.counts(x.shape[2:], ceil)
    x = window.pad(x, 0.0, more)
    for axis, count in enumerate(counts):
        stride, dilation = window.strides[axis], window.dilations[axis]
        last = (count - 1) * stride + 1
        pieces = [
            x.narrow(axis + 2, offset * dilation, last)[
                (slice(None),) * (axis + 2) + (slice(None, None, stride),)
            ]
            for offset in range(window.kernel[axis])
        ]
        x = reduce(torch.add, pieces)
    return x


def _elements(x: Tensor, window: Windows, ceil: bool, padded: bool) -> Tensor:
    """The number of elements in each window, in the padding too if `padded`; shaped like the image."""
    counts, _ = window.counts(x.shape[2:], ceil)
    result = torch.ones((), dtype=x.dtype, device=x.device)
    for axis, (count, size) in enumerate(zip(counts, x.shape[2:], strict=True)):
        low, high = window.begins[axis], window.begins[axis] + size
        if padded:
            low, high = 0, high + window.ends[axis]
        starts = range(0, count * window.strides[axis], window.strides[axis])
        reach = range(0, window.extents[axis], window.dilations[axis])
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
