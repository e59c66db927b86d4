"""Rearranging: the new place of a divided axis, forwards and backwards"""

import math
from collections.abc import Sequence

import numpy as np

from d5ray.networks.splitting.layouts import WHOLE, Divided, Layout, NeedsWhole, divides
from d5ray.operators.nodes.node_context import Site
from d5ray.operators.tensors.tensor_descriptor import Dimension

# What a parameter may go through, and still be divided as it is read behind it.
REARRANGING = frozenset({"Cast", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
FAR = 2**31 - 1  # the end of a slice, from there on the end of the axis
Shape = Sequence[Dimension]


def before(site: Site, made: Layout, parts: int) -> Layout:
    """The layout of what a node of `REARRANGING` reads, of which it makes this one; else WHOLE."""
    if not isinstance(made, Divided):
        return WHOLE
    try:
        return _before(site, made, parts)
    except NeedsWhole:
        return WHOLE


def _before(site: Site, made: Divided, parts: int) -> Layout:
    axis, blocks = made.axis, made.blocks
    match site.node.type:
        case "Cast" | "Identity":
            return made
        case "Transpose":
            return Divided(order_of(site)[axis], blocks)
        case "Slice":
            check_not_cut(site, axis)
            return made
        case "Squeeze":
            return Divided(kept_axes(len(shape_of(site, 0)), squeezed(site))[axis], blocks)
        case "Unsqueeze":
            rank = len(output_shape(site))
            return Divided(kept_axes(rank, constant(site, 1, rank)).index(axis), blocks)
        case "Reshape":
            return reshaped(output_shape(site), shape_of(site, 0), made, parts)
    raise NeedsWhole(f"a {site.node.type} has no way back")


def reshaped(old: Shape, new: Shape, held: Divided, parts: int) -> Divided:
    """The divided axis's place in another shape of as many elements. Raises `NeedsWhole`.

    >>> reshaped(("batch", 6, 4, 4), ("batch", 96), Divided(1), 2)
    Divided(axis=1, blocks=1)
    >>> reshaped(("batch", 10, 48), ("batch", 10, 3, 4, 4), Divided(2, blocks=3), 2)
    Divided(axis=3, blocks=1)
    """
    for low, high, first, last in _groups(old, new):
        if not low <= held.axis < high:
            continue
        own = [*old[low : held.axis]]
        if not all(isinstance(size, int) for size in own):
            break
        blocks = math.prod(map(int, own)) * held.blocks  # type: ignore[arg-type]
        ahead = 1
        for place in range(first, last):
            size = new[place]
            if blocks % ahead == 0 and _fits(size, old[held.axis], parts, blocks // ahead):
                return Divided(place, blocks // ahead)
            if not isinstance(size, int):
                break
            ahead *= size
    raise NeedsWhole(
        f"its new shape takes axis {held.axis}, which is divided, apart or puts others before it"
    )


def _fits(size: Dimension, old: Dimension, parts: int, blocks: int) -> bool:
    if isinstance(size, str):
        return size == old and blocks == 1
    return size != 1 and divides(size, parts, blocks)


def _groups(old: Shape, new: Shape) -> list[tuple[int, int, int, int]]:
    """The smallest ranges of axes, [low, high) of the old and [first, last) of the new, of equal products."""
    if None in old or None in new:
        raise NeedsWhole("its shape is not known")
    found, high, last = [], 0, 0
    while high < len(old) or last < len(new):
        low, first = high, last
        one = other = _Product()
        while True:
            if (one == other and (high > low or last > first)) or (high == len(old) and last == len(new)):
                break
            if last == len(new) or (high < len(old) and one.behind(other)):
                one, high = one.times(old[high]), high + 1
            else:
                other, last = other.times(new[last]), last + 1
        found.append((low, high, first, last))
    return found


class _Product:
    """A product of sizes, some of which are names."""

    def __init__(self, number: int = 1, names: tuple[str, ...] = ()) -> None:
        self._number, self._names = number, names

    def times(self, size: Dimension) -> "_Product":
        if isinstance(size, str):
            return _Product(self._number, tuple(sorted((*self._names, size))))
        return _Product(self._number * int(size or 1), self._names)

    def behind(self, other: "_Product") -> bool:
        """True if this product lacks factors that the other one has."""
        if self._names != other._names:
            return len(self._names) < len(other._names)
        return self._number <= other._number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Product) and (self._number, self._names) == (other._number, other._names)

    def __hash__(self) -> int:
        return hash((self._number, self._names))


# -- what a site says ----------------------------------------------------------------------------------------


def shape_of(site: Site, slot: int) -> tuple[Dimension, ...]:
    """The whole shape of an input. Raises `NeedsWhole` where not even its axes are known."""
    found = site.inputs[slot] if slot < len(site.inputs) else None
    if found is None or found.shape is None:
        raise NeedsWhole(f"the shape of its input {slot}, {site.node.inputs[slot]!r}, is not known")
    return found.shape


def output_shape(site: Site, place: int = 0) -> tuple[Dimension, ...]:
    """The whole shape of an output. Raises `NeedsWhole` where it is not known."""
    found = site.outputs[place] if place < len(site.outputs) else None
    if found is None or found.shape is None:
        raise NeedsWhole(f"the shape of its output {site.node.outputs[place]!r} is not known")
    return found.shape


def numbers(site: Site, slot: int) -> tuple[int, ...] | None:
    """The integers of an input that never changes; None where it is left out."""
    if not site.has_input(slot):
        return None
    if slot not in site.constants:
        raise NeedsWhole(f"its input {site.node.inputs[slot]!r} is computed")
    return tuple(int(each) for each in np.ravel(site.constants[slot]))


def constant(site: Site, slot: int, rank: int) -> tuple[int, ...]:
    """Axes that an input names, counted from the front."""
    return tuple(each % rank for each in numbers(site, slot) or ())


def order_of(site: Site) -> tuple[int, ...]:
    """The axes that a Transpose reads, in their new order."""
    rank = len(shape_of(site, 0))
    return tuple(site.attribute("perm", tuple(reversed(range(rank)))))


def squeezed(site: Site) -> tuple[int, ...]:
    """The axes that a Squeeze takes out."""
    shape = shape_of(site, 0)
    return constant(site, 1, len(shape)) or tuple(a for a, size in enumerate(shape) if size == 1)


def kept_axes(rank: int, gone: Sequence[int]) -> list[int]:
    """The axes but for some."""
    return [axis for axis in range(rank) if axis not in gone]


def check_not_cut(site: Site, axis: int) -> None:
    """Raise `NeedsWhole` where a Slice takes less than all of an axis."""
    starts, ends = numbers(site, 1) or (), numbers(site, 2) or ()
    rank = len(shape_of(site, 0))
    axes = constant(site, 3, rank) or tuple(range(len(starts)))
    steps = numbers(site, 4) or (1,) * len(starts)
    for start, end, at, step in zip(starts, ends, axes, steps, strict=True):
        if at == axis and ((start, step) != (0, 1) or end < FAR):
            raise NeedsWhole(f"it takes a piece of axis {axis}, which is divided")
