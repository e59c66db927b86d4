"""Rules for operators that rearrange: where the axis of the samples comes to lie, and what breaks it up"""

import math
from collections.abc import Sequence

from d5ray.networks.microbatch.samples import (
    SHARED,
    SIZES,
    Kind,
    Kinds,
    MixesSamples,
    Samples,
    check_apart,
    check_shared,
    constant,
    output_shape,
    rank_of,
    shape_of,
    the_axis,
)
from d5ray.operators.nodes.node_context import Site
from d5ray.operators.tensors.tensor_descriptor import Dimension

FAR = 2**31 - 1  # the end of a slice, from there on the end of the axis


def flatten(site: Site, kinds: Kinds) -> Kind:
    """Flatten keeps the samples in axis 0. Raises MixesSamples where it joins them with other axes."""
    axis, rank = the_axis(site, kinds), rank_of(site, 0)
    at = int(site.attribute("axis", 1))
    if axis != 0 or (at + rank if at < 0 else at) != 1:
        raise MixesSamples(f"it makes one axis of that of the samples, {axis}, and of others")
    return Samples(0)


def reshape(site: Site, kinds: Kinds) -> Kind:
    """The axes before that of the samples stay, and so does its size."""
    first = kinds[0]
    if not isinstance(first, Samples) or kinds[1] not in (SHARED, SIZES):
        raise MixesSamples("its new shape depends on the values of samples")
    axis, old = first.axis, shape_of(site, 0)
    if 1 not in site.constants:
        new = output_shape(site)
        if new is None or not isinstance(old[axis], str) or new[: axis + 1] != old[: axis + 1]:
            raise MixesSamples("its new shape is computed, and whether it keeps the samples apart not known")
        return first
    wanted = constant(site, 1, "sizes") or ()
    if len(wanted) > axis and _keeps(old, wanted, axis, bool(site.attribute("allowzero", 0))):
        return first
    raise MixesSamples(
        f"it makes {wanted} of {_listed(old)}, which fixes the number of samples or puts some of them "
        f"together: let axis {axis} be 0, which keeps it"
    )


def transpose(site: Site, kinds: Kinds) -> Kind:
    """Transpose moves the axis of the samples to its new position."""
    axis, rank = the_axis(site, kinds), rank_of(site, 0)
    order = tuple(site.attribute("perm", tuple(reversed(range(rank)))))
    return Samples(order.index(axis))


def squeeze(site: Site, kinds: Kinds) -> Kind:
    """Squeeze moves the axis of the samples forward. Raises MixesSamples where it may take it out."""
    axis, rank = the_axis(site, kinds), rank_of(site, 0)
    axes = constant(site, 1, "axes")
    if not axes:
        raise MixesSamples("it takes out whatever axis has one element, also that of a single sample")
    check_apart(axis, axes, rank, "takes out")
    return Samples(axis - sum(each % rank < axis for each in axes))


def unsqueeze(site: Site, kinds: Kinds) -> Kind:
    """Unsqueeze moves the axis of the samples back by the axes put in before it."""
    axis = the_axis(site, kinds)
    axes = constant(site, 1, "axes") or ()
    rank = rank_of(site, 0) + len(axes)
    new = {each % rank for each in axes}
    return Samples([each for each in range(rank) if each not in new][axis])


def concat(site: Site, kinds: Kinds) -> Kind:
    """Concat keeps the axis of the samples. Raises MixesSamples where it joins along it, or axes differ."""
    held = set(kinds)
    if len(held) != 1:
        raise MixesSamples("it puts together what holds samples and what does not, or along other axes")
    (one,) = held
    assert isinstance(one, Samples)
    check_apart(one.axis, [int(site.required("axis"))], rank_of(site, 0), "puts together along")
    return one


def split(site: Site, kinds: Kinds) -> Kind:
    """Split keeps the axis of the samples. Raises MixesSamples where it splits along it."""
    axis = the_axis(site, kinds)
    check_apart(axis, [int(site.attribute("axis", 0))], rank_of(site, 0), "splits along")
    return Samples(axis)


def slices(site: Site, kinds: Kinds) -> Kind:
    """Slice keeps the axis of the samples. Raises MixesSamples where it takes a piece of it."""
    axis, rank = the_axis(site, kinds), rank_of(site, 0)
    starts, ends = constant(site, 1, "starts") or (), constant(site, 2, "ends") or ()
    axes = constant(site, 3, "axes") or tuple(range(len(starts)))
    steps = constant(site, 4, "steps") or (1,) * len(starts)
    for start, end, at, step in zip(starts, ends, axes, steps, strict=True):
        if (start, step) != (0, 1) or end < FAR:
            check_apart(axis, [at], rank, "takes a piece of")
    return Samples(axis)


def gather(site: Site, kinds: Kinds) -> Kind:
    """Gather along an axis of samples' data, or rows of a shared table by samples' numbers."""
    at = int(site.attribute("axis", 0)) % rank_of(site, 0)
    match kinds:
        case (Samples(axis), where) if where is SHARED:
            check_apart(axis, [at], rank_of(site, 0), "chooses from")
            return Samples(axis if axis < at else axis + rank_of(site, 1) - 1)
        case (table, Samples(axis)) if table is SHARED:
            return Samples(at + axis)
    raise MixesSamples("it chooses from samples by samples")


