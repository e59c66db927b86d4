"""An agent's connections: to its group, to those with the rest of its network, to servers and peers"""

import copy
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from d5ray.agent.data import AgentData
from d5ray.agent.user_errors import blaming
from d5ray.distributed.buffers import LocalBuffers
from d5ray.distributed.checkpoints.equality import EqualityCheck, checksum_of_fixed
from d5ray.distributed.checkpoints.named_tensors import fill_buffers
from d5ray.distributed.checkpoints.rollback import Committed, RestartPoint, begun_anew, prove
from d5ray.distributed.communicators.agreement.rows import gathered
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.simple.solo import Absent
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.waits import PresentWait
from d5ray.distributed.one_sided.peers import Peers
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.parameter_server.client import Server
from d5ray.distributed.parameter_server.remote_client import RemoteServer
from d5ray.distributed.rpc.service import Address
from d5ray.distributed.topologies.topology import Complete, Topology
from d5ray.distributed.world import Directory, World
from d5ray.errors import ConfigurationError, D5Error
from d5ray.experiment import Experiment
from d5ray.frameworks.cupy.nccl_group import available
from d5ray.frameworks.host import device_name
from d5ray.networks.executors.executor import Allocate, Executor
from d5ray.training.arrays import like
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.samplers.shards import Sharing
from d5ray.training.schedules import rate_factor


@dataclass(frozen=True)
class LateEntry:
    """Everything that an agent must know that joins others one-sidedly."""

    group: Group
    step: int  # from which it goes on
    directory: Directory | None
    addresses: Mapping[int, Address]  # of the other agents that are left, where they reach each other
    parameters: np.ndarray[Any, Any] | None = None  # (n,), another agent's
    buffers: Mapping[str, np.ndarray[Any, Any]] | None = None  # by name, of the same; None: it is as theirs
    absent: tuple[int, ...] = ()  # agents that are not there, or not yet


