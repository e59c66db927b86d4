"""Exchanges: what each collective node does with arrays of any library, forwards and backwards"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.collectives import nodes as types
from d5ray.kits.parallel.collectives.nodes import group_of, whole_size
from d5ray.operators.nodes.node_context import NodeContext

Array = Any  # of the library
Exchange = Callable[[Array], Array]


class Exchanges(ABC):
    """The exchanges of one node. An axis is divided in `blocks`: a part holds its share of each, in order.

    An axis of an open size, such as that of the batch, need not be a multiple of the parts: the first ones
    are one element longer then.

    What is given is never changed: communicators work in place, so on copies.
    """

    def __init__(self, context: NodeContext) -> None:
        self._site, self._node = context, context.node
        self._parts, self._index = int(context.required("parts")), int(context.required("index"))
        self._axis, self._blocks = int(context.attribute("axis", 0)), int(context.attribute("blocks", 1))
        self._sums_gradients = bool(context.attribute("sums_gradients", 0))
        self._open = self._open_size()

    @property
    def pair(self) -> tuple[Exchange, Exchange]:
        """The exchange of the tensor, and that of its gradient."""
        back = self.reduced_part if self._sums_gradients else self.part
        pairs: dict[str, tuple[Exchange, Exchange]] = {
            types.ALL_REDUCE: (self.summed, _same),
            types.ALL_REDUCE_GRADIENT: (_same, self.summed),
            types.ALL_GATHER: (self.gathered, back),
            types.SCATTER: (self.part, self.gathered),
            types.REDUCE_SCATTER: (self.reduced_part, self.gathered),
        }
        return pairs[self._node.type]

    def whole_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the array that this part, of this shape, is one of."""
        known = self._whole_size()
        size = self._parts * int(shape[self._axis]) if known is None else known
        return self._with_axis([int(each) for each in shape], size)

    def summed(self, x: Array) -> Array:
        """The sum of all parts' arrays."""
        made = self._copied(x)
        group_of(self._site).allreduce(made)
        return made

    def part(self, x: Array) -> Array:
        """This part of a whole array."""
        shares = self._shares(x.shape[self._axis])
        if shares is not None:
            begin, length = sum(shares[: self._index]), shares[self._index]
            return self._copied(x[(slice(None),) * self._axis + (slice(begin, begin + length),)])
        before, length, behind = self._sizes(x.shape, whole=True)
        apart = x.reshape((before, self._parts, length, behind))
        shape = self._with_axis(x.shape, self._blocks * length)
        return self._copied(apart[:, self._index]).reshape(shape)

    def gathered(self, x: Array) -> Array:
        """The whole array of all parts'."""
        shares = self._shares(self._whole_size())
        before, length, behind = self._sizes(x.shape, whole=False)
        longest = length if shares is None else shares[0]
        parts = self._empty((self._parts, before, longest, behind), x)
        parts[self._index, :, :length] = x.reshape((before, length, behind))
        group_of(self._site).all_gather(parts)
        if shares is not None:
            own = [parts[index, :, :share] for index, share in enumerate(shares)]
            return self._joined(own).reshape(self._with_axis(x.shape, sum(shares)))
        shape = self._with_axis(x.shape, self._blocks * self._parts * length)
        return (parts if before == 1 else self._turned(parts, (1, 0, 2, 3))).reshape(shape)

    def reduced_part(self, x: Array) -> Array:
        """This part of the sum of all parts' whole arrays."""
        shares = self._shares(x.shape[self._axis])
        if shares is not None:
            return self.part(self.summed(x))
        before, length, behind = self._sizes(x.shape, whole=True)
        apart = self._turned(x.reshape((before, self._parts, length, behind)), (1, 0, 2, 3))
        own = group_of(self._site).reduce_scatter(apart)
        shape = self._with_axis(x.shape, self._blocks * length)
        return self._copied(apart.reshape((-1,))[own]).reshape(shape)

    def _shares(self, size: int | None) -> list[int] | None:
        """The length of each part of an open axis of this size; None if all are equally long."""
        if self._open is None or size is None or self._blocks > 1 or int(size) % self._parts == 0:
            return None
        least, more = divmod(int(size), self._parts)
        return [least + (index < more) for index in range(self._parts)]

    def _whole_size(self) -> int | None:
        """The size of the open axis in the pass under way; None if it is not known."""
        return None if self._open is None else self._site.collectives.sizes.get(self._open)

    def _sizes(self, shape: Sequence[int], *, whole: bool) -> tuple[int, int, int]:
        """The elements before a part of a block, the part's length, and the elements behind it."""
        before = behind = 1
        for size in shape[: self._axis]:
            before *= int(size)
        for size in shape[self._axis + 1 :]:
            behind *= int(size)
        size, divisor = int(shape[self._axis]), self._blocks * (self._parts if whole else 1)
        if size % divisor:
            raise ConfigurationError(
                f"the node {self._node} cannot divide axis {self._axis} of {tuple(shape)} into {self._parts} "
                f"equal parts: take a size that is a multiple of {divisor}"
            )
        return before * self._blocks, size // divisor, behind

    def _with_axis(self, shape: Sequence[int], size: int) -> tuple[int, ...]:
        return (*shape[: self._axis], size, *shape[self._axis + 1 :])

    def _open_size(self) -> str | None:
        """The name of the whole axis, where its size is open."""
        gathers = self._node.type == types.ALL_GATHER
        known = (self._site.outputs if gathers else self._site.inputs)[:1]
        if not known or known[0] is None or known[0].shape is None or self._axis >= len(known[0].shape):
            return None
        size = known[0].shape[self._axis]
        if self._node.type == types.DROPOUT:
            size = whole_size(size, self._parts)
        return size if isinstance(size, str) else None

    @abstractmethod
    def _copied(self, x: Array) -> Array:
        """A contiguous copy."""

    @abstractmethod
    def _turned(self, x: Array, order: tuple[int, ...]) -> Array:
        """A contiguous copy with the axes in this order."""

    @abstractmethod
    def _joined(self, parts: Sequence[Array]) -> Array:
        """Arrays of three axes behind each other along the second."""

    @abstractmethod
    def _empty(self, shape: tuple[int, ...], like: Array) -> Array:
        """A contiguous array of the type and on the device of another."""


def _same(x: Array) -> Array:
    return x
