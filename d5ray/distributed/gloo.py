"""Agents on processors, on one node or several: collectives over torch.distributed's gloo."""

from typing import Any, final

from d5ray.distributed.communicator import Communicator, Cost, Group
from d5ray.distributed.topology import Topology
from d5ray.errors import ConfigurationError


@final
class Gloo(Communicator):
    """One gloo process group per (group name, epoch); bytes are counted by gloo's own algorithms.

    allreduce is a ring: 2(n−1) messages and 2(n−1)/n × payload a member; between two members it is one
    message with the payload, the same bytes. broadcast is a binomial tree.
    barrier is a dissemination barrier without payload.
    """

    def __init__(self, group: Group, topology: Topology) -> None:
        super().__init__(group, topology)
        if group.store is None:
            raise ConfigurationError("a gloo group needs the address of a store where its members meet")
        from d5ray.frameworks.torch.process_group import GlooGroup  # noqa: PLC0415 - imports torch

        self._gloo = GlooGroup(
            f"{group.name}/{group.epoch}",
            group.rank,
            group.size,
            group.store,
            group.host,
            group.timeout_seconds,
        )

    def close(self) -> None:
        self._gloo.close()

    def _allreduce(self, array: Any, operation: str) -> Cost:
        self._gloo.allreduce(array, operation)
        moved = 2 * (self.size - 1) * _bytes(array) // self.size
        return Cost(moved, moved, 1 if self.size == 2 else 2 * (self.size - 1))

    def _broadcast(self, array: Any, root: int) -> Cost:
        self._gloo.broadcast(array, root)
        position = (self.rank - root) % self.size
        children = binomial_children(position, self.size)
        return Cost(children * _bytes(array), _bytes(array) if position else 0, children)

    def _barrier(self) -> Cost:
        self._gloo.barrier()
        return Cost(0, 0, (self.size - 1).bit_length())

    def _exchange(self, outgoing: list[tuple[Any, int]], incoming: list[tuple[Any, int]], tag: int) -> Cost:
        self._gloo.exchange(outgoing, incoming, tag)
        return Cost(
            sum(_bytes(array) for array, _ in outgoing),
            sum(_bytes(array) for array, _ in incoming),
            len(outgoing),
        )


def binomial_children(position: int, size: int) -> int:
    """How many members the one at `position` (the root is 0) sends to in a binomial tree over `size`.

    >>> [binomial_children(position, 6) for position in range(6)]
    [3, 0, 1, 0, 1, 0]
    """
    children, bit = 0, 1
    while bit < size and not position & (2 * bit - 1):
        children += position + bit < size
        bit *= 2
    return children


def _bytes(array: Any) -> int:
    return int(array.nbytes)
