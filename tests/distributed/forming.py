"""Groups for tests: a backend's members in threads of this process, simulated ones on a virtual clock"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group, Store
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.simulation.clock import VirtualClock
from d5ray.distributed.simulation.communicator import SimulatedNetwork
from d5ray.distributed.simulation.links import UniformLinks, Wires
from d5ray.distributed.topologies.topology import Complete, Topology
from d5ray.distributed.wire.secret import Secret
from tests.distributed.communicators.reference import Reference
from tests.distributed.on_gpus import OnGPUs
from tests.patience import patience
from tests.together import T, together

LONG_SECONDS = patience(30.0)  # the bound of waits in groups of which nobody leaves
_numbers = itertools.count()


class Former:
    """Makes groups, and leaves them all in the end. Members are joined in threads."""

    def __init__(self) -> None:
        self.rendezvous = Rendezvous()
        self._kept: dict[tuple[str, str], list[Communicator]] = {}
        self._made: list[list[Communicator]] = []

    def form(
        self,
        backend: str,
        topology: Topology | int,
        timeout_seconds: float = LONG_SECONDS,
        *,
        encrypted: bool = False,
        nodes: tuple[str, ...] = (),
    ) -> list[Communicator]:
        """A new group, by rank; a hierarchical one has the second half of its members on another node."""
        name = f"group-{next(_numbers)}"
        graph = Complete(topology) if isinstance(topology, int) else topology
        size = graph.agents
        if backend == "hierarchical":
            nodes = ("first",) * (size - size // 2) + ("second",) * (size // 2)
        store = self.rendezvous.address
        device = "cuda:0" if backend == "nccl" else "cpu"
        groups = [
            Group(
                name, 0, rank, size, store, "127.0.0.1", timeout_seconds, nodes, device, encrypted=encrypted
            )
            for rank in range(size)
        ]
        members: list[Communicator]
        if backend == "simulated":
            network = SimulatedNetwork(VirtualClock(), Wires(UniformLinks()))
            members = [network.join(group, graph, range(size)) for group in groups]
        else:
            members = together(lambda rank: join(backend, groups[rank], graph), size)
        self._made.append(members)
        return members

    def members(self, backend: str, topology: Topology | int) -> list[Communicator]:
        """A group that is used again by the next test which wants the same."""
        key = (backend, repr(topology))
        if key not in self._kept:
            self._kept[key] = self.form(backend, topology)
        return self._kept[key]

    def close(self) -> None:
        """Leave every group and close the rendezvous."""
        for group in self._made:
            for member in group:
                member.close()
            if isinstance(clock := group[0].scheduler, VirtualClock):
                clock.close()
        self.rendezvous.close()


def join(backend: str, group: Group, topology: Topology) -> Communicator:
    """This member's communicator, of those that tests have beside the others, too."""
    made = {"nccl": OnGPUs, "reference": Reference}.get(backend)
    return backends.join(backend, group, topology) if made is None else made(group, topology)


@contextmanager
def former() -> Iterator[Former]:
    """A `Former` for the length of a context."""
    made = Former()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def groups() -> Iterator[Former]:
    """The groups of a file of tests."""
    with former() as made:
        yield made


def on_all(
    group: list[Communicator], function: Callable[[Communicator], T], seconds: float = 60.0
) -> list[T]:
    """function(member) on all members at once; what each gave, by rank."""
    if isinstance(clock := group[0].scheduler, VirtualClock):
        return clock.run([clock.start(partial(function, member), f"rank {member.rank}") for member in group])
    return together(lambda rank: function(group[rank]), len(group), seconds)


def written(store: Store) -> str:
    """A store as HOST:PORT:SECRET, an argument of a test's program."""
    return f"{store.host}:{store.port}:{store.secret.reveal()}"


def read(word: str) -> Store:
    """What was written."""
    host, port, secret = word.split(":")
    return Store(host, int(port), Secret.parse(secret))
