"""Rearranging: the new place of a divided axis, forwards and backwards"""

import math
from collections.abc import Sequence

from d5ray.kits.parallel.splitting.layouts import WHOLE, Divided, Layout, divides
from d5ray.networks.axes.axis_map import CannotDivide, output_shape, shape_of
from d5ray.networks.axes.operators import axes_of
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import Dimension

# What a parameter may go through, and still be divided as it is read behind it.
REARRANGING = frozenset({"Cast", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
Shape = Sequence[Dimension]


def before(context: NodeContext, made: Layout, parts: int) -> Layout:
    """The layout of what a node of `REARRANGING` reads, of which it makes this one; else WHOLE."""
    if not isinstance(made, Divided):
        return WHOLE
    try:
        return _before(context, made, parts)
    except CannotDivide:
        return WHOLE


def _before(context: NodeContext, made: Divided, parts: int) -> Layout:
    if context.node.type == "Reshape":
        return reshaped(output_shape(context), shape_of(context, 0), made, parts)
    axes = axes_of(context)
    label = axes.outputs[0][made.axis]
    if label is None:
        raise CannotDivide(f"it {axes.does} axis {made.axis}, which is divided")
    return Divided(axes.inputs[0].index(label), made.blocks)


def reshaped(old: Shape, new: Shape, held: Divided, parts: int) -> Divided:
    """The divided axis's place in another shape of as many elements. Raises `CannotDivide`.

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
    raise CannotDivide(
        f"its new shape takes axis {held.axis}, which is divided, apart or puts others before it"
    )


def _fits(size: Dimension, old: Dimension, parts: int, blocks: int) -> bool:
    if isinstance(size, str):
        return size == old and blocks == 1
    return size != 1 and divides(size, parts, blocks)


def _groups(old: Shape, new: Shape) -> list[tuple[int, int, int, int]]:
    """The smallest ranges of axes, [low, high) of the old and [first, last) of the new, of equal products."""
    if None in old or None in new:
        raise CannotDivide("its shape is not known")
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
