"""Axes of operators that compute value by value, along some axes, or over them"""

from d5ray.networks.axes.axis_map import MEAN, OTHER, SUM, AxisMap, Label, integers, kept, rank_of
from d5ray.operators.nodes.node_context import Site

REDUCTIONS = {"ReduceSum": SUM, "ReduceSumSquare": SUM, "ReduceL1": SUM, "ReduceMean": MEAN}


def pointwise(site: Site) -> AxisMap:
    """Element by element: shapes broadcast, and axes are counted from the last one."""
    ranks = [rank_of(site, slot) if site.has_input(slot) else 0 for slot in range(len(site.node.inputs))]
    rank = max(ranks)
    inputs = tuple(tuple(range(rank - each, rank)) for each in ranks)
    return AxisMap(inputs, (tuple(range(rank)),) * len(site.node.outputs), broadcasts=True)


def along_one_axis(site: Site) -> AxisMap:
    """Softmax and its like: each slice along one axis by itself, by default the last."""
    return kept(site, [int(site.attribute("axis", -1))])


def last_axes(site: Site) -> AxisMap:
    """LayerNormalization and RMSNormalization: over all axes from one on."""
    rank = rank_of(site, 0)
    return kept(site, range(int(site.attribute("axis", -1)) % rank, rank), "normalizes over")


def mean_variance(site: Site) -> AxisMap:
    """MeanVarianceNormalization: over the axes that it names, by default all but the channels."""
    return kept(site, site.attribute("axes", (0, 2, 3)), "normalizes over")


def cumulative(site: Site) -> AxisMap:
    """CumSum: along the axis that its input names."""
    return kept(site, integers(site, 1) or (0,), "adds up along")


def triangle(site: Site) -> AxisMap:
    """Trilu: of matrices, the last two axes."""
    return kept(site, (-2, -1), "cuts a triangle over")


def reduced(site: Site) -> AxisMap:
    """Reductions over some axes, or all of them."""
    rank, axes = rank_of(site, 0), integers(site, 1)
    if not axes and site.attribute("noop_with_empty_axes", 0):
        return kept(site)
    over = {each % rank for each in axes} if axes else set(range(rank))
    how = REDUCTIONS.get(site.node.type, OTHER)
    return AxisMap((tuple(range(rank)),), (_without(site, rank, over),), "reduces over", how)


def extreme(site: Site) -> AxisMap:
    """ArgMax and ArgMin: along one axis, by default the first."""
    rank = rank_of(site, 0)
    over = {int(site.attribute("axis", 0)) % rank}
    labels = tuple(None if axis in over else axis for axis in range(rank))
    return AxisMap((labels,), (_without(site, rank, over),), "looks along")


def _without(site: Site, rank: int, gone: set[int]) -> tuple[Label | None, ...]:
    """The axes that are left of the input's, with one element or not at all in the places of the others."""
    if site.attribute("keepdims", 1):
        return tuple(None if axis in gone else axis for axis in range(rank))
    return tuple(axis for axis in range(rank) if axis not in gone)
