"""An agent's end of the simulated world"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.one_sided.peers import Peers
from d5ray.distributed.parameter_server.client import Server
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.rpc.service import Address
from d5ray.distributed.simulation.arrival_order import FirstCome, Order
from d5ray.distributed.simulation.client import SimulatedServer
from d5ray.distributed.simulation.clock import VirtualClock
from d5ray.distributed.simulation.communicator import SimulatedNetwork
from d5ray.distributed.simulation.compute import ComputeTime
from d5ray.distributed.simulation.links import Links, Wires
from d5ray.distributed.simulation.peers import Meadow, SimulatedPeers
from d5ray.distributed.simulation.server import SimulatedServers
from d5ray.distributed.topologies.topology import Topology
from d5ray.distributed.world import Directory, World
from d5ray.frameworks.host import host_view
from d5ray.networks.executors.delayed import DelayedExecutor, Virtual
from d5ray.networks.executors.executor import Executor
from d5ray.training.stragglers import StragglerDelay


@dataclass
class Simulation:
    """The state that all agents of one simulation share."""

    clock: VirtualClock
    network: SimulatedNetwork
    compute: ComputeTime
    seed: int
    order: Order
    meadow: Meadow
    servers: SimulatedServers | None = None
    members: tuple[int, ...] = ()  # agents of the group that forms, by rank in it; empty: all

    @classmethod
    def of(cls, links: Links, compute: ComputeTime, seed: int, order: Order | None = None) -> "Simulation":
        """A new one, at time 0. order: of what agents ask of servers and each other, as it comes."""
        order = order or FirstCome()
        clock = VirtualClock()
        wires = Wires(links)
        return cls(clock, SimulatedNetwork(clock, wires), compute, seed, order, Meadow(clock, wires, order))


@final
class SimulatedWorld(World):
    """The world of the agent with this rank."""

    has_threads = False  # all agents are greenlets of one thread

    def __init__(self, simulation: Simulation, rank: int) -> None:
        self._simulation = simulation
        self.scheduler = simulation.clock
        self._rng = np.random.default_rng([simulation.seed, rank, 0xC0])

    def join(self, backend: str, group: Group, topology: Topology) -> Communicator:
        nodes = self._simulation.members or range(group.size)
        return self._simulation.network.join(group, topology, nodes)

    def connect(
        self, resolved: ResolvedServers, x: Any, communication: Communicator, directory: Directory | None
    ) -> Server:
        simulation, flat = self._simulation, host_view(x)
        if simulation.servers is None:
            simulation.servers = SimulatedServers(
                simulation.clock,
                simulation.network.wires,
                resolved,
                flat,
                communication.size,
                simulation.order,
            )
        return SimulatedServer(simulation.servers, len(flat), communication)

    def meet(
        self, x: Any, communication: Communicator, addresses: Mapping[int, Address] | None = None
    ) -> Peers:
        return SimulatedPeers(self._simulation.meadow, host_view(x), communication)

    def delayed(self, executor: Executor, delay: StragglerDelay) -> Executor:
        simulation, rng = self._simulation, self._rng

        def seconds() -> float:
            return simulation.compute.seconds(rng) * delay.factor()

        return DelayedExecutor(executor, Virtual(seconds, simulation.clock.sleep))
