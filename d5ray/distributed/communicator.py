"""How agents exchange arrays: the operations, in place, and the count of what they moved."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, final

import numpy as np

from d5ray.distributed.topology import Topology
from d5ray.errors import ConfigurationError
from d5ray.training.arrays import is_floating, zeros_like

OPERATIONS = ("sum", "mean", "min", "max")
MAX_TAG = 2**30


@dataclass(frozen=True)
class Group:
    """What one member must know to join: (name, epoch) is unique, `store` is where the members meet."""

    name: str
    epoch: int
    rank: int
    size: int
    store: tuple[str, int] | None = None  # host and port; a group of one needs none
    host: str = "127.0.0.1"  # this member's own address
    timeout_seconds: float = 120.0


@dataclass
class Traffic:
    """What this member sent and received since the start: payload in bytes, without protocol headers."""

    bytes_sent: int = 0
    bytes_received: int = 0
    messages_sent: int = 0
    rounds: int = 0  # operations
    nanoseconds: int = 0  # spent in operations, waiting included


@dataclass
class Cost:
    """What one operation moves at one member."""

    bytes_sent: int = 0
    bytes_received: int = 0
    messages_sent: int = 0


class Communicator(ABC):
    """The members of a group exchange contiguous arrays (NumPy, PyTorch) of equal shape, in place.

    Every operation is called by all members in the same order, or by both ends of a pair. A wait is
    bounded: `PeerLost` is raised when a member is gone or silent. Traffic is counted here and nowhere
    else. A backend fills the methods that begin with an underscore.
    """

    def __init__(self, group: Group, topology: Topology) -> None:
        if not 0 <= group.rank < group.size:
            raise ConfigurationError(
                f"rank {group.rank} is not in a group of {group.size}: its ranks are 0 to {group.size - 1}"
            )
        if topology.agents != group.size:
            raise ConfigurationError(
                f"{topology} has {topology.agents} agents, the group {group.name!r} has {group.size} "
                f"members: take a topology of {group.size}"
            )
        self.group = group
        self.rank = group.rank
        self.size = group.size
        self.topology = topology
        self.traffic = Traffic()
        self._mixing: np.ndarray[Any, Any] | None = None
        self._received: dict[int, Any] = {}  # kept between calls: one buffer a neighbour

    # -- collectives ---------------------------------------------------------------------------------

    @final
    def allreduce(self, array: Any, operation: str = "sum") -> None:
        """array ← operation over all members' arrays; operation is sum, mean, min or max."""
        if operation not in OPERATIONS:
            raise ConfigurationError(f"allreduce cannot {operation!r}: choose one of {', '.join(OPERATIONS)}")
        if operation == "mean":
            _check_floating(array, "allreduce 'mean'")
        begin = perf_counter_ns()
        if operation == "mean":
            cost = self._allreduce(array, "sum")
            if self.size > 1:
                array /= self.size
        else:
            cost = self._allreduce(array, operation)
        self._count(begin, cost)

    @final
    def broadcast(self, array: Any, root: int = 0) -> None:
        """array ← the root's array."""
        self._check_rank(root)
        begin = perf_counter_ns()
        self._count(begin, self._broadcast(array, root))

    @final
    def barrier(self) -> None:
        """Return when all members have called it."""
        begin = perf_counter_ns()
        self._count(begin, self._barrier())

    # -- neighbours and pairs --------------------------------------------------------------------------

    @final
    def neighbor_average(self, array: Any) -> None:
        """x_i ← Σ_j W_ij x_j over the closed neighbourhood, with the topology's mixing weights W."""
        _check_floating(array, "neighbor_average")
        begin = perf_counter_ns()
        if self._mixing is None:
            self._mixing = self.topology.weights()[self.rank]
        neighbors = self.topology.neighbors(self.rank)
        received = self._receive_buffers(array, neighbors)
        cost = self._exchange(
            [(array, other) for other in neighbors], [(received[other], other) for other in neighbors], tag=0
        )
        array *= float(self._mixing[self.rank])
        for other in neighbors:
            buffer = received[other]
            buffer *= float(self._mixing[other])
            array += buffer
        self._count(begin, cost)

    @final
    def send(self, array: Any, to: int, tag: int = 0) -> None:
        """Send the array to one other member; returns when that has received it with the same tag."""
        self._check_pair(to, tag)
        begin = perf_counter_ns()
        self._count(begin, self._exchange([(array, to)], [], tag + 1))

    @final
    def recv(self, array: Any, source: int, tag: int = 0) -> None:
        """array ← what `source`, another member, sent with this tag."""
        self._check_pair(source, tag)
        begin = perf_counter_ns()
        self._count(begin, self._exchange([], [(array, source)], tag + 1))

    # -- what a backend fills --------------------------------------------------------------------------

    @abstractmethod
    def close(self) -> None:
        """Leave the group: whoever waits for this member gets `PeerLost` at once."""

    @abstractmethod
    def _allreduce(self, array: Any, operation: str) -> Cost: ...

    @abstractmethod
    def _broadcast(self, array: Any, root: int) -> Cost: ...

    @abstractmethod
    def _barrier(self) -> Cost: ...

    @abstractmethod
    def _exchange(
        self, outgoing: list[tuple[Any, int]], incoming: list[tuple[Any, int]], tag: int
    ) -> Cost: ...

    # ------------------------------------------------------------------------------------------------

    def _count(self, begin: int, cost: Cost) -> None:
        traffic = self.traffic
        traffic.bytes_sent += cost.bytes_sent
        traffic.bytes_received += cost.bytes_received
        traffic.messages_sent += cost.messages_sent
        traffic.rounds += 1
        traffic.nanoseconds += perf_counter_ns() - begin

    def _receive_buffers(self, array: Any, ranks: tuple[int, ...]) -> dict[int, Any]:
        first = self._received.get(ranks[0]) if ranks else None
        if first is None or first.shape != array.shape or first.dtype != array.dtype:
            self._received = {rank: zeros_like(array) for rank in ranks}
        return self._received

    def _check_rank(self, rank: int) -> None:
        if not hasattr(rank, "__index__") or rank not in range(self.size):
            raise ConfigurationError(
                f"rank {rank!r} is not in this group: its ranks are 0 to {self.size - 1}"
            )

    def _check_pair(self, other: int, tag: int) -> None:
        self._check_rank(other)
        if other == self.rank:
            raise ConfigurationError(f"rank {other} is this member itself: name another one")
        if not hasattr(tag, "__index__") or tag not in range(MAX_TAG):
            raise ConfigurationError(f"the tag is {tag!r}: it must be a whole number from 0 to {MAX_TAG - 1}")


def _check_floating(array: Any, operation: str) -> None:
    if hasattr(array, "dtype") and not is_floating(array):
        raise ConfigurationError(
            f"{operation} divides, but the array is of {array.dtype}: exchange an array of a floating type"
        )
