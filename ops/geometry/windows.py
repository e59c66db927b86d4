"""Windows that slide over images: how many there are and where they lie, for convolution and pooling"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import NodeContext

Sizes = tuple[int, ...]  # one for every spatial axis


@final
@dataclass(frozen=True)
class Windows:
    """Windows of kernel elements over an image, axis by axis.

    Window o of an axis covers the elements o·stride − before + k·dilation, k in 0..kernel−1; what lies
    outside 0..image−1 is padding. counts: how many windows an axis has.
    """

    image: Sizes
    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    before: Sizes
    after: Sizes
    counts: Sizes

    @property
    def extents(self) -> Sizes:
        """The elements from a window's first to its last."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def reach(self) -> Sizes:
        """The elements of the padded image up to the last window's end."""
        steps = zip(self.counts, self.strides, self.extents, strict=True)
        return tuple((count - 1) * stride + extent for count, stride, extent in steps)


def convolution(context: NodeContext, image: Sizes, kernel: Sizes) -> Windows:
    """The windows of a Conv, whose kernel is the weight's (ONNX: Conv)."""
    shape = _sizes(context, "kernel_shape", kernel, len(image))
    if shape != kernel:
        raise ConfigurationError(f"{context.node} has kernel_shape {shape} for weights of {kernel}: drop it")
    return _windows(context, image, kernel, rounds_up=False)


def pooling(context: NodeContext, image: Sizes) -> Windows:
    """The windows of a MaxPool, AveragePool or LpPool; ceil_mode lets the last one overlap the end."""
    kernel = _sizes(context, "kernel_shape", context.required("kernel_shape"), len(image))
    return _windows(context, image, kernel, rounds_up=bool(context.attribute("ceil_mode", 0)))


def transposed(context: NodeContext, windows: Sizes, kernel: Sizes) -> Windows:
    """The windows of a ConvTranspose: there is one for each element of its input, over its output.

    The output's size and padding follow from one another (ONNX: ConvTranspose); an output that is larger
    than the windows reach gets nothing there.
    """
    rank = len(windows)
    ones, zeros = (1,) * rank, (0,) * rank
    strides = _sizes(context, "strides", ones, rank)
    dilations = _sizes(context, "dilations", ones, rank)
    extra = _sizes(context, "output_padding", zeros, rank)
    natural = tuple(
        stride * (count - 1) + more + (k - 1) * dilation + 1
        for stride, count, more, k, dilation in zip(strides, windows, extra, kernel, dilations, strict=True)
    )
    auto_pad = _auto_pad(context)
    asked = context.attribute("output_shape")
    if asked is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        asked = tuple(count * stride for count, stride in zip(windows, strides, strict=True))
    if asked is None:
        before, after = _pads(context, rank) if auto_pad == "NOTSET" else (zeros, zeros)
        image = tuple(n - b - a for n, b, a in zip(natural, before, after, strict=True))
    else:
        image = tuple(asked)[-rank:]  # exporters have written batch and channels too
        surplus = tuple(max(0, n - size) for n, size in zip(natural, image, strict=True))
        before, after = _split(surplus, more_after=auto_pad == "SAME_UPPER")
    if min(image) < 1:
        raise ConfigurationError(f"{context.node} leaves an output of {image}: its padding is too large")
    return Windows(image, kernel, strides, dilations, before, after, windows)


def _windows(context: NodeContext, image: Sizes, kernel: Sizes, *, rounds_up: bool) -> Windows:
    rank = len(image)
    strides = _sizes(context, "strides", (1,) * rank, rank)
    dilations = _sizes(context, "dilations", (1,) * rank, rank)
    extents = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    auto_pad = _auto_pad(context)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        counts = tuple(-(-size // stride) for size, stride in zip(image, strides, strict=True))
        needed = tuple(
            max(0, (count - 1) * stride + extent - size)
            for count, stride, extent, size in zip(counts, strides, extents, image, strict=True)
        )
        before, after = _split(needed, more_after=auto_pad == "SAME_UPPER")
        return Windows(image, kernel, strides, dilations, before, after, counts)
    before, after = _pads(context, rank) if auto_pad == "NOTSET" else ((0,) * rank, (0,) * rank)
    counts = tuple(
        _count(size, extent, stride, b, a, rounds_up=rounds_up and auto_pad == "NOTSET")
        for size, extent, stride, b, a in zip(image, extents, strides, before, after, strict=True)
    )
    if min(counts) < 1:
        raise ConfigurationError(
            f"{context.node} finds no place for its window of {extents} in an image of {image} with padding "
            f"of {before} before and {after} after: take a smaller kernel or more padding"
        )
    return Windows(image, kernel, strides, dilations, before, after, counts)


def _auto_pad(context: NodeContext) -> str:
    found = str(context.attribute("auto_pad", "NOTSET"))
    if found not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ConfigurationError(
            f"{context.node} has auto_pad {found!r}: it must be NOTSET, VALID, SAME_UPPER or SAME_LOWER"
        )
    return found


def _count(size: int, extent: int, stride: int, before: int, after: int, *, rounds_up: bool) -> int:
    room = size + before + after - extent
    if not rounds_up:
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - 1 if (count - 1) * stride >= size + before else count  # none starts behind the image


def _split(total: Sizes, *, more_after: bool) -> tuple[Sizes, Sizes]:
    """Padding in halves, the odd element after or before."""
    less = tuple(each // 2 for each in total)
    more = tuple(each - half for each, half in zip(total, less, strict=True))
    return (less, more) if more_after else (more, less)


def _pads(context: NodeContext, rank: int) -> tuple[Sizes, Sizes]:
    pads = _sizes(context, "pads", (0,) * (2 * rank), 2 * rank)
    return pads[:rank], pads[rank:]


def _sizes(context: NodeContext, name: str, default: Sequence[int], length: int) -> Sizes:
    found = tuple(context.attribute(name, default))
    if len(found) != length:
        raise ConfigurationError(
            f"{context.node} has {name} {found}, but its input has "
            f"{length if name != 'pads' else length // 2} spatial axes: give {length} numbers"
        )
    return found
