"""Windows that move over images: their kernel, strides and dilations, and the padding around the image"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch.nn.functional as F
from torch import Tensor

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.kernel_factory import Kernel
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.torch.types import known_sizes

Sizes = tuple[int, ...]


@final
@dataclass(frozen=True)
class Windows:
    """The attributes of a convolution or pooling; tuples have one entry for each spatial axis."""

    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    begins: Sizes  # the padding before the first element
    ends: Sizes  # and after the last

    @property
    def symmetric(self) -> bool:
        """True if every axis has as much padding at its begin as at its end."""
        return self.begins == self.ends

    @property
    def extents(self) -> Sizes:
        """The number of elements that a window reaches over, for every axis."""
        return tuple(
            (size - 1) * dilation + 1 for size, dilation in zip(self.kernel, self.dilations, strict=True)
        )

    def pad(self, x: Tensor, value: float = 0.0, more: Sequence[int] | None = None) -> Tensor:
        """x with the padding around it, and more of it after the last elements."""
        ends = self.ends if more is None else tuple(map(sum, zip(self.ends, more, strict=True)))
        pairs = zip(reversed(self.begins), reversed(ends), strict=True)
        return F.pad(x, [amount for pair in pairs for amount in pair], value=value)

    def counts(self, sizes: Sequence[int], ceil: bool) -> tuple[Sizes, Sizes]:
        """The number of windows along every axis, and the reach of the last ones over the padding.

        ceil: one more window where elements are left over, unless it starts in the padding at the end.
        """
        counts, more = [], []
        for axis, size in enumerate(sizes):
            begin, stride, extent = self.begins[axis], self.strides[axis], self.extents[axis]
            room = size + begin + self.ends[axis] - extent
            count = (-(-room // stride) if ceil else room // stride) + 1
            if ceil and (count - 1) * stride >= size + begin:
                count -= 1
            counts.append(count)
            more.append(max((count - 1) * stride - room, 0))
        return tuple(counts), tuple(more)


def windows(context: NodeContext, kernel: Sizes, sizes: Sizes | None) -> Windows:
    """A node's attributes, for an image of these sizes; None if the padding does not depend on them."""
    rank = len(kernel)
    if rank > 3 or rank == 0:
        raise ConfigurationError(
            f"the node {context.node} works along {rank} spatial axes; PyTorch has functions for 1, 2 and 3"
        )
    strides = tuple(context.attribute("strides") or (1,) * rank)
    dilations = tuple(context.attribute("dilations") or (1,) * rank)
    automatic = context.attribute("auto_pad", "NOTSET")
    if not automatic.startswith("SAME"):
        pads = tuple(context.attribute("pads") or ()) if automatic == "NOTSET" else ()
        pads = pads or (0,) * (2 * rank)
        return Windows(kernel, strides, dilations, pads[:rank], pads[rank:])
    totals = []
    for axis, extent in enumerate(Windows(kernel, strides, dilations, (), ()).extents):
        size = 1 if sizes is None else sizes[axis]  # any does, with a stride of 1
        totals.append(max((-(-size // strides[axis]) - 1) * strides[axis] + extent - size, 0))
    return Windows(kernel, strides, dilations, *shared(totals, upper=automatic == "SAME_UPPER"))


def shared(totals: Sequence[int], *, upper: bool) -> tuple[Sizes, Sizes]:
    """Padding shared out to both ends; an odd one has its greater part at the end if `upper`."""
    less = tuple(total // 2 for total in totals)
    greater = tuple(total - total // 2 for total in totals)
    return (less, greater) if upper else (greater, less)


def needs_sizes(context: NodeContext) -> bool:
    """True if the padding depends on the sizes of the image."""
    strides = context.attribute("strides") or (1,)
    return context.attribute("auto_pad", "NOTSET").startswith("SAME") and any(
        stride != 1 for stride in strides
    )


def with_sizes(
    make: Callable[[NodeContext, Sizes, Sizes | None], Kernel], context: NodeContext, needed: bool
) -> Kernel:
    """The function that `make` gives for these sizes: now if they are known, else at each call."""
    kernel = context.attribute("kernel_shape") or known_sizes(context, 1, start=2)
    sizes = known_sizes(context, 0, start=2)
    if kernel and (sizes is not None or not needed):
        return make(context, tuple(kernel), sizes)

    def call(x: Tensor, *others: Tensor | None) -> Tensor:
        shape = kernel or others[0].shape[2:]  # type: ignore[union-attr]  # pooling has its kernel_shape
        result: Tensor = make(context, tuple(shape), tuple(x.shape[2:]))(x, *others)
        return result

    return call
