"""Axes of operators that rearrange: where each comes to lie, and which are broken up"""

from collections.abc import Iterable

from d5ray.networks.axes.axis_map import (
    FAR,
    AxisMap,
    CannotDivide,
    Labels,
    integers,
    kept,
    rank_of,
)
from d5ray.operators.nodes.node_context import NodeContext


def first_alone(context: NodeContext) -> AxisMap:
    """CastLike: of the second input only the type matters."""
    return kept(context)


def flatten(context: NodeContext) -> AxisMap:
    """Flatten: the first axis stays where all others become one."""
    rank, at = rank_of(context, 0), int(context.attribute("axis", 1))
    first = 0 if (at + rank if at < 0 else at) == 1 else None
    return AxisMap(((first, *(None,) * (rank - 1)),), ((first, None),), "makes one axis of others and")


def transpose(context: NodeContext) -> AxisMap:
    """Transpose: the axes in their new order."""
    rank = rank_of(context, 0)
    return _moved(range(rank), context.attribute("perm", tuple(reversed(range(rank)))))


def squeeze(context: NodeContext) -> AxisMap:
    """Squeeze: the axes but for those taken out, which must be named: a part may have one element of any."""
    rank, axes = rank_of(context, 0), integers(context, 1)
    if not axes:
        raise CannotDivide("it takes out whatever axis has one element, also that of a single sample")
    gone = {each % rank for each in axes}
    labels = tuple(None if axis in gone else axis for axis in range(rank))
    return AxisMap((labels,), (tuple(axis for axis in labels if axis is not None),), "takes out")


def unsqueeze(context: NodeContext) -> AxisMap:
    """Unsqueeze: new axes between the old ones."""
    axes, old = integers(context, 1) or (), iter(range(rank_of(context, 0)))
    rank = rank_of(context, 0) + len(axes)
    new = {each % rank for each in axes}
    return _moved(range(rank_of(context, 0)), [None if each in new else next(old) for each in range(rank)])


def concat(context: NodeContext) -> AxisMap:
    """Concat: all inputs have the axes, and are joined along one."""
    one = kept(context, [int(context.required("axis"))], "puts together along")
    return AxisMap(one.inputs * len(context.node.inputs), one.outputs, one.does)


def split(context: NodeContext) -> AxisMap:
    """Split: every output has the axes, of which one is taken apart."""
    return kept(context, [int(context.attribute("axis", 0))], "splits along")


def slices(context: NodeContext) -> AxisMap:
    """Slice: an axis of which all is taken is not broken up."""
    starts, ends = integers(context, 1) or (), integers(context, 2) or ()
    axes = integers(context, 3) or tuple(range(len(starts)))
    steps = integers(context, 4) or (1,) * len(starts)
    pieces = zip(starts, ends, axes, steps, strict=True)
    cut = [at for start, end, at, step in pieces if (start, step) != (0, 1) or end < FAR]
    return kept(context, cut, "takes a piece of")


def pad(context: NodeContext) -> AxisMap:
    """Pad: axes that get nothing are not broken up."""
    widths, axes = integers(context, 1) or (), integers(context, 3) or tuple(range(rank_of(context, 0)))
    pairs = zip(axes, widths, widths[len(axes) :], strict=False)
    return kept(context, [at for at, *pair in pairs if any(pair)], "adds to")


def tile(context: NodeContext) -> AxisMap:
    """Tile: axes that are there once are not broken up."""
    repeats = integers(context, 1) or ()
    return kept(context, [axis for axis, count in enumerate(repeats) if count != 1], "repeats along")


def gather(context: NodeContext) -> AxisMap:
    """Gather: the axes of the indices in the place of the one chosen from."""
    at = int(context.attribute("axis", 0)) % rank_of(context, 0)
    data = tuple(None if axis == at else axis for axis in range(rank_of(context, 0)))
    indices = tuple(f"index {axis}" for axis in range(rank_of(context, 1)))
    return AxisMap((data, indices), ((*data[:at], *indices, *data[at + 1 :]),), "chooses from")


def elements(context: NodeContext) -> AxisMap:
    """GatherElements and ScatterElements: data, indices and updates have the same axes."""
    one = kept(context, [int(context.attribute("axis", 0))], "chooses along")
    return AxisMap(one.inputs * len(context.node.inputs), one.outputs, one.does)


def one_hot(context: NodeContext) -> AxisMap:
    """OneHot: a new axis for the classes."""
    rank = rank_of(context, 0)
    at = int(context.attribute("axis", -1)) % (rank + 1)
    return _moved(range(rank), [*range(at), None, *range(at, rank)])


def resize(context: NodeContext) -> AxisMap:
    """Resize: an axis that is named with a size or another scale than 1 is broken up."""
    rank = rank_of(context, 0)
    axes = [each % rank for each in context.attribute("axes", tuple(range(rank)))]
    scales = context.constants[2] if context.has_input(2) and 2 in context.constants else ()
    if len(scales):
        return kept(
            context,
            [at for at, each in zip(axes, scales, strict=True) if float(each) != 1.0],
            "changes the size of",
        )
    return kept(context, axes, "fixes the size of")


def _moved(old: Iterable[int], new: Iterable[int | None]) -> AxisMap:
    labels: Labels = tuple(new)
    return AxisMap((tuple(old),), (labels,))
