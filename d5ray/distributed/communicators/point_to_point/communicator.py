"""A communicator of which a backend fills only messages between members; collectives are made of them"""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.agreement.call_signature import Signature
from d5ray.distributed.communicators.backend_hooks import Pairs
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.point_to_point import collectives
from d5ray.distributed.communicators.point_to_point.collectives import (
    CollectiveExchange,
    Flat,
    Pieces,
    Reduce,
    reduction,
)
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Topology

REMEMBERED = 64  # calls, for members that are behind


@final
class OngoingCollective(CollectiveExchange):
    """One operation under way at this member."""

    def __init__(self, communicator: "PointToPoint", call: Signature, number: int) -> None:
        self.rank = communicator.rank
        self.size = communicator.size
        self.call = call
        self.number = number  # of collectives that this member has begun
        self._communicator = communicator

    def swap(self, outgoing: Pieces, incoming: Pieces) -> None:
        self._communicator._transfer(outgoing, incoming, self)
        self._communicator._moved_pairs(outgoing, incoming, rounds=0)

    def spare(self, like: Flat, elements: int) -> Flat:
        return self._communicator._spare_bytes(elements * like.itemsize).view(like.dtype)


class PointToPoint(Communicator):
    """Every operation by the functions of `point_to_point.collectives`, on flat arrays of NumPy."""

    def __init__(self, group: Group, topology: Topology) -> None:
        super().__init__(group, topology)
        self._spare = np.empty(0, dtype=np.uint8)
        self._calls: deque[tuple[int, Signature]] = deque(maxlen=REMEMBERED)  # collectives, by number

    @abstractmethod
    def _transfer(self, outgoing: Pieces, incoming: Pieces, conversation: OngoingCollective) -> None:
        """Send to and receive from other members (flat, rank), all at once, and return when all is done.

        There is at most one array to and one from each. Before they trust the data, both ends compare what
        they call; and either end returns after the other has begun.
        """

    @final
    def _allreduce(self, flat: Any, operation: str, call: Signature) -> None:
        reduce = reduction(operation, flat.dtype)
        if collectives.doubling_is_faster(self.size, flat.nbytes):
            self._double(flat, reduce, call)
        else:
            self._collective(call, 2, lambda exchange: collectives.direct_allreduce(exchange, flat, reduce))

    def _double(self, flat: Flat, reduce: Reduce, call: Signature) -> None:
        rounds = collectives.doubling_rounds(self.size)
        self._collective(
            call, rounds, lambda exchange: collectives.recursive_doubling(exchange, flat, reduce)
        )

    @final
    def _reduce_scatter(self, flat: Any, operation: str, call: Signature) -> None:
        reduce = reduction(operation, flat.dtype)
        self._collective(call, 1, lambda exchange: collectives.reduce_scatter(exchange, flat, reduce))

    @final
    def _all_gather(self, flat: Any, call: Signature) -> None:
        self._collective(call, 1, lambda exchange: collectives.all_gather(exchange, flat))

    @final
    def _all_to_all(self, flat: Any, call: Signature) -> None:
        self._collective(call, 1, lambda exchange: collectives.all_to_all(exchange, flat))

    @final
    def _broadcast(self, flat: Any, root: int, call: Signature) -> None:
        depth = self.size.bit_length() - 1
        self._collective(call, depth, lambda exchange: collectives.broadcast(exchange, flat, root))

    @final
    def _barrier(self, call: Signature) -> None:
        nothing = np.empty(0, dtype=np.uint8)
        self._double(nothing, reduction("max", nothing.dtype), call)

    @final
    def _exchange(self, outgoing: Pairs, incoming: Pairs, call: Signature, tag: int) -> None:
        if outgoing or incoming:
            OngoingCollective(self, call, self._number).swap(outgoing, incoming)
            self._moved(sent=0, received=0, messages=0, rounds=1)

    @property
    def _number(self) -> int:
        return self._calls[-1][0] if self._calls else 0

    def _collective(
        self, call: Signature, rounds: int, algorithm: Callable[[CollectiveExchange], None]
    ) -> None:
        if self.size == 1:  # a sub-group of one: nothing moves
            return
        self._calls.append((self._number + 1, call))
        algorithm(OngoingCollective(self, call, self._number))
        self._moved(sent=0, received=0, messages=0, rounds=rounds)

    def _spare_bytes(self, count: int) -> Flat:
        """Memory that is kept between calls."""
        if self._spare.size < count:
            self._spare = np.empty(count, dtype=np.uint8)
        return self._spare[:count]
