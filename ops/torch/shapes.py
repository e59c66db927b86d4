"""Operators that rearrange elements: Reshape, Transpose, Concat, Slice, Pad and their family"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.torch.builders import Value, directly, number, with_values
from d5ray.ops.torch.padding import pad
from d5ray.ops.torch.types import known_rank
from d5ray.ops.torch.unsigned import through_signed


def concat(context: NodeContext) -> Kernel:
    """The inputs joined along the node's axis."""
    axis = context.required("axis")

    def concat(*tensors: Tensor) -> Tensor:
        return torch.cat(tensors, axis)

    return concat


def depth_to_space(context: NodeContext) -> Kernel:
    """(batch, channels, height, width) to (batch, channels / block², height · block, width · block)."""
    block = context.required("blocksize")
    columns_first = context.attribute("mode", "DCR") == "CRD"

    def depth_to_space(x: Tensor) -> Tensor:
        if columns_first:
            return F.pixel_shuffle(x, block)
        batch, channels, height, width = x.shape
        pieces = x.reshape(batch, block, block, channels // block**2, height, width)
        shape = (batch, channels // block**2, height * block, width * block)
        return pieces.permute(0, 3, 4, 1, 5, 2).reshape(shape)

    return depth_to_space


def space_to_depth(context: NodeContext) -> Kernel:
    """(batch, channels, height, width) to (batch, channels · block², height / block, width / block)."""
    block = context.required("blocksize")
    columns_first = context.attribute("mode", "DCR") == "CRD"

    def space_to_depth(x: Tensor) -> Tensor:
        if columns_first:
            return F.pixel_unshuffle(x, block)
        batch, channels, height, width = x.shape
        pieces = x.reshape(batch, channels, height // block, block, width // block, block)
        shape = (batch, channels * block**2, height // block, width // block)
        return pieces.permute(0, 3, 5, 1, 2, 4).reshape(shape)

    return space_to_depth


@with_values(1)
def expand(context: NodeContext, given: Value) -> Kernel:
    """Expand, broadcasting both ways: a 1 in the new shape leaves the axis as it is."""
    shape = tuple(given)

    def expand(x: Tensor, shape_: Tensor) -> Tensor:
        if x.dim() <= len(shape) and 1 not in shape:
            return x.expand(shape)
        return x.expand(np.broadcast_shapes(x.shape, shape))

    return expand


def flatten(context: NodeContext) -> Kernel:
    """A matrix: the axes before `axis`, and the others."""
    axis = context.attribute("axis", 1)
    if axis == 1 and (known_rank(context) or 0) > 1:

        def flatten(x: Tensor) -> Tensor:
            return torch.flatten(x, 1)

        return flatten

    def to_matrix(x: Tensor) -> Tensor:
        return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))

    return to_matrix


def identity(x: Tensor) -> Tensor:
    """The input itself, not a copy."""
    return x


@with_values(1)
def reshape(context: NodeContext, given: Value) -> Kernel:
    """-1 is for the size that is left over, 0 for the size that the axis has, unless `allowzero`."""
    shape: Sequence[int] = tuple(given)
    copied = [axis for axis, size in enumerate(shape) if size == 0 and not context.attribute("allowzero", 0)]

    def reshape(x: Tensor, shape_: Tensor) -> Tensor:
        return x.reshape(shape)

    def with_copied(x: Tensor, shape_: Tensor) -> Tensor:
        return x.reshape([x.shape[axis] if axis in copied else size for axis, size in enumerate(shape)])

    return with_copied if copied else reshape


@with_values(1, 2, 3, 4)
def slice_(context: NodeContext, starts: Value, ends: Value, axes: Value, steps: Value) -> Kernel:
    """NumPy's slices, along some axes; backwards, too, a start before the first element is moved to it."""
    along = tuple(range(len(starts)) if axes is None else axes)
    pieces = tuple(map(slice, starts, ends, [1] * len(starts) if steps is None else steps))

    def everywhere(rank: int) -> tuple[slice, ...]:
        indices = [slice(None)] * rank
        for axis, piece in zip(along, pieces, strict=True):
            indices[axis] = piece
        return tuple(indices)

    rank = known_rank(context)
    known = None if rank is None else everywhere(rank)

    def slice_forwards(x: Tensor, *others: Tensor | None) -> Tensor:
        return x[known or everywhere(x.dim())]

    def slice_backwards_too(x: Tensor, *others: Tensor | None) -> Tensor:
        """PyTorch has no negative steps: it goes forwards through what was turned round."""
        for axis, piece in zip(along, pieces, strict=True):
            size = x.shape[axis]
            start = max(piece.start, -size) if piece.step < 0 else piece.start
            places = range(*slice(start, piece.stop, piece.step).indices(size))
            if places.step < 0:
                x = x.flip(axis)
                last = size - 1
                places = range(last - places.start, last - places.stop, -places.step)
            x = x[(slice(None),) * (axis % x.dim()) + (slice(places.start, places.stop, places.step),)]
        return x

    return slice_backwards_too if any(piece.step < 0 for piece in pieces) else slice_forwards


@with_values(1)
def split(context: NodeContext, given: Value) -> Kernel:
    """The input split by sizes, or into as many equal parts as outputs; the last one may be smaller."""
    axis, count = context.attribute("axis", 0), len(context.node.outputs)

    def split(x: Tensor, sizes: Tensor | None = None) -> Any:
        parts = torch.split(x, given or max(-(-x.shape[axis] // count), 1), axis)
        return parts if count > 1 else parts[0]

    return split


@with_values(1)
def squeeze(context: NodeContext, given: Value) -> Kernel:
    """The input without the axes given, or without all of size 1 where none are given."""
    axes = None if given is None else tuple(given)

    def squeeze(x: Tensor, axes_: Tensor | None = None) -> Tensor:
        return torch.squeeze(x) if axes is None else torch.squeeze(x, axes)

    return squeeze


@with_values(1)
def tile(context: NodeContext, given: Value) -> Kernel:
    """The input repeated along each axis as often as the second input says."""
    repeats = tuple(given)

    def tile(x: Tensor, repeats_: Tensor) -> Tensor:
        return x.repeat(repeats)

    return tile


def transpose(context: NodeContext) -> Kernel:
    """The input with its axes in the node's order, reversed where it has none; a view."""
    order = context.attribute("perm")

    def transpose(x: Tensor) -> Tensor:
        return x.permute(order)

    def turn_round(x: Tensor) -> Tensor:
        return x.permute(tuple(reversed(range(x.dim()))))

    return turn_round if order is None else transpose


@with_values(1)
def triangle(context: NodeContext, given: Value) -> Kernel:
    """The elements on and above the k-th diagonal, or on and below it; 0 elsewhere."""
    k = 0 if given is None else number(given)
    function = torch.triu if context.attribute("upper", 1) else torch.tril

    def triangle(x: Tensor, k_: Tensor | None = None) -> Tensor:
        return function(x, k)

    return triangle


@with_values(1)
def unsqueeze(context: NodeContext, given: Value) -> Kernel:
    """The new axes are counted in the output."""
    axes = given if isinstance(given, list) else [given]

    def unsqueeze(x: Tensor, axes_: Tensor) -> Tensor:
        rank = x.dim() + len(axes)
        for axis in sorted(axis % rank for axis in axes):
            x = x.unsqueeze(axis)
        return x

    return unsqueeze


FACTORIES: Mapping[str, KernelFactory] = {
    "Concat": concat,
    "DepthToSpace": through_signed(depth_to_space),
    "Expand": expand,
    "Flatten": flatten,
    "Identity": directly(identity),
    "Pad": pad,
    "Reshape": reshape,
    "Slice": slice_,
    "SpaceToDepth": through_signed(space_to_depth),
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": through_signed(triangle),
    "Unsqueeze": unsqueeze,
}
