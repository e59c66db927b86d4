"""Everything one run is, as frozen data, before it is processes."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from d5ray.checks import LARGEST, check_choice, check_count, check_number
from d5ray.distributed.communicators.backends import check_for_agents
from d5ray.distributed.group.late_agents import Late, check_late
from d5ray.distributed.mesh.mesh import Mesh
from d5ray.distributed.optimizers.allreduce import AllreduceSGD
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.parameter_server.consistency import Synchronous
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.topologies.graph import check_agents
from d5ray.distributed.topologies.requirements import check_topology
from d5ray.distributed.topologies.topology import Complete, Topology
from d5ray.errors import ConfigurationError, nearest
from d5ray.frameworks import executor_by_name
from d5ray.frameworks.torch import from_model
from d5ray.identity.canonical import canonical, digest
from d5ray.names.former import Former
from d5ray.networks.executors.executor import Executor
from d5ray.networks.loading import as_network, is_path
from d5ray.networks.network import Network
from d5ray.networks.zoo.catalogue import check_network_options
from d5ray.operators.loss import Loss
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss
from d5ray.training.batches.epochs import BatchSize, check_batch_size, check_fits
from d5ray.training.datasets import Dataset, check_dataset_options, load_dataset, training_samples
from d5ray.training.events.event import Event
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.samplers import Sampler, ShuffleSampler
from d5ray.training.stragglers import StragglerDelay, StragglerModel, check_stragglers
from d5ray.training.transformations import Transformation, check_transformations, shape_after

ON_FAILURE = ("stop", "continue", "restart")
LONGEST_NAME = 100  # characters, which begin the name of a run's folder
MOST_THREADS = 4096  # of an agent
MOST_CPUS = 4097  # excluded: no machine has as many
MOST_PREPARED = 10_000  # batches
SHORTEST_WATCH = 0.05  # s, between two looks at a node
SHORTEST_MIRROR, LONGEST_MIRROR = 0.1, 10.0
ORPHANS = ("left_out", "taken_over")


@dataclass(frozen=True)
class Experiment:
    """A training as data: model, data set, update rule, agents. Wrong values raise `ConfigurationError`.

    model          a name ('lenet', 'mlp'), a class or function that gives a network, or a network: a module
                   of the framework's, a `Network`, or the path of an .onnx file, which is read at once
    dataset        a name ('digits', 'mnist', ...) or a `Dataset`
    optimizer      level 2: the update rule, such as `Momentum(0.1, 0.9)`
    distributed    level 3: a `DistributedOptimizer` class or instance
    topology       who talks with whom; its size is the number of agents, or with a mesh that of replicas
    mesh           replicas × stages × parts, where agents share one network, such as `Mesh(2, stages=3)`
    batch_size     samples an agent (of a mesh: a replica) and step; a schedule such as
                   `Piecewise(32, {10: 128})` changes it
    executor       level 1: what makes the executor on the agent; a framework's name such as 'numpy' means its
                   `from_model`
    communicator   the backend; 'auto' chooses by where the agents are
    threads        of the framework, an agent
    cpus_per_agent what Ray reserves for an agent; fractions are allowed
    warmup_steps   steps at the start whose times are recorded as phase 'warmup'
    evaluate       whether every epoch, and every call of train, ends with an evaluation on the test split
    timeout_seconds bound on every wait of an agent for another
    monitor_seconds  between two looks at each node's processors, memory and energy; 0: none
    mirror_seconds   between two looks of Ray's metrics, for Prometheus, at each actor; 0: they show nothing
    servers        how many parameter servers, where the distributed optimizer uses them; see `Servers`
    on_failure     when an agent dies: 'stop' the run, 'continue' without it, or 'restart' it
    orphans        the samples of an agent that is gone: 'left_out', or 'taken_over' by the others: as soon as
                   they form a group anew, and where they need none, from the next epoch on
    slow           agents that compute slowly by plan, such as `(Slowdown(agent=3, factor=4),)`
    events         what happens around the training, such as `(StopAtAccuracy(0.98), Checkpoint())`
    late           agents that join when the others train already, such as `(Late(agent=3, seconds=5),)`
    transformations what is done to each batch, such as `(Crop(32, padding=4), RandomFlip())`
    prefetch       batches that are prepared while a step computes, where they take time; 0: none
    encryption     whether what agents and servers send to other machines is encrypted, not only authenticated
    """

    model: Any
    dataset: str | Dataset
    optimizer: Optimizer
    distributed: type[DistributedOptimizer] | DistributedOptimizer = AllreduceSGD
    topology: Topology | None = None
    agents: int | None = None
    mesh: Mesh | None = None
    batch_size: BatchSize = 32
    epochs: int = 1
    seed: int = 0
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    dataset_kwargs: Mapping[str, Any] = field(default_factory=dict)
    train_sampler: Sampler = field(default_factory=ShuffleSampler)
    loss: Loss = field(default_factory=SoftmaxCrossEntropyLoss)
    executor: str | Callable[..., Executor] = from_model
    executor_kwargs: Mapping[str, Any] = field(default_factory=dict)
    communicator: str = "auto"
    threads: int = 1
    cpus_per_agent: float = 1.0
    warmup_steps: int = 10
    evaluate: bool = True
    timeout_seconds: float = 120.0
    monitor_seconds: float = 1.0
    mirror_seconds: float = 1.0
    servers: Servers | None = None
    slow: tuple[StragglerModel, ...] | StragglerModel = ()
    late: tuple[Late, ...] | Late = ()
    events: tuple[Event, ...] | Event = ()
    on_failure: str = "stop"
    orphans: str = "left_out"
    transformations: tuple[Transformation, ...] | Transformation = ()
    prefetch: int = 2
    encryption: bool = False
    name: str = "experiment"

    rule = Former("distributed_optimizer")
    settled = Former("resolved_servers")
    later = Former("late_agents")
    meets = Former("in_lockstep")

    def __post_init__(self) -> None:
        object.__setattr__(self, "distributed", _instance(self.distributed))
        self._check_agents()
        if isinstance(self.executor, str):
            object.__setattr__(self, "executor", executor_by_name(self.executor))
        if is_path(self.model):
            object.__setattr__(self, "model", as_network(self.model))
        self._check_kinds()
        for name in ("model_kwargs", "dataset_kwargs", "executor_kwargs"):
            object.__setattr__(self, name, dict(getattr(self, name)))  # the caller may change his own
        if isinstance(self.model, str):
            check_network_options(self.model, self.model_kwargs)
        if isinstance(self.dataset, str):
            check_dataset_options(self.dataset, self.dataset_kwargs)
        for name, low, high in (
            ("epochs", 1, LARGEST),
            ("threads", 1, MOST_THREADS),
            ("seed", 0, LARGEST),
            ("warmup_steps", 0, LARGEST),
            ("prefetch", 0, MOST_PREPARED),
        ):
            check_count(name, getattr(self, name), low, high)
        check_batch_size(self.batch_size)
        if len(self.name) > LONGEST_NAME:
            raise ConfigurationError(
                f"name has {len(self.name):,} characters: it must have {LONGEST_NAME} at most"
            )
        _check_options("executor_kwargs", self.executor_kwargs, self.make_executor)
        check_number("cpus_per_agent", self.cpus_per_agent, low=0.0, low_included=True, high=MOST_CPUS)
        check_number("timeout_seconds", self.timeout_seconds, low=0.0, low_included=False)
        check_monitor(self.monitor_seconds)
        check_mirror(self.mirror_seconds)
        assert self.agents is not None
        object.__setattr__(self, "slow", check_stragglers(self.slow, self.agents))
        object.__setattr__(self, "late", check_late(self.late, self.agents))
        object.__setattr__(self, "transformations", check_transformations(self.transformations))
        if isinstance(self.dataset, Dataset):
            self._check_data(self.dataset)
        elif (samples := training_samples(self.dataset, self.dataset_kwargs)) is not None:
            self._check_samples(samples)
        self._check_events()
        check_for_agents(self.communicator)
        assert isinstance(self.topology, Topology)
        check_topology(self.topology, self.distributed_optimizer.needs, type(self.distributed).__name__)
        self._check_servers()
        self._check_late()
        self._check_policies_of_mesh()
        for name, choices in (("on_failure", ON_FAILURE), ("orphans", ORPHANS)):
            check_choice(name, getattr(self, name), choices)
        if self.on_failure == "restart" and ExchangeVia.SHARED_MEMORY in self.distributed_optimizer.exchange:
            raise ConfigurationError(
                f"{self.distributed!r} keeps its parameters in the memory of its agents, which an agent that "
                "is started again cannot join: take on_failure='continue' or 'stop'"
            )

    def _check_agents(self) -> None:
        if self.mesh is not None:
            self._check_mesh(self.mesh)
            return
        if self.topology is None:
            agents = 2 if self.agents is None else self.agents
            check_agents(agents)
            object.__setattr__(self, "topology", Complete(agents))
        elif not isinstance(self.topology, Topology):
            raise _wrong_kind("topology", self.topology, "a Topology such as Ring(4)")
        elif self.agents is not None and self.agents != self.topology.agents:
            raise ConfigurationError(
                f"{self.topology} has {self.topology.agents} agents, the experiment has {self.agents}: "
                f"set agents={self.topology.agents}, or a topology of {self.agents}"
            )
        object.__setattr__(self, "agents", self.topology.agents)  # type: ignore[union-attr]

    def _check_mesh(self, mesh: object) -> None:
        if not isinstance(mesh, Mesh):
            raise _wrong_kind("mesh", mesh, "a Mesh such as Mesh(replicas=2, stages=3), or None")
        if self.agents is not None:
            mesh.check_agents(self.agents)
        if self.topology is None:
            object.__setattr__(self, "topology", Complete(mesh.replicas))
        elif not isinstance(self.topology, Topology):
            raise _wrong_kind("topology", self.topology, "a Topology such as Ring(4)")
        elif self.topology.agents != mesh.replicas:
            raise ConfigurationError(
                f"{self.topology} is of {self.topology.agents}, the mesh has {mesh.replicas} replicas, which "
                f"the topology joins: set replicas={self.topology.agents}, or a topology of {mesh.replicas}"
            )
        object.__setattr__(self, "agents", mesh.agents)

    def _check_policies_of_mesh(self) -> None:
        """Raise `ConfigurationError` for what a network held by several agents cannot do."""
        if self.mesh is None or not self.mesh.shares_networks:
            return
        several = f"{self.mesh.stages} stages × {self.mesh.parts} parts hold a network together"
        for name, wanted, why in (
            ("on_failure", "stop", "none of them can go on without another"),
            ("late", (), "all of them begin together"),
            ("slow", (), "each waits for the others: slow the replicas of a mesh without stages"),
        ):
            if getattr(self, name) != wanted:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)!r}, but {several}, and {why}: leave {name} out"
                )
        if ExchangeVia.SHARED_MEMORY in self.distributed_optimizer.exchange:
            raise ConfigurationError(
                f"{several}, which {self.distributed!r} cannot train: its agents share the memory of all "
                "parameters; take another distributed optimizer, or a mesh of one stage and part"
            )

    def _check_servers(self) -> None:
        distributed = self.distributed_optimizer
        assert self.agents is not None
        if self.servers is not None and not isinstance(self.servers, Servers):
            raise _wrong_kind("servers", self.servers, "Servers(shards=2) or the like, or None")
        if self.servers is not None and ExchangeVia.SERVERS not in distributed.exchange:
            raise ConfigurationError(
                f"servers is {self.servers!r}, but {distributed!r} uses no parameter server: leave servers "
                "out, or take an optimizer such as ASGD() (one of your own says exchange = "
                "d5.ExchangeVia.SERVERS)"
            )
        if self.resolved_servers is not None:
            self.resolved_servers.check(self.replicas)

    def _check_events(self) -> None:
        events = (self.events,) if isinstance(self.events, Event) else self.events
        if not isinstance(events, (tuple, list)) or not all(isinstance(event, Event) for event in events):
            raise _wrong_kind("events", self.events, "Events such as (StopAtAccuracy(0.98), Checkpoint())")
        object.__setattr__(self, "events", tuple(events))
        for event in events:
            event.check(self)

    def _check_late(self) -> None:
        if not self.late_agents:
            return
        if (
            not self.distributed_optimizer.one_sided
            or ExchangeVia.SHARED_MEMORY in self.distributed_optimizer.exchange
        ):
            raise ConfigurationError(
                f"late is {self.late!r}, but the agents of {self.distributed!r} wait for each other or share "
                "memory: take an optimizer such as ASGD() or ADPSGD()"
            )
        assert self.agents is not None
        groups = self.resolved_servers.servers.groups if self.resolved_servers is not None else 1
        for group in range(groups):
            first = self.agents * group // groups
            if first in self.late_agents:
                raise ConfigurationError(
                    f"{self.late_agents[first]!r} is the "
                    f"first agent{f' of group {group}' if groups > 1 else ''}, "
                    "which brings the first parameters: let another one be late"
                )

    @property
    def late_agents(self) -> dict[int, Late]:
        """The late agents, by rank."""
        return {late.agent: late for late in check_late(self.late, self.agents or 1)}

    @property
    def replicas(self) -> int:
        """The number of networks that are trained: of a mesh its replicas, else one an agent."""
        assert self.topology is not None
        return self.topology.agents

    @property
    def distributed_optimizer(self) -> DistributedOptimizer:
        """The distributed optimizer, as an instance."""
        assert isinstance(self.distributed, DistributedOptimizer)
        return self.distributed

    @property
    def make_executor(self) -> Callable[..., Executor]:
        """The function that makes the executor on the agent."""
        assert not isinstance(self.executor, str)
        return self.executor

    @cached_property
    def resolved_servers(self) -> ResolvedServers | None:
        """The resolved parameter servers; None without any."""
        if ExchangeVia.SERVERS not in self.distributed_optimizer.exchange:
            return None
        return ResolvedServers.of(
            self.servers or Servers(), self.distributed_optimizer, self.optimizer
        ).among(self.replicas)

    @property
    def in_lockstep(self) -> bool:
        """True if all agents stand at the same step when one has done it, and no message is under way."""
        rule, resolved = self.distributed_optimizer, self.resolved_servers
        if rule.asynchronous or rule.exchange & (ExchangeVia.PEERS | ExchangeVia.SHARED_MEMORY):
            return False
        return resolved is None or (resolved.consistency == Synchronous() and resolved.servers.groups == 1)

    def _check_kinds(self) -> None:
        expected: tuple[tuple[str, Any, str], ...] = (
            ("dataset", str | Dataset, "a name such as 'digits', or a Dataset"),
            ("optimizer", Optimizer, "an Optimizer such as Momentum(0.1, 0.9)"),
            ("train_sampler", Sampler, "a Sampler such as ShuffleSampler()"),
            ("loss", Loss, "a Loss such as SoftmaxCrossEntropyLoss()"),
            ("communicator", str, "the name of a communicator such as 'gloo'"),
            ("model_kwargs", Mapping, "a dictionary"),
            ("dataset_kwargs", Mapping, "a dictionary"),
            ("executor_kwargs", Mapping, "a dictionary"),
            ("evaluate", bool, "True or False"),
            ("encryption", bool, "True or False"),
            ("name", str, "a text"),
        )
        for name, kind, wanted in expected:
            if not isinstance(getattr(self, name), kind):
                raise _wrong_kind(name, getattr(self, name), wanted)
        if not callable(self.executor):
            raise _wrong_kind(
                "executor",
                self.executor,
                "the name of a framework, or a function such as d5ray.frameworks.torch.from_model",
            )
        if not isinstance(self.model, (str, Network)) and not callable(self.model):
            raise _wrong_kind(
                "model", self.model, "a name such as 'lenet', a class or function, or a network"
            )

    @cached_property
    def hash(self) -> str:
        """SHA-256 over everything but the name; equal experiments have equal hashes in every process."""
        return digest({f.name: getattr(self, f.name) for f in fields(self) if f.name != "name"})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Experiment):
            return NotImplemented
        return self.name == other.name and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def describe(self) -> dict[str, Any]:
        """The experiment as JSON data, for the tables and for people."""
        return {f.name: canonical(getattr(self, f.name)) for f in fields(self)}

    def pace(self, rank: int) -> StragglerDelay:
        """The slowdown of this agent's computation."""
        return StragglerDelay(check_stragglers(self.slow, self.agents or 1), rank, self.seed)

    def load_dataset(self) -> Dataset:
        """The data set, read from its files if it is given by name; raises `DataError`.

        Raises `ConfigurationError` where sampler or transformations do not fit it.
        """
        if isinstance(self.dataset, Dataset):
            return self.dataset
        loaded = load_dataset(self.dataset, **self.dataset_kwargs)
        self._check_data(loaded)
        return loaded

    def _check_data(self, dataset: Dataset) -> None:
        shape_after(self.pipeline, dataset.sample_shape)
        self._check_samples(len(dataset.train))

    def _check_samples(self, samples: int) -> None:
        """Sampler and batch size, against the samples that there are to train on."""
        self.train_sampler.check(samples)
        check_fits(self.batch_size, self.train_sampler.length(samples))

    @property
    def pipeline(self) -> tuple[Transformation, ...]:
        """The transformations, in their order."""
        return check_transformations(self.transformations)

    def with_values(self, **changes: Any) -> "Experiment":
        """A copy with other values; a new topology brings its agents, new agents keep a complete topology."""
        sizes = changes.keys() & {"agents", "mesh"}
        if sizes and "topology" not in changes and isinstance(self.topology, Complete):
            changes["topology"] = None
        if "mesh" in changes:
            changes.setdefault("agents", None)
        if changes.get("topology") is not None:
            changes.setdefault("agents", None)
        return replace(self, **changes)