@final
class Connections:
    """The connections of one agent, and the distributed optimizer, which is bound to them.

    communication  with those that train the same parameters; None before it has joined them
    replica, place of the agent in the mesh; without one it is a replica of its own, at place 0
    within         with those that compute the rest of its network
    server, peers  parameter servers, and the other agents one-sidedly, where the optimizer uses them
    optimizer      a copy of the experiment's, since agents of one process must not share it
    equality       the check that those who train the same parameters have the same
    committed      the state after the last complete step, where a death among the agents may ask for it
    """

    optimizer: DistributedOptimizer

    def __init__(
        self, experiment: Experiment, rank: int, executor: Executor, data: AgentData, world: World
    ) -> None:
        self.executor = executor
        self.replica, self.place = divmod(rank, experiment.agents_per_replica)
        self.communication: Communicator | None = None
        self.within: list[Communicator] = []
        self.server: Server | None = None
        self.peers: Peers | None = None
        self.equality: EqualityCheck | None = None
        one_sided = experiment.distributed_optimizer.one_sided
        forms_again = experiment.faults.on_failure != "stop" and not one_sided
        self.committed = self._nothing_kept(experiment) if forms_again else None
        self._first_step: int | None = None  # since it is bound
        self._syncs = False  # buffers before steps
        self._agreed: frozenset[str] | None = None  # about which ones, with which statistics frozen
        self._moved: dict[int, Address] = {}  # shards that are not where the directory says
        self._paused: Committed | None = None
        self._experiment, self._rank, self._data, self._world = experiment, rank, data, world
        self._check_memory()

    def _check_memory(self) -> None:
        """Refuse parameters on a device where agents exchange in host memory, or by what is not installed."""
        optimizer, device = self._experiment.distributed_optimizer, device_name(self.executor.parameters)
        if device == "cpu":
            return
        if (self._experiment.agents or 1) > 1 and self._experiment.communicator in ("auto", "nccl"):
            available(device)
        for via, how in (
            (ExchangeVia.SHARED_MEMORY, "lets all agents change one array in host memory"),
            (ExchangeVia.PEERS, "has agents read and write each other's host memory"),
        ):
            if via in optimizer.exchange:
                raise ConfigurationError(
                    f"{type(optimizer).__name__} {how}, and the parameters lie on {device}: train on "
                    "CPUDevice(), or take a distributed optimizer that exchanges by collectives or servers"
                )

    # -- joining ---------------------------------------------------------------------------------------

    def join(self, group: Group, directory: Directory | None, topology: Topology | None = None) -> str:
        """Join the group, take the first agent's parameters, and bind the distributed optimizer.

        directory: where the parameter servers are, if there are any. topology: by default the experiment's.
        Returns the name of the communicator's backend.
        """
        experiment, executor = self._experiment, self.executor
        topology = topology or experiment.topology
        assert topology is not None
        group = self._meet_network(group)
        communication = self.communication = self._communicator(group, topology)
        if ExchangeVia.SHARED_MEMORY in experiment.distributed_optimizer.exchange:
            communication.broadcast(executor.parameters, root=0)
            executor.use_buffers(_common_first(communication))
        elif experiment.resolved_servers is None:
            executor.use_buffers(communication.allocate)
            communication.broadcast(executor.parameters, root=0)
        else:
            communication.broadcast(executor.parameters, root=0)
            self._connect(communication, directory)
        share_state(executor, communication)
        if ExchangeVia.PEERS in experiment.distributed_optimizer.exchange:
            self.peers = self._world.meet(executor.parameters, communication)
        self._bind(communication)
        return communication.backend

    def take_first(self, group: Group, topology: Topology) -> str:
        """Take the parameters of the first agent of those that are there; returns the backend's name."""
        communication = self.communication = self._communicator(group, topology)
        communication.broadcast(self.executor.parameters, root=0)
        share_state(self.executor, communication)
        communication.close()
        return communication.backend

    def join_late(self, entry: LateEntry) -> None:
        """Join agents that do not wait for this one, at the beginning or in the place of one that died.

        The parameters come from the servers, or are those of another agent; for one-sided optimizers.
        """
        experiment = self._experiment
        assert experiment.topology is not None
        communication = self.communication = Absent(self._meet_network(entry.group), experiment.topology)
        if experiment.resolved_servers is not None:
            self._connect(communication, entry.directory)
        if ExchangeVia.PEERS in experiment.distributed_optimizer.exchange:
            x = self.executor.parameters
            if entry.parameters is not None:
                x[...] = like(x, entry.parameters)
            self.peers = self._world.meet(x, communication, entry.addresses)
            self.peers.complete = False
            for rank in entry.absent:
                self.peers.lose(rank)
        if entry.buffers is not None:
            fill_buffers(self.executor, entry.buffers)
        self._bind(communication)

    def rejoin(self, group: Group, topology: Topology, sharing: Sharing) -> RestartPoint:
        """Form a new group with those that are left, and those that were started again, or are more.

        In a mesh those that hold a network together go back to a step that all of them have done first.
        sharing: how its members share the samples that are left of the epoch, and those of all others.
        A rule that trains one model has the state on all of the one that has done the most steps, proved by
        a hash; the agents of others go back to their own last complete step, and new ones take that one's.
        Raises `PeerLost` where another one is lost meanwhile: the same can then be done again.
        """
        committed = self.committed or self._paused or Committed()
        rule = self._experiment.distributed_optimizer
        one_model, since = rule.one_model, 0 if self.equality is None else self.equality.since
        try:
            self.leave()
            group = self._meet_network(group)
            committed.go_back(self.within, self.executor.parameters)
            communication = self.communication = self._communicator(group, topology)
            self.executor.use_buffers(communication.allocate)
            like, epochs = self.executor.parameters, self._data.epochs
            agreed = committed.agree(communication, like, rule, epochs, rank=self._rank, since=since)
            self._data.share_from(agreed.place, sharing)
            committed.give_parameters(self.executor)
            share_fixed(self.executor, communication, agreed.source)
            self._bind(communication, agreed.step)
            committed.give_rule(self.optimizer, one_model)
            agreed = replace(
                agreed,
                anew=begun_anew(self.optimizer, committed),
                global_batch=self._data.shards.global_batch(agreed.place),
                rate_factor=self.rate_factor,
            )
            if one_model:
                sha256 = prove(agreed.step, self.optimizer, self.executor, communication)
                agreed = replace(agreed, sha256=sha256)
            self._paused = None
        except D5Error:
            self.leave()
            raise
        return agreed

    @staticmethod
    def _nothing_kept(experiment: Experiment) -> Committed:
        """Room for the state after a step, in a mesh also after the one before it."""
        return Committed(before=Committed() if experiment.mesh is not None else None)

    def _communicator(self, group: Group, topology: Topology) -> Communicator:
        device = device_name(self.executor.parameters)
        return self._world.join(self._experiment.communicator, replace(group, device=device), topology)

    def begun_at(self, step: int) -> RestartPoint:
        """The step at which all begin, or go on from a checkpoint; those that train one model prove it."""
        assert self.communication is not None
        sha256, rule = "", self._experiment.distributed_optimizer
        if rule.one_model and rule.equal_after(step):
            sha256 = prove(step, self.optimizer, self.executor, self.communication)
        place = self._data.epochs.at(step)
        return RestartPoint(
            (step,) * self.communication.size,
            0,
            sha256,
            place=place,
            global_batch=self._data.shards.global_batch(place),
            rate_factor=self.rate_factor,
        )

    def replicas_in(self, group: Group) -> Group:
        """The group of those that train the same parameters; group: of all agents that are there."""
        mesh = self._experiment.mesh
        return group if mesh is None else mesh.same_place(group)

    def _meet_network(self, group: Group) -> Group:
        """Meet those that compute the rest of the network, if any; gives `replicas_in` the group."""
        mesh = self._experiment.mesh
        if mesh is not None:
            self.within.clear()
            mesh.meet(self.executor, group, self._meet)
        return self.replicas_in(group)

    def _meet(self, group: Group) -> Communicator:
        self.within.append(self._communicator(group, Complete(group.size)))
        return self.within[-1]

    def _connect(self, communication: Communicator, directory: Directory | None) -> None:
        """Take the servers' parameters into memory that they reach."""
        executor, data = self.executor, self._data
        assert self._experiment.resolved_servers is not None
        resolved = self._experiment.resolved_servers.timed(data.epochs, data.shards.agents)
        self.server = self._world.connect(resolved, executor.parameters, communication, directory)
        for shard, address in list(self._moved.items()):
            self.reroute(shard, address)
        rank, agents = communication.rank, communication.group.size
        if rank == resolved.members(resolved.group_of(rank, agents), agents)[0]:
            self.server.begin(executor.parameters)
        executor.use_buffers(self.server.allocate)
        self.server.pull(into=executor.parameters)
        executor.forbid_adopting("parameter servers")

    def _bind(self, communication: Communicator, step: int = 0) -> None:
        experiment = self._experiment
        self.optimizer = copy.copy(experiment.distributed_optimizer)
        with blaming(f"TrainingAgent(rank={self._rank})", "while its distributed optimizer started"):
            self.optimizer.bind(
                executor=self.executor,
                base=self._base(),
                communication=communication,
                rng=np.random.default_rng([experiment.seed, self.replica]),
                shared_rng=np.random.default_rng([experiment.seed, communication.size]),
                server=self.server,
                peers=self.peers,
            )
        self.equality = EqualityCheck(self._rank, self.optimizer, communication, step, self.executor)
        self._syncs = self.optimizer.buffer_policy != LocalBuffers() and communication.size > 1
        self._first_step, self._agreed = None, None

    def _base(self) -> Optimizer:
        """The base optimizer of the experiment, with the rate that fits the global batch as it is now."""
        base, relative = self._experiment.optimizer.timed(self._data.epochs), self.rate_factor
        return base if relative == 1.0 else base.scaled(relative)

    @property
    def rate_factor(self) -> float:
        """The learning rate relative to the planned one, by `scale_rate`."""
        return rate_factor(self._experiment.elastic.scale_rate, self._data.shards.relative_batch)

    # -- in training -----------------------------------------------------------------------------------

    def begin_at(self, step: int) -> None:
        """Go on from a checkpoint of this step, whose state is all agents'."""
        assert self.equality is not None
        self.shared_anew()
        self.equality.equal_at(step)
        if self.committed is not None and not self.optimizer.meets_after(step):
            self.committed = self._nothing_kept(self._experiment)  # until they meet
        else:
            self.commit(step)

    def shared_anew(self) -> None:
        """Let the base optimizer's rate and its schedules go by where the data are now."""
        self.optimizer.base = self._base()

    def commit(self, step: int) -> None:
        """Keep the state as it is now, after that many steps, if a death may ask for it."""
        if self.committed is not None:
            self.committed.keep(step, self.optimizer, self.executor)

    def follow_model(self, step: int) -> None:
        """Adopt what an event or the model itself has put in parameters' places, before a step; see `adopt`.

        All agents train parameters that were released, from here on. Raises `ConfigurationError` where the
        distributed optimizer cannot, or where not all agents have released them.
        """
        executor, communication = self.executor, self.communication
        if self._experiment.events:  # what passes put is adopted at their end
            executor.adopt()
        if not executor.released:
            return
        assert communication is not None
        self.optimizer.check_growing()
        before = executor.slots
        executor.take_released()
        counts = gathered(np.array([len(executor.parameters)]), communication, executor.parameters)
        if len(set(counts.ravel().tolist())) > 1:
            raise ConfigurationError(
                f"the model has released parameters by requires_grad_(True) before step {step}, and agents "
                f"train {', '.join(map(str, counts.ravel()))} numbers now: release the same on all agents"
            )
        executor.use_buffers(communication.allocate)
        communication.broadcast(executor.parameters, root=0)
        self.optimizer.grow(before)
        self.commit(step)

    def release(self, names: Collection[str], step: int) -> None:
        """Let the model train all parameters of these names, as it did when a checkpoint was written."""
        self.executor.release(set(names) - {slot.name for slot in self.executor.slots})
        self.follow_model(step)

    def sync_buffers(self, step: int) -> None:
        """Give all agents the first one's buffers that passes change and may read, before a step.

        So does `DistributedDataParallel`; here where agents have one model after that many steps, and only
        what moves: agents tell each other after their first pass, when normalizations freeze, and when passes
        begin to change another one. Raises `ConfigurationError` where they do so on some agents alone.
        """
        if not self._syncs or (rule := self.optimizer).one_sided:
            return
        assert self.communication is not None
        arrays, moving = self.executor.state_arrays(), self.executor.moving
        if not (arrays or moving):
            return
        late = moving.difference(rule.moving)
        if new := late.difference(arrays):
            raise ConfigurationError(
                f"the model's buffer {min(new)!r} was registered in training, and passes changed it before "
                f"step {step}: agents exchange the buffers that a model has when they begin, so register it "
                "where the model is made"
            )
        if self._first_step is None:
            self._first_step = step
        elif self._first_step < step and (late or self._agreed != self.executor.frozen_statistics):
            names, known = sorted(arrays), self._agreed is not None
            own = np.array([name in moving for name in names], np.int64)
            self._agreed = self.executor.frozen_statistics
            try:
                rows = gathered(own, self.communication, self.executor.parameters)
            except ConfigurationError as error:  # others go on with the step
                if not (late and known):
                    raise
                raise ConfigurationError(
                    f"the model's buffer {min(late)!r} began to change before step {step}, but not on all "
                    "agents, which exchange those that passes change: let the first pass change it, too, as "
                    "adding 0 in place does"
                ) from error
            rule.moving = [name for name, on in zip(names, rows.max(axis=0).tolist(), strict=True) if on]
        if rule.equal_after(step):
            for name in rule.moving:
                self.communication.broadcast(arrays[name], root=0)

    def pause(self, step: int) -> None:
        """Keep the state as it is now, after that many steps, for a group with others."""
        self._paused = self.committed or self._nothing_kept(self._experiment)
        self._paused.keep(step, self.optimizer, self.executor)

    def reroute(self, shard: int, address: Address) -> int:
        """Take notice that a parameter server is there now; the pushes that the one before acknowledged."""
        self._moved[shard] = address
        if not isinstance(self.server, RemoteServer):  # this agent still joins
            return 0
        self.server.reroute(shard, address)
        return self.server.acknowledged[shard]

    def waits(self) -> list[PresentWait]:
        """The waits of this agent for others as they last now; called from another thread."""
        group = () if self.communication is None else (self.communication,)
        others = [each for each in (self.server, self.peers) if each is not None]
        return [wait for each in (*group, *self.within, *others) for wait in each.waits()]

    def drain(self) -> None:
        """Return when servers and peers have everything."""
        for each in (self.server, self.peers):
            if each is not None:
                each.drain()

    def server_parameters(self, *, settled: bool = True) -> np.ndarray[Any, Any]:
        """The parameters (n,) that the servers have by now, in host memory.

        settled: with what this agent has sent, for which it waits. Raises `ConfigurationError` where there
        are none.
        """
        if self.server is None:
            raise ConfigurationError(
                f"{self.optimizer!r} has no parameter servers: ask for an agent's model, by its rank, or for "
                "the 'mean'"
            )
        if settled:
            self.server.drain()
        return np.concatenate([part.arrays[part.data["x"]["array"]] for part in self.server.kept()])

    def leave(self) -> None:
        """Close them all; peers that wait for this agent get `PeerLost` at once."""
        for each in (self.server, self.peers, self.communication):
            if each is not None:
                each.close()
        if self._experiment.mesh is not None and self.within:
            self._experiment.mesh.leave(self.executor)
        for communicator in self.within:
            communicator.close()


def _common_first(communication: Communicator) -> Allocate:
    """Gives the parameters' memory, which is asked for first, to all agents in common."""
    calls = itertools.count()

    def allocate(elements: int, dtype: str) -> np.ndarray[Any, Any]:
        if next(calls) == 0:
            return communication.common(elements, dtype)
        return communication.allocate(elements, dtype)

    return allocate


def share_state(executor: Executor, communication: Communicator) -> None:
    """Let all agents have the first one's state, and what it does not train, as they begin."""
    if communication.size == 1:
        return
    for array in (executor.buffers, *executor.counters):
        if len(array.reshape(-1)):
            communication.broadcast(array, root=0)
    share_fixed(executor, communication, 0)


def share_fixed(executor: Executor, communication: Communicator, root: int) -> None:
    """Let all agents have one's parameters that are not trained; nothing is sent where they are equal."""
    own = np.array([checksum_of_fixed(executor)], np.uint64).view(np.int64)
    if len(set(gathered(own, communication, executor.parameters).ravel().tolist())) > 1:
        executor.visit_fixed(lambda _, values: communication.broadcast(values, root=root))
