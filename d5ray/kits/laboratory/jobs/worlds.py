"""Groups whose members reduce arrays together, behind one interface: d5ray's own and MPI's"""

from collections.abc import Callable
from typing import Any, Protocol, final

import numpy as np

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group, Store
from d5ray.distributed.topologies.topology import Complete
from d5ray.errors import AgentError
from d5ray.kits.laboratory.comparisons.timing import TimedGroup, Times, timed

Array = np.ndarray[Any, np.dtype[np.float32]]
WAIT_SECONDS = 60.0  # of a member for another


class ReducingGroup(TimedGroup, Protocol):
    """One member's side of a group."""

    def reduction(self, elements: int) -> tuple[Array, Callable[[], object]]:
        """A flat float32 array in the memory that this group exchanges best, and what sums it over all."""

    def close(self) -> None:
        """Leave the group and free what it holds."""


def timed_sum(world: ReducingGroup, rank: int, size: int, elements: int, seconds: float) -> Times:
    """The times of a sum over all members, for about `seconds`, after a check that it is right."""
    array, reduce = world.reduction(elements)
    array[:] = rank + 1
    reduce()
    expected = size * (size + 1) / 2
    if not (array == expected).all():
        raise AgentError(f"the sum over ranks is {array} instead of {expected}: nothing is measured")
    array[:] = 0  # repeated sums of anything else would overflow
    return timed(reduce, world, seconds)


def join(backend: str, rank: int, size: int, store: Store) -> "D5rayWorld":
    """A member of a d5ray group on one machine. store: of its `Rendezvous`."""
    group = Group("measured", 0, rank, size, store, timeout_seconds=WAIT_SECONDS)
    return D5rayWorld(backends.join(backend, group, Complete(size)))


@final
class D5rayWorld(ReducingGroup):
    """A world whose collectives are those of a communicator of d5ray."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator

    def reduction(self, elements: int) -> tuple[Array, Callable[[], object]]:
        array = self.communicator.allocate(elements, "float32")
        return array, lambda: self.communicator.allreduce(array)

    def largest(self, value: float) -> float:
        own = np.array([value])
        self.communicator.allreduce(own, "max")
        return float(own[0])

    def barrier(self) -> None:
        self.communicator.barrier()

    def close(self) -> None:
        self.communicator.close()


@final
class MPIWorld(ReducingGroup):
    """A world of all processes that mpirun started, through mpi4py; it has given this one its rank."""

    def __init__(self, rank: int) -> None:
        from mpi4py import MPI  # noqa: PLC0415 - an extra; importing it starts MPI

        if (found := MPI.COMM_WORLD.Get_rank()) != rank:
            raise AgentError(f"MPI says that this process has rank {found}, it was started as rank {rank}")
        self.mpi: Any = MPI

    def reduction(self, elements: int) -> tuple[Array, Callable[[], object]]:
        array = np.zeros(elements, np.float32)
        world, in_place, total = self.mpi.COMM_WORLD, self.mpi.IN_PLACE, self.mpi.SUM
        return array, lambda: world.Allreduce(in_place, array, total)

    def largest(self, value: float) -> float:
        return float(self.mpi.COMM_WORLD.allreduce(value, self.mpi.MAX))

    def barrier(self) -> None:
        self.mpi.COMM_WORLD.Barrier()

    def close(self) -> None:
        pass
