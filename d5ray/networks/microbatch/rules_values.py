"""Rules for operators that compute value by value, along some axes, or a loss: what their outputs hold"""

from d5ray.networks.microbatch.samples import (
    AVERAGE,
    SHARED,
    SUM,
    Kind,
    Kinds,
    MixesSamples,
    Samples,
    check_apart,
    check_shared,
    constant,
    rank_of,
    shape_of,
    the_axis,
)
from d5ray.operators.nodes.node_context import Site

RESHAPING = ("Identity", "Neg", "Squeeze", "Unsqueeze", "Reshape", "Cast", "ReduceMean", "ReduceSum")
ADDING = ("Add", "Sub", "Sum", "Mean", "Concat")


def pointwise(site: Site, kinds: Kinds) -> Kind:
    """Element by element, shapes broadcast: the samples of all inputs lie along one axis."""
    slots = [slot for slot in range(len(kinds)) if site.has_input(slot)]
    ranks = {slot: rank_of(site, slot) for slot in slots}
    rank = max(ranks.values())
    axes = {held.axis + rank - ranks[slot] for slot in slots if isinstance(held := kinds[slot], Samples)}
    if len(axes) > 1:
        raise MixesSamples("its inputs hold samples along different axes")
    (axis,) = axes
    for slot in slots:
        own = axis - (rank - ranks[slot])
        if isinstance(kinds[slot], Samples) or own < 0 or shape_of(site, slot)[own] == 1:
            continue
        raise MixesSamples(
            f"its input {slot}, {site.node.inputs[slot]!r}, has {shape_of(site, slot)[own]} elements along "
            "the axis of the samples, and is no sample"
        )
    return Samples(axis)


def after_reduction(site: Site, kinds: Kinds) -> Kind:
    """The kind of a result of means or sums over samples: the operator must be linear in them."""
    reduced = {kind for kind in kinds if kind in (AVERAGE, SUM)}
    others = {kind for kind in kinds if kind not in (AVERAGE, SUM)}
    (kind, *more) = reduced
    mixed = MixesSamples(f"it computes with {kind.value.partition(':')[0]}, which parts do not know")
    if more or others - {SHARED}:
        raise mixed
    place = [number for number, each in enumerate(kinds) if each is kind]
    outputs = site.outputs[0] if site.outputs else None
    if site.node.domain:
        raise mixed
    match site.node.type:
        case each if each in RESHAPING and place == [0]:
            if each == "Cast" and (outputs is None or outputs.dtype.kind in "iub"):
                raise mixed
            return kind
        case "Mul" if len(place) == 1:
            return kind
        case "Div" if place == [0]:
            return kind
        case each if each in ADDING and (kind is AVERAGE or (not others and each != "Mean")):
            return kind
    raise mixed


def along_last(site: Site, kinds: Kinds) -> Kind:
    """Softmax and its like: each slice along one axis by itself, by default the last."""
    axis = the_axis(site, kinds)
    check_apart(axis, [int(site.attribute("axis", -1))], rank_of(site, 0), "works along")
    return Samples(axis)


def last_axes(site: Site, kinds: Kinds) -> Kind:
    """LayerNormalization and RMSNormalization: over all axes from one on."""
    axis, rank = the_axis(site, kinds), rank_of(site, 0)
    first = int(site.attribute("axis", -1)) % rank
    check_apart(axis, range(first, rank), rank, "normalizes over")
    return Samples(axis)


def mean_variance(site: Site, kinds: Kinds) -> Kind:
    """MeanVarianceNormalization keeps the axis of the samples. Raises MixesSamples where it is normalized."""
    axis = the_axis(site, kinds)
    check_apart(axis, site.attribute("axes", (0, 2, 3)), rank_of(site, 0), "normalizes over")
    return Samples(axis)


def cumulative(site: Site, kinds: Kinds) -> Kind:
    """CumSum keeps the axis of the samples. Raises MixesSamples where it adds up along it."""
    axis = the_axis(site, kinds)
    check_apart(axis, constant(site, 1, "axis") or (0,), rank_of(site, 0), "adds up along")
    return Samples(axis)


def reduced(site: Site, kinds: Kinds) -> Kind:
    """Means and sums over some axes, or all; over samples they are those of the parts, put together."""
    axis, rank = the_axis(site, kinds), rank_of(site, 0)
    axes = constant(site, 1, "axes")
    if not axes and site.attribute("noop_with_empty_axes", 0):
        return Samples(axis)
    over = {each % rank for each in axes} if axes else set(range(rank))
    if axis in over:
        if site.node.type == "ReduceMean":
            return AVERAGE
        if site.node.type == "ReduceSum":
            return SUM
        raise MixesSamples(f"it reduces over axis {axis}, which is that of the samples")
    return _without(axis, over, bool(site.attribute("keepdims", 1)))


def extreme(site: Site, kinds: Kinds) -> Kind:
    """ArgMax and ArgMin keep the axis of the samples. Raises MixesSamples where they search along it."""
    axis, rank = the_axis(site, kinds), rank_of(site, 0)
    over = int(site.attribute("axis", 0)) % rank
    check_apart(axis, [over], rank, "looks along")
    return _without(axis, {over}, bool(site.attribute("keepdims", 1)))


def loss(site: Site, kinds: Kinds) -> Kinds:
    """The losses: scores and labels have their samples along axis 0."""
    if kinds[:2] != (Samples(0), Samples(0)):
        raise MixesSamples("its scores and labels do not both hold samples along axis 0")
    check_shared(site, kinds, range(2, len(kinds)))
    reduction = site.attribute("reduction", "mean")
    if reduction == "none":
        return (Samples(0), Samples(0))
    if reduction == "sum":
        return (SUM, Samples(0))
    if site.has_input(2) or site.attribute("ignore_index") is not None:
        raise MixesSamples(
            "its mean is over the weights of the labels, of which parts of equal size have different ones: "
            "let its reduction be 'sum', or leave weights and ignore_index out"
        )
    return (AVERAGE, Samples(0))


def _without(axis: int, gone: set[int], kept: bool) -> Samples:
    return Samples(axis if kept else axis - sum(each < axis for each in gone))
