"""Windows that move over images: the padding of a node where sizes are known, and an image with it"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import Kernel, NodeContext
from d5ray.ops.geometry.windows import Sizes, Window, window
from d5ray.ops.torch.types import known_sizes


def padded(x: Tensor, own: Window, value: float = 0.0, more: Sequence[int] | None = None) -> Tensor:
    """x with the padding around it, and more of it after the last elements."""
    after = own.after if more is None else tuple(map(sum, zip(own.after, more, strict=True)))
    pairs = zip(reversed(own.before), reversed(after), strict=True)
    return F.pad(x, [amount for pair in pairs for amount in pair], value=value)


def window_for(context: NodeContext, kernel: Sizes, sizes: Sizes | None) -> Window:
    """A node's window with its padding for an image of these sizes; None if that does not depend on them."""
    rank = len(kernel)
    if rank > 3 or rank == 0:
        raise ConfigurationError(
            f"the node {context.node} works along {rank} spatial axes; PyTorch has functions for 1, 2 and 3"
        )
    own = window(context, kernel)
    pads = own.padding(sizes or (1,) * rank)  # any sizes do, with a stride of 1
    return replace(own, before=tuple(b for b, _ in pads), after=tuple(a for _, a in pads), auto_pad="NOTSET")


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
