"""World: the time, the other agents, and the speed of computing, as an agent reaches them"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.one_sided.peers import Peers
from d5ray.distributed.parameter_server.client import Server
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.rpc.service import Address
from d5ray.distributed.scheduler import THREADS, Scheduler
from d5ray.distributed.topologies.topology import Topology
from d5ray.distributed.wire.secret import Secret
from d5ray.errors import ConfigurationError
from d5ray.frameworks.host import host_copy, host_view, on_device
from d5ray.networks.executors.delayed import DelayedExecutor, Slowed
from d5ray.networks.executors.executor import Executor
from d5ray.training.stragglers import StragglerDelay


@dataclass(frozen=True)
class Directory:
    """The addresses of the parameter servers: the root's shards, then those of each group."""

    secret: Secret
    root: tuple[Address, ...]
    groups: tuple[tuple[Address, ...], ...] = ()

    def near(self, resolved: ResolvedServers, rank: int, agents: int) -> tuple[Address, ...]:
        """The shards that this agent speaks to."""
        return self.groups[resolved.servers.group_of(rank, agents)] if self.groups else self.root


class World(ABC):
    """The agent's own end of it; there is the real one and the simulated one."""

    scheduler: Scheduler
    has_threads: ClassVar[bool] = True  # whether an agent may start some beside the one that it runs in

    @abstractmethod
    def join(self, backend: str, group: Group, topology: Topology) -> Communicator:
        """The communicator with the other agents."""

    @abstractmethod
    def connect(
        self, resolved: ResolvedServers, x: Any, communication: Communicator, directory: "Directory | None"
    ) -> Server:
        """The agent's side of the parameter servers of a model with the parameters x (n,).

        directory: where they are, in the real world.
        """

    @abstractmethod
    def meet(
        self, x: Any, communication: Communicator, addresses: Mapping[int, Address] | None = None
    ) -> Peers:
        """The other agents, one-sidedly; this agent's window begins with x (n,).

        addresses: of the others, for an agent that comes later; else all agents call it at once.
        """

    @abstractmethod
    def delayed(self, executor: Executor, delay: StragglerDelay) -> Executor:
        """The executor, so that its gradients take the time they are to take."""


@final
class RealWorld(World):
    """Processes and threads, in real time."""

    scheduler = THREADS

    def join(self, backend: str, group: Group, topology: Topology) -> Communicator:
        return backends.join(backend, group, topology)

    def connect(
        self, resolved: ResolvedServers, x: Any, communication: Communicator, directory: "Directory | None"
    ) -> Server:
        from d5ray.distributed.parameter_server.remote_client import RemoteServer  # noqa: PLC0415 - few need it

        if directory is None:
            raise ConfigurationError("the agents were not told where their parameter servers are")
        group = communication.group
        flat = host_copy(x) if on_device(x) else host_view(x)
        return RemoteServer(
            directory.near(resolved, communication.rank, group.size),
            rank=communication.rank,
            elements=len(flat),
            dtype=flat.dtype.name,
            node=group.nodes[communication.rank] if group.nodes else "",
            secret=directory.secret,
            seconds=group.timeout_seconds,
            traffic=communication.traffic,
            encrypted=group.encrypted,
        )

    def meet(
        self, x: Any, communication: Communicator, addresses: Mapping[int, Address] | None = None
    ) -> Peers:
        from d5ray.distributed.one_sided.remote_peers import RemotePeers  # noqa: PLC0415 - few need it

        return RemotePeers(host_view(x), communication, addresses)

    def delayed(self, executor: Executor, delay: StragglerDelay) -> Executor:
        if not delay:
            return executor
        return DelayedExecutor(executor, Slowed(delay.factor, self.scheduler.now, self.scheduler.sleep))