def elements(site: Site, kinds: Kinds) -> Kind:
    """GatherElements and ScatterElements: data, indices and updates all hold samples."""
    axes = {held.axis for held in kinds if isinstance(held, Samples)}
    if len(axes) != 1 or not all(isinstance(held, Samples) for held in kinds):
        raise MixesSamples("not all of its inputs hold samples along one axis")
    (axis,) = axes
    check_apart(axis, [int(site.attribute("axis", 0))], rank_of(site, 0), "chooses along")
    return Samples(axis)


def one_hot(site: Site, kinds: Kinds) -> Kind:
    """OneHot moves the axis of the samples back where the classes' axis stands before it."""
    axis, rank = the_axis(site, kinds), rank_of(site, 0) + 1
    return Samples(axis if axis < int(site.attribute("axis", -1)) % rank else axis + 1)


def pad(site: Site, kinds: Kinds) -> Kind:
    """Pad keeps the axis of the samples. Raises MixesSamples where it adds to it."""
    axis, rank = the_axis(site, kinds), rank_of(site, 0)
    widths = constant(site, 1, "widths") or ()
    axes = constant(site, 3, "axes") or tuple(range(rank))
    for place, at in enumerate(axes):
        if widths[place] or widths[place + len(axes)]:
            check_apart(axis, [at], rank, "adds to")
    return Samples(axis)


def expand(site: Site, kinds: Kinds) -> Kind:
    """Expand moves the axis of the samples to its place in the new shape.

    Raises MixesSamples where the new shape fixes the number of samples, or is not known.
    """
    first = kinds[0]
    if not isinstance(first, Samples) or kinds[1] not in (SHARED, SIZES):
        raise MixesSamples("its new shape depends on the values of samples")
    old, new = shape_of(site, 0), output_shape(site)
    if 1 in site.constants:
        wanted = constant(site, 1, "sizes") or ()
        place = first.axis - len(old) + len(wanted)  # in the wanted shape; the last axes match
        if place < 0 or wanted[place] == 1:
            return Samples(first.axis + max(0, len(wanted) - len(old)))
    elif new is not None:
        place = first.axis + len(new) - len(old)
        if isinstance(new[place], str) and new[place] == old[first.axis]:
            return Samples(place)
    raise MixesSamples("its new shape fixes the number of samples, or it is not known")


def tile(site: Site, kinds: Kinds) -> Kind:
    """Tile keeps the axis of the samples. Raises MixesSamples where it repeats along it."""
    axis = the_axis(site, kinds)
    repeats = constant(site, 1, "repeats") or ()
    if repeats[axis] != 1:
        raise MixesSamples(f"it repeats along axis {axis}, which is that of the samples")
    return Samples(axis)


def triangle(site: Site, kinds: Kinds) -> Kind:
    """Trilu keeps the axis of the samples. Raises MixesSamples where that is one of the last two."""
    axis, rank = the_axis(site, kinds), rank_of(site, 0)
    check_apart(axis, (rank - 2, rank - 1), rank, "cuts a triangle over")
    return Samples(axis)


def cast_like(site: Site, kinds: Kinds) -> Kind:
    """CastLike keeps what its first input holds."""
    return kinds[0]


def resize(site: Site, kinds: Kinds) -> Kind:
    """Resize keeps the axis of the samples. Raises MixesSamples where it changes or fixes its size."""
    axis, rank = the_axis(site, kinds), rank_of(site, 0)
    axes = tuple(each % rank for each in site.attribute("axes", tuple(range(rank))))
    check_shared(site, kinds, range(1, len(kinds)))
    if axis not in axes:
        return Samples(axis)
    if site.has_input(2) and 2 in site.constants and site.constants[2].size:
        if float(site.constants[2][axes.index(axis)]) == 1.0:
            return Samples(axis)
        raise MixesSamples(f"it changes the size of axis {axis}, which is that of the samples")
    raise MixesSamples(f"it fixes the size of axis {axis}, which is that of the samples: name its axes")


def _keeps(old: Sequence[Dimension], wanted: Sequence[int], axis: int, zero_is_zero: bool) -> bool:
    """True if a new shape has the axis at its place with its size, whatever this is."""
    if zero_is_zero and 0 in wanted:
        return False
    known = [old[place] if size == 0 and place < len(old) else size for place, size in enumerate(wanted)]
    if list(known[:axis]) != list(old[:axis]) or any(size == -1 for size in known[:axis]):
        return False
    if wanted[axis] == 0:
        return True
    rest, before = known[axis + 1 :], old[axis + 1 :]
    if wanted[axis] != -1 or not all(isinstance(size, int) for size in (*rest, *before)):
        return False
    return math.prod(map(int, rest)) == math.prod(map(int, before))  # type: ignore[arg-type]


def _listed(shape: Sequence[Dimension]) -> str:
    return f"({', '.join('?' if size is None else str(size) for size in shape)})"
