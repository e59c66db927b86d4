"""Rules for layers: convolutions, pooling, normalization, products, recurrent layers, attention"""

from d5ray.networks.microbatch.samples import (
    SHARED,
    SUM,
    UNKNOWN,
    Kind,
    Kinds,
    MixesSamples,
    Samples,
    check_shared,
    rank_of,
    shape_of,
    the_axis,
)
from d5ray.operators.nodes.node_context import Site


def by_sample(site: Site, kinds: Kinds) -> Kind:
    """Convolution, pooling and their like: (samples, channels, …), everything else is shared."""
    _check_first(the_axis(site, kinds))
    return Samples(0)


def max_pool(site: Site, kinds: Kinds) -> Kind:
    """MaxPool keeps samples as other pooling does; indices of the largest are those in the whole tensor."""
    if site.has_output(1):
        raise MixesSamples("its indices are counted from the first sample on", (Samples(0), UNKNOWN))
    return by_sample(site, kinds)


def batch_normalization(site: Site, kinds: Kinds) -> Kinds:
    """BatchNormalization with running statistics works value by value."""
    if site.attribute("training_mode", 0) and not site.evaluating:
        raise MixesSamples(
            "in training it normalizes with the mean and variance of the whole batch: freeze its statistics "
            "(frozen_statistics), or let a GroupNormalization stand in its place",
            (Samples(0), UNKNOWN, UNKNOWN),
        )
    return (by_sample(site, kinds), SHARED, SHARED)


def matrix_product(site: Site, kinds: Kinds) -> Kind:
    """MatMul, (…, rows, n) by (…, n, columns): samples are rows, columns, or stacked matrices."""
    ranks = rank_of(site, 0), rank_of(site, 1)
    left, right = kinds
    if ranks[1] == 1 and isinstance(left, Samples) and right is SHARED and left.axis < ranks[0] - 1:
        return left
    if min(ranks) < 2:
        raise MixesSamples("it multiplies vectors, over whose elements it sums")
    rank = max(ranks)
    places = set()
    for slot, held in enumerate((left, right)):
        if isinstance(held, Samples):
            if held.axis == ranks[slot] - (1 if slot == 0 else 2):
                raise MixesSamples(f"it sums over axis {held.axis} of its input {slot}, that of the samples")
            places.add(held.axis + rank - ranks[slot])
    if len(places) != 1:
        raise MixesSamples("it multiplies samples with samples")
    (place,) = places
    for slot, held in enumerate((left, right)):
        own = place - (rank - ranks[slot])
        stacked = 0 <= own < ranks[slot] - 2
        if not isinstance(held, Samples) and stacked and shape_of(site, slot)[own] != 1:
            raise MixesSamples(
                f"its input {slot}, {site.node.inputs[slot]!r}, has {shape_of(site, slot)[own]} matrices "
                "along the axis of the samples, and is no sample"
            )
        if isinstance(held, Samples) and place >= rank - 2 and kinds[1 - slot] is not SHARED:
            raise MixesSamples("it multiplies samples with samples")
    return Samples(place)


def gemm(site: Site, kinds: Kinds) -> Kind:
    """A B + C: samples are the rows of A, and of C if it has a row for each."""
    rows = 1 if site.attribute("transA", 0) else 0
    if kinds[0] != Samples(rows) or kinds[1] is not SHARED:
        raise MixesSamples("samples are not the rows of its input 0, or not alone there")
    if site.has_input(2) and kinds[2] != Samples(0):
        check_shared(site, kinds, (2,))
        added = shape_of(site, 2)
        if len(added) == 2 and added[0] != 1:
            raise MixesSamples(f"its input 2, {site.node.inputs[2]!r}, has a row for each sample")
    if site.has_input(2) and kinds[2] == Samples(0) and rank_of(site, 2) != 2:
        raise MixesSamples(f"its input 2, {site.node.inputs[2]!r}, has a column for each sample")
    return Samples(0)


def einsum(site: Site, kinds: Kinds) -> Kind:
    """Einsum: one letter stands for the samples wherever they are."""
    equation = str(site.required("equation")).replace(" ", "")
    if "." in equation:
        raise MixesSamples(f"its equation {equation!r} does not name all axes")
    inputs, arrow, output = equation.partition("->")
    terms = inputs.split(",")
    if not arrow:
        letters = inputs.replace(",", "")
        output = "".join(sorted(each for each in letters if letters.count(each) == 1))
    found = {term[held.axis] for term, held in zip(terms, kinds, strict=True) if isinstance(held, Samples)}
    if len(found) != 1:
        raise MixesSamples(f"its equation {equation!r} has several letters for the samples")
    (letter,) = found
    for term, held in zip(terms, kinds, strict=True):
        if (letter in term) != isinstance(held, Samples) or term.count(letter) > 1:
            raise MixesSamples(f"its equation {equation!r} has {letter!r}, the samples, elsewhere too")
    return Samples(output.index(letter)) if letter in output else SUM


def recurrent(site: Site, kinds: Kinds) -> Kinds:
    """RNN, GRU, LSTM: (steps, samples, …), or (samples, steps, …) where the layout is 1."""
    first = bool(site.attribute("layout", 0))
    axis = 0 if first else 1
    if kinds[0] != Samples(axis):
        raise MixesSamples(f"its input 0, {site.node.inputs[0]!r}, does not hold samples along axis {axis}")
    check_shared(site, kinds, (1, 2, 3, 7))
    for slot, own in ((4, 0), (5, axis), (6, axis)):
        if slot < len(kinds) and site.has_input(slot) and kinds[slot] != Samples(own):
            raise MixesSamples(
                f"its input {slot}, {site.node.inputs[slot]!r}, has a row for each sample, and is no sample: "
                "leave it out, or let it be an input of the network"
            )
    return (Samples(0 if first else 2), Samples(axis), Samples(axis))


def attention(site: Site, kinds: Kinds) -> Kind:
    """Attention and RotaryEmbedding: samples along axis 0 of whatever has them; a mask may be shared."""
    for slot, held in enumerate(kinds):
        if not site.has_input(slot):
            continue
        if isinstance(held, Samples):
            _check_first(held.axis)
        elif held is not SHARED or not _broadcasts(site, slot):
            raise MixesSamples(
                f"its input {slot}, {site.node.inputs[slot]!r}, has a row for each sample, and is no sample"
            )
    return Samples(0)


def collective(site: Site, kinds: Kinds) -> Kind:
    """An exchange of a split network: as what it reads, unless the parts divide the samples."""
    held = kinds[0]
    if isinstance(held, Samples) and site.attribute("axis") == held.axis:
        raise MixesSamples("it divides the samples between the parts of a split network")
    return held


def _broadcasts(site: Site, slot: int) -> bool:
    """True if every sample sees the same of a shared input."""
    shape = shape_of(site, slot)
    if site.node.type == "RotaryEmbedding":
        return slot > 0 and (len(shape) < 3 if slot < 3 else shape[0] == 1)
    return slot == 3 and (len(shape) < 4 or shape[0] == 1)


def _check_first(axis: int) -> None:
    if axis != 0:
        raise MixesSamples(f"its samples are along axis {axis}, and it takes them along axis 0")
