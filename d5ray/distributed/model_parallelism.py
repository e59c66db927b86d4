"""Model parallelism: what the core asks of a layout of agents that hold networks together, one share each"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.checks import check_kind
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.graph import check_agents
from d5ray.distributed.topologies.topology import Complete, Topology
from d5ray.errors import ConfigurationError
from d5ray.networks.executors.executor import Executor
from d5ray.networks.executors.labelled_network import LabelledNetwork
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    from d5ray.metrics.record.recorder import Recorder

Parameters = dict[str, np.ndarray[Any, Any]]
AGENTS = 2  # where nothing says how many


class NetworkShares(ABC):
    """The shares of one network, by the places of a replica's agents; all replicas have the same."""

    @abstractmethod
    def at(self, place: int) -> Any:
        """The share at this place, which its agent is sent, and makes its executor of."""

    @abstractmethod
    def whole(
        self, parameters: Sequence[Parameters] | Mapping[int, Parameters], replica: int = 0
    ) -> Parameters:
        """The parameters, gradients or state of a replica's network, of those of all agents by rank."""


class PassRecords(ABC):
    """The rows that an agent records of its share's passes, beside those of every agent."""

    @abstractmethod
    def begin(self) -> None:
        """Read the counters before a step."""

    @abstractmethod
    def end(self, step: int, epoch: int, phase: str) -> None:
        """Record the step that is over."""


class ModelParallelism(ABC):
    """A layout of agents for `Experiment(mesh=…)`: replicas of a network, each held by several agents.

    Agents are numbered replica by replica, and have the same places in each. Those at one place hold the same
    parameters; they train by the experiment's distributed optimizer, over its topology.
    """

    replicas: int

    @property
    @abstractmethod
    def agents_per_replica(self) -> int:
        """The number of agents that hold one network together."""

    @abstractmethod
    def check(self, experiment: Any) -> None:
        """Raise `ConfigurationError` where the other values of an `Experiment` exclude this layout."""

    @abstractmethod
    def check_agents(self, agents: int) -> None:
        """Raise `ConfigurationError` unless this is the number of the layout's agents."""

    @abstractmethod
    def name_of(self, place: int) -> str:
        """A place's name, in messages and names of files, such as "stage 1 part 0"."""

    @abstractmethod
    def shares(self, network: LabelledNetwork) -> NetworkShares:
        """The shares of a network. Raises `ConfigurationError` where it cannot be divided so."""

    @abstractmethod
    def executor(
        self, share: Any, make: Callable[..., Executor], loss: Loss, options: Mapping[str, Any]
    ) -> Executor:
        """The executor of a share, which computes when it has met the others.

        make: what makes the executor of a whole network; options: the device and threads. Raises
        `ConfigurationError` where there is none of shares beside it.
        """

    @abstractmethod
    def meet(self, executor: Executor, group: Group, join: Callable[[Group], Communicator]) -> None:
        """Let an executor meet those that hold the rest of its network; all agents call it together.

        group: of all agents that are there; join: gives the communicator with some of them.
        """

    @abstractmethod
    def leave(self, executor: Executor) -> None:
        """Let an executor leave those that it has met; their communicators are closed by whoever joined."""

    @abstractmethod
    def groups(self, group: Group) -> tuple[Group, ...]:
        """All groups in which an agent meets others, last `same_place`; group: of all that are there."""

    @abstractmethod
    def records(
        self, executor: Executor, recorder: "Recorder", within: Sequence[Communicator]
    ) -> PassRecords:
        """What records an agent's passes. within: what `meet` has joined last, at any time."""

    @final
    @property
    def agents(self) -> int:
        """The number of agents in all replicas."""
        return self.replicas * self.agents_per_replica

    @final
    @property
    def shares_networks(self) -> bool:
        """True if several agents hold one network."""
        return self.agents_per_replica > 1

    @final
    def same_place(self, group: Group) -> Group:
        """The group of the agents that hold the same parameters as this one, one of each replica."""
        place = group.rank % self.agents_per_replica
        ranks = range(place, group.size, self.agents_per_replica)
        return group.among(ranks, f"{group.name}/{self.name_of(place)}")


def sized(
    mesh: ModelParallelism | None, topology: Topology | None, agents: int | None
) -> tuple[Topology, int]:
    """The topology and the number of agents, each from what is given of the others.

    Raises `ConfigurationError` where what is given disagrees.
    """
    check_kind("mesh", mesh, ModelParallelism | None, "a Mesh such as Mesh(replicas=2, stages=3), or None")
    check_kind("topology", topology, Topology | None, "a Topology such as Ring(4)")
    if mesh is not None and agents is not None:
        mesh.check_agents(agents)
    if topology is None:
        joined = mesh.replicas if mesh is not None else AGENTS if agents is None else agents
        check_agents(joined)
        topology = Complete(joined)
    elif mesh is not None and topology.agents != mesh.replicas:
        raise ConfigurationError(
            f"{topology} is of {topology.agents}, the mesh has {mesh.replicas} replicas, which "
            f"the topology joins: set replicas={topology.agents}, or a topology of {mesh.replicas}"
        )
    elif mesh is None and agents not in (None, topology.agents):
        raise ConfigurationError(
            f"{topology} has {topology.agents} agents, the experiment has {agents}: "
            f"set agents={topology.agents}, or a topology of {agents}"
        )
    return topology, topology.agents if mesh is None else mesh.agents
