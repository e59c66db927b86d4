"""Axes of operators that compute value by value, along some axes, or over them"""

from d5ray.networks.axes.axis_map import MEAN, OTHER, SUM, AxisMap, Label, integers, kept, rank_of
from d5ray.operators.nodes.node_context import NodeContext

REDUCTIONS = {"ReduceSum": SUM, "ReduceSumSquare": SUM, "ReduceL1": SUM, "ReduceMean": MEAN}


def pointwise(context: NodeContext) -> AxisMap:
    """Element by element: shapes broadcast, and axes are counted from the last one."""
    ranks = [
        rank_of(context, slot) if context.has_input(slot) else 0 for slot in range(len(context.node.inputs))
    ]
    rank = max(ranks)
    inputs = tuple(tuple(range(rank - each, rank)) for each in ranks)
    return AxisMap(inputs, (tuple(range(rank)),) * len(context.node.outputs), broadcasts=True)


def along_one_axis(context: NodeContext) -> AxisMap:
    """Softmax and its like: each slice along one axis by itself, by default the last."""
    return kept(context, [int(context.attribute("axis", -1))])


def last_axes(context: NodeContext) -> AxisMap:
    """LayerNormalization and RMSNormalization: over all axes from one on."""
    rank = rank_of(context, 0)
    return kept(context, range(int(context.attribute("axis", -1)) % rank, rank), "normalizes over")


def mean_variance(context: NodeContext) -> AxisMap:
    """MeanVarianceNormalization: over the axes that it names, by default all but the channels."""
    return kept(context, context.attribute("axes", (0, 2, 3)), "normalizes over")


def cumulative(context: NodeContext) -> AxisMap:
    """CumSum: along the axis that its input names."""
    return kept(context, integers(context, 1) or (0,), "adds up along")


def triangle(context: NodeContext) -> AxisMap:
    """Trilu: of matrices, the last two axes."""
    return kept(context, (-2, -1), "cuts a triangle over")


def reduced(context: NodeContext) -> AxisMap:
    """Reductions over some axes, or all of them."""
    rank, axes = rank_of(context, 0), integers(context, 1)
    if not axes and context.attribute("noop_with_empty_axes", 0):
        return kept(context)
    over = {each % rank for each in axes} if axes else set(range(rank))
    how = REDUCTIONS.get(context.node.type, OTHER)
    return AxisMap((tuple(range(rank)),), (_without(context, rank, over),), "reduces over", how)


def extreme(context: NodeContext) -> AxisMap:
    """ArgMax and ArgMin: along one axis, by default the first."""
    rank = rank_of(context, 0)
    over = {int(context.attribute("axis", 0)) % rank}
    labels = tuple(None if axis in over else axis for axis in range(rank))
    return AxisMap((labels,), (_without(context, rank, over),), "looks along")


def _without(context: NodeContext, rank: int, gone: set[int]) -> tuple[Label | None, ...]:
    """The axes that are left of the input's, with one element or not at all in the places of the others."""
    if context.attribute("keepdims", 1):
        return tuple(None if axis in gone else axis for axis in range(rank))
    return tuple(axis for axis in range(rank) if axis not in gone)