def check_monitor(seconds: object) -> None:
    """Raise `ConfigurationError` unless this is 0 or a time that leaves a node something else to do."""
    check_number("monitor_seconds", seconds, low=0.0, low_included=True)
    if 0 < seconds < SHORTEST_WATCH:  # type: ignore[operator]
        raise ConfigurationError(
            f"monitor_seconds is {seconds!r}: it must be 0, or at least {SHORTEST_WATCH:g}: looking at a "
            "node takes about half a millisecond"
        )


def check_mirror(seconds: object) -> None:
    """Raise `ConfigurationError` unless this is 0 or a time within which Ray forgets nothing."""
    check_number("mirror_seconds", seconds, low=0.0, low_included=True)
    if seconds and not SHORTEST_MIRROR <= seconds <= LONGEST_MIRROR:  # type: ignore[operator]
        raise ConfigurationError(
            f"mirror_seconds is {seconds!r}: it must be 0, or between {SHORTEST_MIRROR:g} and "
            f"{LONGEST_MIRROR:g}: Ray forgets a value that was not set for 20 s"
        )


def _instance(distributed: object) -> DistributedOptimizer:
    if isinstance(distributed, DistributedOptimizer):
        return distributed
    if not (inspect.isclass(distributed) and issubclass(distributed, DistributedOptimizer)):
        raise _wrong_kind(
            "distributed", distributed, "a subclass of DistributedOptimizer, or an instance of one"
        )
    try:
        return distributed()
    except TypeError as error:
        raise ConfigurationError(
            f"distributed={distributed.__name__} cannot be made: {error}; write a `step(self, batch)` and "
            "give an instance where it takes arguments"
        ) from error


def _check_options(name: str, options: Mapping[str, Any], made_by: Callable[..., Any]) -> None:
    """Raise `ConfigurationError` for options that a function does not have, where it says what it has."""
    try:
        parameters = inspect.signature(made_by).parameters
    except (TypeError, ValueError):  # written in C
        return
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    for option in options:
        if option not in parameters:
            raise ConfigurationError(
                f"{name} has {option!r}, an unknown option: {nearest(option, parameters)}"
            )


def _wrong_kind(name: str, found: object, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{name} is {found!r} ({type(found).__name__}): it must be {expected}")
