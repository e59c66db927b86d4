"""Conv and ConvTranspose, in one to three dimensions, grouped, dilated, strided"""

from collections.abc import Mapping
from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.geometry.windows import Sizes, Window, halves, window
from d5ray.ops.torch.windows import needs_sizes, padded, window_for, with_sizes


def convolution(context: NodeContext) -> Kernel:
    """Conv; where the padding depends on the sizes of the image, it is built when they are known."""
    return with_sizes(_convolution, context, needs_sizes(context))


def _convolution(context: NodeContext, kernel: Sizes, sizes: Sizes | None) -> Kernel:
    """Equal padding at both ends goes into PyTorch's call, other padding is laid around the image before."""
    own, groups = window_for(context, kernel, sizes), context.attribute("group", 1)
    function = (F.conv1d, F.conv2d, F.conv3d)[len(kernel) - 1]
    strides, padding, dilations = own.strides, own.before, own.dilations

    def conv(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return function(x, weight, bias, strides, padding, dilations, groups)

    def conv_of_padded(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return function(padded(x, own), weight, bias, strides, 0, dilations, groups)

    return conv if own.before == own.after else conv_of_padded


def transposed(context: NodeContext) -> Kernel:
    """ConvTranspose; where the node names the output's sizes, it is built when the image's are known."""
    return with_sizes(_transposed, context, bool(context.attribute("output_shape")))


def _transposed(context: NodeContext, kernel: Sizes, sizes: Sizes | None) -> Kernel:
    own, groups = _window_of_transposed(context, kernel, sizes), context.attribute("group", 1)
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(kernel) - 1]
    strides, dilations, begins = own.strides, own.dilations, own.before
    given = _output_padding(context, len(kernel))
    # PyTorch crops `begins` from both ends, and then adds this to the end.
    more = tuple(g + begin - end for g, begin, end in zip(given, begins, own.after, strict=True))
    limits = map(max, strides, dilations)
    if min(begins) >= 0 and all(0 <= each < limit for each, limit in zip(more, limits, strict=True)):

        def conv_transpose(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
            return function(x, weight, bias, strides, begins, more, groups, dilations)

        return conv_transpose
    around = [
        amount
        for begin, g, end in reversed([*zip(begins, given, own.after, strict=True)])
        for amount in (-begin, g - end)
    ]
    more_around, less_around = ([max(each, 0) for each in around], [min(each, 0) for each in around])

    def conv_transpose_cropped(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        full = function(x, weight, None, strides, 0, 0, groups, dilations)
        result = F.pad(F.pad(full, more_around), less_around)  # one end may need what the other gives
        return result if bias is None else result + bias.reshape(-1, *(1,) * len(kernel))

    return conv_transpose_cropped


def _window_of_transposed(context: NodeContext, kernel: Sizes, sizes: Sizes | None) -> Window:
    """The window with the padding to crop: as given, or what is too much for the given output's shape."""
    own, explicit, rank = window(context, kernel), context.attribute("output_shape"), len(kernel)
    if not explicit and not own.auto_pad.startswith("SAME"):
        return window_for(context, kernel, None)
    pads = []
    for axis, more in enumerate(_output_padding(context, rank)):
        size = 1 if sizes is None else sizes[axis]  # any does, where the output is as many times larger
        output = explicit[axis - rank] if explicit else size * own.strides[axis]
        total = own.strides[axis] * (size - 1) + more + own.extents[axis] - output
        pads.append(halves(total, more_after=own.auto_pad == "SAME_UPPER"))
    return replace(own, before=tuple(b for b, _ in pads), after=tuple(a for _, a in pads), auto_pad="NOTSET")


def _output_padding(context: NodeContext, rank: int) -> Sizes:
    return tuple(context.attribute("output_padding") or (0,) * rank)


FACTORIES: Mapping[str, KernelFactory] = {"Conv": convolution, "ConvTranspose": transposed}
