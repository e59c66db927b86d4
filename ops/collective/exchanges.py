"""Exchanges: what each collective node does with arrays of any library, forwards and backwards"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from d5ray.errors import ConfigurationError
from d5ray.operators import collectives as types
from d5ray.operators.collectives import group_of
from d5ray.operators.site import Site

Array = Any  # of the library
Exchange = Callable[[Array], Array]


class Exchanges(ABC):
    """Of one node. An axis is divided in `blocks`: a part holds its share of each, one behind the other.

    What is given is never changed: communicators work in place, so on copies.
    """

    def __init__(self, site: Site) -> None:
        self._site, self._node = site, site.node
        self._parts, self._index = int(site.required("parts")), int(site.required("index"))
        self._axis, self._blocks = int(site.attribute("axis", 0)), int(site.attribute("blocks", 1))
        self._sums_gradients = bool(site.attribute("sums_gradients", 0))

    @property
    def pair(self) -> tuple[Exchange, Exchange]:
        """What is done with the tensor, and what with its gradient."""
        back = self.reduced_part if self._sums_gradients else self.part
        pairs: dict[str, tuple[Exchange, Exchange]] = {
            types.ALL_REDUCE: (self.summed, _same),
            types.ALL_REDUCE_GRADIENT: (_same, self.summed),
            types.ALL_GATHER: (self.gathered, back),
            types.SCATTER: (self.part, self.gathered),
            types.REDUCE_SCATTER: (self.reduced_part, self.gathered),
        }
        return pairs[self._node.type]

    def summed(self, x: Array) -> Array:
        """The sum of all parts' arrays."""
        made = self._copied(x)
        group_of(self._site).allreduce(made)
        return made

    def part(self, x: Array) -> Array:
        """This part of a whole array."""
        before, length, behind = self._sizes(x.shape, whole=True)
        apart = x.reshape((before, self._parts, length, behind))
        shape = self._with_axis(x.shape, self._blocks * length)
        return self._copied(apart[:, self._index]).reshape(shape)

    def gathered(self, x: Array) -> Array:
        """The whole array of all parts'."""
        before, length, behind = self._sizes(x.shape, whole=False)
        parts = self._empty((self._parts, before, length, behind), x)
        parts[self._index] = x.reshape((before, length, behind))
        group_of(self._site).all_gather(parts)
        shape = self._with_axis(x.shape, self._blocks * self._parts * length)
        return (parts if before == 1 else self._turned(parts, (1, 0, 2, 3))).reshape(shape)

    def reduced_part(self, x: Array) -> Array:
        """This part of the sum of all parts' whole arrays."""
        before, length, behind = self._sizes(x.shape, whole=True)
        apart = self._turned(x.reshape((before, self._parts, length, behind)), (1, 0, 2, 3))
        own = group_of(self._site).reduce_scatter(apart)
        shape = self._with_axis(x.shape, self._blocks * length)
        return self._copied(apart.reshape((-1,))[own]).reshape(shape)

    def _sizes(self, shape: Sequence[int], *, whole: bool) -> tuple[int, int, int]:
        """What lies before a part of a block, its length, and what lies behind it."""
        before = behind = 1
        for size in shape[: self._axis]:
            before *= int(size)
        for size in shape[self._axis + 1 :]:
            behind *= int(size)
        size, divisor = int(shape[self._axis]), self._blocks * (self._parts if whole else 1)
        if size % divisor:
            raise ConfigurationError(
                f"the node {self._node} cannot divide axis {self._axis} of {tuple(shape)} into {self._parts} "
                f"equal parts: take a size that is a multiple of {divisor}, such as of the batch"
            )
        return before * self._blocks, size // divisor, behind

    def _with_axis(self, shape: Sequence[int], size: int) -> tuple[int, ...]:
        return (*shape[: self._axis], size, *shape[self._axis + 1 :])

    @abstractmethod
    def _copied(self, x: Array) -> Array:
        """A contiguous copy."""

    @abstractmethod
    def _turned(self, x: Array, order: tuple[int, ...]) -> Array:
        """A contiguous copy with the axes in this order."""

    @abstractmethod
    def _empty(self, shape: tuple[int, ...], like: Array) -> Array:
        """A contiguous array of the type and on the device of another."""


def _same(x: Array) -> Array:
    return x
