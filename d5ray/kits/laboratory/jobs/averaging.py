"""Measurement of how a group averages gradients: as they are, or compressed"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.compression.reductions import RandomSources, Reduction
from d5ray.distributed.group.group import Group, Store
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Complete
from d5ray.distributed.wire.secret import Secret
from d5ray.errors import AgentError
from d5ray.kits.laboratory.comparisons import processes
from d5ray.kits.laboratory.comparisons.timing import Times, timed
from d5ray.kits.laboratory.jobs.slow_network import Host
from d5ray.kits.laboratory.jobs.worlds import WAIT_SECONDS, D5rayWorld
from d5ray.networks.executors.flat_buffers import Slot

Array = np.ndarray[Any, Any]
Slots = tuple[Slot, ...]
STORE = "store"  # the file in which the first member says where all meet


class Exchanged(NamedTuple):
    """One member's measurement of one gradient."""

    times: Times
    bytes_sent: float  # by this member, an exchange


@final
@dataclass(frozen=True)
class Averaging:
    """The work of every member: the mean of each gradient in turn.

    reduction  how it is formed; None: an allreduce of the gradient as it is
    slots      the tensors of each gradient, by its name
    encrypted  whether the members speak under TLS
    """

    reduction: Reduction | None
    hosts: tuple[Host, ...]
    folder: Path
    slots: dict[str, Slots]
    seconds: float
    seed: int
    encrypted: bool = True

    def __call__(self, rank: int) -> dict[str, Exchanged]:
        with closing(self.join(rank)) as communicator:
            found = {name: self.exchanged(communicator, slots) for name, slots in self.slots.items()}
            communicator.barrier()
        return found

    def join(self, rank: int) -> Communicator:
        """Join the group over sockets; the first member opens the place where all meet."""
        file, first = self.folder / STORE, self.hosts[0].address
        if rank == 0:
            unfinished = file.with_suffix(".part")
            opened = Rendezvous(first).address
            unfinished.touch(mode=0o600)
            unfinished.write_text(f"{opened.port} {opened.secret.reveal()}")
            unfinished.rename(file)
        opened_by = "the first member did not open the group"
        port, secret = processes.awaited(file, WAIT_SECONDS, opened_by).split()
        store = Store(first, int(port), Secret.parse(secret))
        nodes = tuple(host.name for host in self.hosts)
        own = self.hosts[rank].address
        group = Group(
            "measured", 0, rank, len(nodes), store, own, WAIT_SECONDS, nodes, encrypted=self.encrypted
        )
        return backends.join("socket", group, Complete(len(nodes)))

    def exchanged(self, communicator: Communicator, slots: Slots) -> Exchanged:
        """The times of one gradient, after a check that all members get the same mean."""
        exchange = self.exchange(communicator, slots)
        before = communicator.traffic.bytes_sent
        mean = exchange()
        sent = communicator.traffic.bytes_sent - before
        largest = mean.copy()
        communicator.allreduce(largest, "max")
        if not np.array_equal(mean, largest):
            raise AgentError(f"{self.reduction} gives agents different means: nothing is measured")
        return Exchanged(timed(exchange, D5rayWorld(communicator), self.seconds), sent)

    def exchange(self, communicator: Communicator, slots: Slots) -> Callable[[], Array]:
        """A function that gives the mean of the members' gradients, normal numbers that differ by rank."""
        generator = np.random.default_rng([self.seed, communicator.rank])
        elements = sum(slot.size for slot in slots)
        gradient = generator.standard_normal(elements, dtype=np.float32)
        if self.reduction is None:
            array = communicator.allocate(elements, "float32")
            array[:] = gradient

            def dense() -> Array:
                communicator.allreduce(array, "mean")
                return array

            return dense
        reduction, state = self.reduction, self.reduction.state(slots, np.float32)
        draws = RandomSources(generator, np.random.default_rng(self.seed))
        return lambda: reduction.mean(gradient, communicator, draws, state).mean
