"""Layouts of a tensor in a split: a part holds the whole, its share along an axis, or a summand"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.operators.tensors.tensor_descriptor import Dimension

Array = np.ndarray[Any, Any]


@final
@dataclass(frozen=True)
class Divided:
    """A share along an axis, which is in this many blocks: a part holds its share of each, in their order."""

    axis: int
    blocks: int = 1

    def __str__(self) -> str:
        return f"divided along axis {self.axis}" + (f" in {self.blocks} blocks" if self.blocks > 1 else "")


@final
class Held(enum.Enum):
    """A tensor that is not divided."""

    WHOLE = "the same on all parts"
    SHARED = "the same on all parts, for a computation that differs: gradients are summed"
    SUMMAND = "a summand of the whole"
    OPEN = "of any layout: a parameter, a constant, or what is computed from one"

    def __str__(self) -> str:
        return self.value


WHOLE, SHARED, SUMMAND, OPEN = Held.WHOLE, Held.SHARED, Held.SUMMAND, Held.OPEN
Layout = Divided | Held


def part_of(value: Array, layout: Layout, index: int, parts: int) -> Array:
    """The part of a value that one executor holds; a copy where that is less than the whole.

    >>> part_of(np.arange(8), Divided(0, blocks=2), index=1, parts=2)
    array([2, 3, 6, 7])
    """
    if not isinstance(layout, Divided):
        return value
    apart = _apart(value, layout, parts)
    shape = _with_axis(value.shape, layout.axis, value.shape[layout.axis] // parts)
    return np.array(apart[:, :, index]).reshape(shape)


def whole_of(values: Sequence[Array], layout: Layout) -> Array:
    """The value of which these are the parts, by their index; a copy.

    >>> whole_of([np.array([0, 1, 4, 5]), np.array([2, 3, 6, 7])], Divided(0, blocks=2))
    array([0, 1, 2, 3, 4, 5, 6, 7])
    """
    first = np.asarray(values[0])
    if not isinstance(layout, Divided):
        return np.array(first)
    apart = [_apart(np.asarray(value), layout, 1) for value in values]
    shape = _with_axis(first.shape, layout.axis, first.shape[layout.axis] * len(values))
    return np.concatenate(apart, axis=2).reshape(shape)


def _apart(value: Array, layout: Divided, parts: int) -> Array:
    """(before, blocks, parts, share, behind)."""
    before, behind = value.shape[: layout.axis], value.shape[layout.axis + 1 :]
    return value.reshape(
        int(np.prod(before, dtype=np.int64)),
        layout.blocks,
        parts,
        value.shape[layout.axis] // (layout.blocks * parts),
        int(np.prod(behind, dtype=np.int64)),
    )


def _with_axis(shape: Sequence[int], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def divides(size: Dimension, parts: int, blocks: int = 1) -> bool:
    """True if an axis can be divided into these parts; an open size is not known before a batch is there.

    >>> divides(12, 2, blocks=3), divides(12, 5), divides("batch", 2)
    (True, False, True)
    """
    if isinstance(size, str):
        return blocks == 1
    return size is not None and size % (parts * blocks) == 0
