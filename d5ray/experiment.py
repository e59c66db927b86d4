"""Everything one run is, as frozen data, before it is processes."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any

from d5ray.checks import (
    LARGEST,
    check_bodies,
    check_count,
    check_keywords,
    check_kind,
    check_names,
    check_number,
    check_options,
    wrong_kind,
)
from d5ray.distributed.communicators.backends import check_backend
from d5ray.distributed.group.late_agents import Late, check_joining, check_late
from d5ray.distributed.group.policies import Elasticity, FaultPolicy
from d5ray.distributed.model_parallelism import ModelParallelism, sized
from d5ray.distributed.optimizers.allreduce import AllreduceSGD
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer, instance_of
from d5ray.distributed.parameter_server.consistency import Synchronous
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers, resolved
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.topologies.requirements import check_topology
from d5ray.distributed.topologies.topology import Complete, Topology
from d5ray.errors import ConfigurationError
from d5ray.failures.program_state import as_before
from d5ray.frameworks import executor_by_name, framework_name
from d5ray.frameworks.executor_options import ExecutorOptions, device_of
from d5ray.frameworks.jax.by_value import PackedModel
from d5ray.frameworks.torch import from_model, tie_parameters, ties_of_parameters
from d5ray.frameworks.torch.given_optimizers import as_optimizer
from d5ray.identity.canonical import canonical, digest
from d5ray.identity.fields import LATER, PART, fields_of, gathered, values_of_fields, with_former_names
from d5ray.names.renamed import RenamedAttribute
from d5ray.networks.device import MOST_DEVICES, Device, as_device
from d5ray.networks.executors.executor import Executor
from d5ray.networks.executors.trees import form_of, is_inner
from d5ray.networks.loading import as_network, check_executor, is_path
from d5ray.networks.network import Network
from d5ray.networks.zoo.catalogue import check_network_options
from d5ray.operators.loss import Loss
from d5ray.ops.losses.function_loss import FunctionLoss, as_loss, check_framework
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss
from d5ray.training.batches.epochs import BatchSize, check_batch_size, check_fits, times
from d5ray.training.datasets.catalogue import check_dataset_options, load_dataset, training_samples
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.datasets.samples import IGNORED
from d5ray.training.events.event import Event, check_hooks
from d5ray.training.events.user_records import check_metric
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.recording import Recording
from d5ray.training.samplers.sampler import OrderedSampler, Sampler, ShuffleSampler
from d5ray.training.stragglers import StragglerDelay, StragglerModel, check_stragglers
from d5ray.training.transformations.composition import check_transformations, shape_after
from d5ray.training.transformations.transformation import Transformation

LONGEST_NAME = 100  # characters, which begin the name of a run's folder
MOST_CPUS = 4097  # excluded: no machine has as many
MOST_GPUS = MOST_DEVICES + 1  # excluded
COUNTS = {  # from, to
    "epochs": (1, LARGEST),
    "seed": (0, LARGEST),
    "threads": (1, 4096),
    "prefetch": (0, 10_000),
    "accumulate": (1, LARGEST),
}
KINDS: dict[str, tuple[Any, str]] = {
    "dataset": (str | Dataset, "a name such as 'digits', or a Dataset"),
    "optimizer": (Optimizer, "an Optimizer such as Momentum(0.1, 0.9)"),
    "train_sampler": (Sampler, "a Sampler such as ShuffleSampler()"),
    "loss": (Loss, "a Loss such as SoftmaxCrossEntropyLoss(), or a function of (output, labels)"),
    "communicator": (str, "the name of a communicator such as 'socket'"),
    "faults": (FaultPolicy, "a FaultPolicy(on_failure='continue'); a plan is for simulate(…, faults=…)"),
    "elastic": (Elasticity, "an Elasticity such as Elasticity(late=Late(agent=3, seconds=5))"),
    "model_kwargs": (Mapping, "a dictionary"),
    "dataset_kwargs": (Mapping, "a dictionary"),
    "executor_kwargs": (Mapping, "a dictionary"),
    "evaluate": (bool, "True or False"),
    "evaluate_test": (bool, "True or False"),
    "compile": (bool, "True or False"),
    "recompute": (bool, "True or False"),
    "encryption": (bool, "True or False"),
    "recording": (Recording, "a Recording such as Recording(save_model='mean')"),
    "name": (str, "a text"),
}
HINTS = {  # instead of what other libraries take
    name: advice
    for names, advice in (
        ("lr learning_rate", "it is the optimizer's, such as SGD(0.1)"),
        ("betas eps momentum nesterov weight_decay", "it is the optimizer's, such as Momentum(0.1, 0.9)"),
        (
            "scheduler lr_scheduler schedule",
            "a schedule is the optimizer's: Scheduled(SGD(0.1), learning_rate=Cosine(...))",
        ),
        (
            "clip clip_grad gradient_clipping gradient_clip_val max_grad_norm",
            "it is a rule around the optimizer's: ClipNorm(SGD(0.1), 1.0)",
        ),
        ("device devices gpus accelerator", 'it is the executor\'s: executor_kwargs={"device": "cuda"}'),
        (
            "num_workers workers",
            "they are agents=4; threads that prepare batches come with cpus_per_agent and prefetch",
        ),
        ("world_size nproc_per_node num_nodes nodes", "it is agents=4"),
        ("backend", "it is communicator='socket', or another one's name"),
        ("strategy method compression", "it is distributed=…, such as d5ray.optimizers.DPSGD()"),
        ("max_epochs num_epochs num_train_epochs", "they are epochs=10"),
        ("steps max_steps num_steps", "they are said to the run: group.train(steps=100)"),
        (
            "train_dataset train_loader dataloader loader train_data data",
            "it is dataset=…, such as d5ray.from_torch(train, test=test)",
        ),
        ("shuffle", "it is train_sampler=ShuffleSampler(), the default, or OrderedSampler()"),
        ("criterion loss_fn", "it is loss=…"),
        ("callback callbacks hooks", "they are events=(…)"),
        ("accumulate_grad_batches gradient_accumulation_steps", "it is accumulate=4"),
        ("mixed_precision amp bf16 fp16 dtype", "it is precision='bfloat16'"),
        (
            "faults elastic recording",
            "its fields are keys of their own, such as on_failure and min_agents",
        ),
    )
    for name in names.split()
}


@with_former_names
@dataclass(frozen=True)
class Experiment:
    """A training as data: model, data set, update rule, agents. Wrong values raise `ConfigurationError`.

    Model, data, optimizers, agents and duration; the first three are required:

    model          a name ('lenet', 'mlp'), a class or function that makes a network, or a network: a module
                   of the framework, a `Network`, or the path of an .onnx file, which is read at once; with
                   executor='jax' a model of Flax or Equinox, or a function that returns a pair of
                   functions (init, apply)
    dataset        a name ('digits', 'mnist', ...) or a `Dataset`
    optimizer      level 2: the update rule, such as `Momentum(0.1, 0.9)`; or an optimizer of PyTorch or
                   Keras, such as `functools.partial(torch.optim.AdamW, lr=0.001)`
    distributed    level 3: a `DistributedOptimizer` class or instance
    topology       which agents communicate; its size is the number of agents, or of replicas with a mesh
    agents         their number; by default 2, or that of the topology or the mesh
    mesh           replicas × stages × parts, where agents share one network, such as `Mesh(2, stages=3)`
    batch_size     samples per agent (with a mesh: per replica) and step, with `accumulate` per piece; a
                   schedule such as `Piecewise(32, {10: 128})` changes it
    epochs         passes over the training samples
    seed           of all random numbers: parameters, order of samples, transformations

    The network:

    model_kwargs   arguments of the model
    loss           what is minimized, such as `SoftmaxCrossEntropyLoss()`; a loss of PyTorch, or any function
                   of (output, labels) that returns a tensor of one number, or (sum, weight); "model": the
                   loss that the model computes itself
    executor       level 1: the function that makes the executor on the agent; a framework's name such as
                   'numpy' means its `from_model`
    executor_kwargs arguments of that function
    precision      'float32' (the model's own), mixed precision 'bfloat16' or 'float16' with parameters,
                   gradients and exchange in float32, 'tf32' on a GPU, or 'float64' throughout
    accumulate     gradient accumulation: this many pieces of `batch_size` in a step, with one exchange
    compile        whether the framework compiles the network
    recompute      activation checkpointing: whether the backward pass recomputes activations

    The data:

    dataset_kwargs arguments of the data set
    train_sampler  the order of the samples, such as `ShuffleSampler()`
    transformations of each batch, such as `(Crop(32, padding=4), RandomFlip())`
    prefetch       batches that are prepared while a step computes, if that takes time; 0: none

    The agents:

    servers        the parameter servers, such as `Servers(shards=2)`, if the distributed optimizer uses them
    communicator   the backend; 'auto' chooses by the agents' nodes and devices
    encryption     whether messages to other machines are sent under TLS; False: plainly
    threads        of the framework, per agent
    cpus_per_agent what Ray reserves for an agent; fractions are allowed
    gpus_per_agent the same for GPUs; None: 1, the agent's own, if it computes on `GPUDevice()`, else 0.
                   With a fraction several agents share a GPU, for which NCCL must be 2.30 or newer
    timeout_seconds bound on every wait of an agent for another

    Faults, elasticity, stragglers:

    faults         what the run does about agents that die or hang: `FaultPolicy(on_failure="replace")`
    elastic        agents that join later, batch and learning rate when their number changes: `Elasticity(…)`
    slow           stragglers by plan, such as `(Slowdown(agent=3, factor=4),)`

    Observation:

    events         callbacks, such as `(StopAtAccuracy(0.98), Checkpoint())`
    evaluate       whether every epoch, and every call of train, ends with an evaluation: on the test split,
                   or on the validation split if there is one, and at the end of the call on both
    evaluate_test  whether epochs are also evaluated on the test split if there is a validation split
    recording      of nodes, for Prometheus, and of the trained model: `Recording(save_model="mean")`
    name           of the run, for people; it is not part of the hash
    """

    model: Any
    dataset: str | Dataset
    optimizer: Optimizer
    distributed: type[DistributedOptimizer] | DistributedOptimizer = AllreduceSGD
    topology: Topology | None = None
    agents: int | None = None
    mesh: ModelParallelism | None = None
    batch_size: BatchSize = 32
    epochs: int = 1
    seed: int = 0
    _: KW_ONLY
    # the network
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    loss: Any = field(default_factory=SoftmaxCrossEntropyLoss)
    executor: str | Callable[..., Executor] = from_model
    executor_kwargs: Mapping[str, Any] = field(default_factory=dict)
    precision: str = field(default="float32", metadata=LATER)
    accumulate: int = field(default=1, metadata=LATER)
    compile: bool = field(default=False, metadata=LATER)
    recompute: bool = field(default=False, metadata=LATER)
    # the data
    dataset_kwargs: Mapping[str, Any] = field(default_factory=dict)
    train_sampler: Sampler = field(default_factory=ShuffleSampler)
    transformations: tuple[Transformation, ...] | Transformation = ()
    prefetch: int = 2
    # the agents
    servers: Servers | None = None
    communicator: str = "auto"
    encryption: bool = True
    threads: int = 1
    cpus_per_agent: float = 1.0
    gpus_per_agent: float | None = field(default=None, metadata=LATER)
    timeout_seconds: float = 120.0
    # agents that are gone, stuck, late or slow
    faults: FaultPolicy = field(default_factory=FaultPolicy, metadata=PART)
    elastic: Elasticity = field(default_factory=Elasticity, metadata=PART)
    slow: tuple[StragglerModel, ...] | StragglerModel = ()
    # observation
    events: tuple[Event, ...] | Event = ()
    evaluate: bool = True
    evaluate_test: bool = field(default=False, metadata=LATER)
    recording: Recording = field(default_factory=Recording, metadata=PART)
    name: str = "experiment"

    rule = RenamedAttribute("distributed_optimizer")
    settled = RenamedAttribute("resolved_servers")
    later = RenamedAttribute("late_agents")
    meets = RenamedAttribute("in_lockstep")
    pace = RenamedAttribute("straggler_delay")

    def __new__(cls, *_: object, **given: object) -> "Experiment":
        """Names what users of other libraries write first."""
        check_keywords(cls, given, HINTS, also=(each.name for each in fields_of(cls)))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._put(loss=as_loss(self.loss), optimizer=as_optimizer(self.optimizer, self.model))
        for name, (kind, wanted) in KINDS.items():
            check_kind(name, getattr(self, name), kind, wanted)
        for name, (low, high) in COUNTS.items():
            check_count(name, getattr(self, name), low, high)
        self._check_network()
        self._check_agents()
        self._check_data()
        self._check_faults()
        self._check_observation()

    def __getstate__(self) -> dict[str, Any]:
        """The values for a pickle; cloudpickle does not know every class of a model of JAX's.

        The description goes along: where the pickle is read, the sources of the user's code may be missing.
        """
        values = vars(self) | {"_described": self._described}
        if ties := ties_of_parameters(self.model, self.loss):
            values["ties"] = ties
        if framework_name(self.make_executor) == "jax":
            values["model"] = PackedModel.of(self.model)
        return values

    def __setstate__(self, values: dict[str, Any]) -> None:
        ties = values.pop("ties", None)
        self.__dict__.update(gathered(type(self), values))
        if ties is not None:
            tie_parameters(*ties)
        if isinstance(self.model, PackedModel):
            self._put(model=self.model.unpacked())

    def _put(self, **values: Any) -> None:
        """Replace values as given by what they mean."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check_network(self) -> None:
        if isinstance(self.executor, str):
            self._put(executor=executor_by_name(self.executor))
        if is_path(self.model):
            self._put(model=as_network(self.model))
        if not callable(self.executor):
            wanted = "the name of a framework, or a function such as d5ray.frameworks.torch.from_model"
            raise wrong_kind("executor", self.executor, wanted)
        if not isinstance(self.model, (str, Network)) and not callable(self.model):
            wanted = "a name such as 'lenet', a class or function, or a network"
            if isinstance(self.model, tuple):
                wanted += "; a pair of functions is given by one, such as lambda: (init, apply)"
            raise wrong_kind("model", self.model, wanted)
        framework = framework_name(self.make_executor)
        check_executor(self.model, framework)
        # the caller may change his own dictionaries
        self._put(model_kwargs=dict(self.model_kwargs), executor_kwargs=dict(self.executor_kwargs))
        if isinstance(self.model, str):
            check_network_options(self.model, self.model_kwargs)
        check_options("executor_kwargs", self.executor_kwargs, self.make_executor)
        self.executor_options.check(self.make_executor, self.executor_arguments)
        check_framework(self.loss, framework)
        if self.accumulate > 1 and isinstance(self.loss, FunctionLoss) and self.loss.is_sum:
            raise ConfigurationError(
                f"accumulate is {self.accumulate} and {self.loss!r} is a sum over the batch, of which "
                "pieces have no mean: take the mean over the batch, reduction='mean'"
            )

    def _check_agents(self) -> None:
        self._put(distributed=instance_of(self.distributed))
        topology, agents = sized(self.mesh, self.topology, self.agents)
        self._put(topology=topology, agents=agents)
        check_topology(topology, self.distributed_optimizer.needs, type(self.distributed).__name__)
        check_backend(self.communicator)
        check_number("cpus_per_agent", self.cpus_per_agent, low=0.0, low_included=True, high=MOST_CPUS)
        if self.gpus_per_agent is not None:
            check_number("gpus_per_agent", self.gpus_per_agent, low=0.0, low_included=True, high=MOST_GPUS)
            if self.gpus_per_agent > 1 and self.gpus_per_agent % 1:
                raise ConfigurationError(
                    f"gpus_per_agent is {self.gpus_per_agent:g}: it must be a whole number, or a fraction "
                    "below 1, by which several agents share a GPU"
                )
        check_number("timeout_seconds", self.timeout_seconds, low=0.0, low_included=False)

    def _check_data(self) -> None:
        self._put(
            dataset_kwargs=dict(self.dataset_kwargs),
            transformations=check_transformations(self.transformations),
        )
        check_batch_size(self.batch_size)
        if isinstance(self.dataset, Dataset):
            self._check_samples_of(self.dataset)
            return
        check_dataset_options(self.dataset, self.dataset_kwargs)
        if (samples := training_samples(self.dataset, self.dataset_kwargs)) is not None:
            self._check_count_of(samples)

    def _check_faults(self) -> None:
        distributed, agents = self.distributed_optimizer, self.agents or 1
        check_count("min_agents", self.faults.min_agents, 1, agents)
        check_late(self.elastic.late, agents)
        self._put(slow=check_stragglers(self.slow, agents))
        groups = 1 if self.resolved_servers is None else self.resolved_servers.servers.groups
        check_joining(self.late_agents, distributed, agents, groups)
        if self.mesh is not None:
            self.mesh.check(self)
        shares_memory = ExchangeVia.SHARED_MEMORY in distributed.exchange
        if shares_memory and self.faults.on_failure in ("restart", "replace"):
            raise ConfigurationError(
                f"{distributed!r} keeps its parameters in the memory of its agents, which an agent that "
                "is started again cannot join: take on_failure='continue' or 'stop'"
            )

    def _check_observation(self) -> None:
        if len(self.name) > LONGEST_NAME:
            raise ConfigurationError(
                f"name has {len(self.name):,} characters: it must have {LONGEST_NAME} at most"
            )
        if self.recording.save_model == "servers" and self.resolved_servers is None:
            raise ConfigurationError(
                f"save_model is 'servers', and {self.distributed!r} has none: take 'agent' or 'mean'"
            )
        events = (self.events,) if isinstance(self.events, Event) else self.events
        if not isinstance(events, (tuple, list)) or not all(isinstance(event, Event) for event in events):
            raise wrong_kind("events", self.events, "Events such as (StopAtAccuracy(0.98), Checkpoint())")
        self._put(events=tuple(events))
        for part, base in (
            (self.distributed_optimizer, DistributedOptimizer), (self.optimizer, Optimizer),
            (self.train_sampler, Sampler), (self.loss, Loss),
            *((each, Transformation) for each in self.pipeline),
        ):  # fmt: skip
            check_bodies(part, base)
        for event in events:
            check_hooks(event)
            for name in check_names(f"records of {event!r}", event.records, "names of metrics"):
                check_metric(name, f"one of records of {event!r}")
            event.check(self)

    @property
    def late_agents(self) -> dict[int, Late]:
        """The late agents, by rank."""
        return {late.agent: late for late in check_late(self.elastic.late)}

    @property
    def replicas(self) -> int:
        """The number of networks that are trained: the replicas of a mesh, otherwise one per agent."""
        assert self.topology is not None
        return self.topology.agents

    @property
    def agents_per_replica(self) -> int:
        """The number of agents that hold one network together: 1 without a mesh."""
        return (self.agents or 1) // self.replicas

    @property
    def leaves_samples_out(self) -> bool:
        """True if nobody takes the samples of an agent that has died; each keeps its own piece of a step."""
        policy = self.faults.on_failure, self.faults.orphans, self.elastic.keep_batch
        return policy == ("continue", "left_out", "agent")

    @property
    def distributed_optimizer(self) -> DistributedOptimizer:
        """The distributed optimizer, as an instance."""
        assert isinstance(self.distributed, DistributedOptimizer)
        return self.distributed

    @property
    def executor_options(self) -> ExecutorOptions:
        """The options of the agents' executors beside the model: precision, compilation, recomputation."""
        return ExecutorOptions(self.precision, self.compile, self.recompute)

    @property
    def executor_arguments(self) -> dict[str, Any]:
        """The arguments of the agents' executors, with the device that a text means."""
        given = dict(self.executor_kwargs)
        if "device" in given and framework_name(self.make_executor):
            given["device"] = as_device(given["device"])
        return given

    @property
    def device(self) -> Device:
        """The device of the agents' executors."""
        return device_of(self.make_executor, self.executor_arguments)

    @property
    def step_batch_size(self) -> BatchSize:
        """The samples of an agent and step: `batch_size` times `accumulate`."""
        return times(self.batch_size, self.accumulate)

    @property
    def make_executor(self) -> Callable[..., Executor]:
        """The function that makes the executor on the agent."""
        assert not isinstance(self.executor, str)
        return self.executor

    @property
    def pipeline(self) -> tuple[Transformation, ...]:
        """The transformations, in their order."""
        return check_transformations(self.transformations)

    @cached_property
    def resolved_servers(self) -> ResolvedServers | None:
        """The resolved parameter servers; None without any."""
        return resolved(self.servers, self.distributed_optimizer, self.optimizer, self.replicas)

    @property
    def in_lockstep(self) -> bool:
        """True if all agents stand at the same step when one has done it, and no message is under way."""
        rule, servers = self.distributed_optimizer, self.resolved_servers
        if rule.asynchronous or rule.exchange & (ExchangeVia.PEERS | ExchangeVia.SHARED_MEMORY):
            return False
        return servers is None or (servers.consistency == Synchronous() and servers.servers.groups == 1)

    def straggler_delay(self, rank: int) -> StragglerDelay:
        """The slowdown of this agent's computation."""
        return StragglerDelay(check_stragglers(self.slow, self.agents or 1), rank, self.seed)

    @property
    def validates(self) -> bool:
        """True if the data set has samples to validate on."""
        if isinstance(self.dataset, Dataset):
            return self.dataset.validation is not None
        return bool(self.dataset_kwargs.get("validation"))

    @as_before()
    def load_dataset(self) -> Dataset:
        """The data set, read from its files if it is given by name; raises `DataError`.

        Raises `ConfigurationError` where sampler or transformations do not fit it.
        """
        if isinstance(self.dataset, Dataset):
            return self.dataset
        loaded = load_dataset(self.dataset, **self.dataset_kwargs)
        self._check_samples_of(loaded)
        return loaded

    def _check_samples_of(self, dataset: Dataset) -> None:
        if dataset.train.in_order and not isinstance(self.train_sampler, OrderedSampler):
            raise ConfigurationError(
                f"the data set {dataset.name!r} gives its samples in an order of its own, which "
                f"{self.train_sampler!r} cannot change: set train_sampler=d5.samplers.OrderedSampler()"
            )
        shape = shape_after(self.pipeline, dataset.sample_shape)
        network = isinstance(self.model, (str, Network))
        if is_inner(shape) and (network or not getattr(self.make_executor, "takes_trees", False)):
            raise ConfigurationError(
                f"the samples of {dataset.name!r} have {form_of(shape)}, and the "
                f"{'network' if network else 'executor'} takes one array: name one of them as inputs where "
                "the data set is made, or give an nn.Module that takes them, under PyTorch, or a Keras model"
            )
        knows = isinstance(self.loss, FunctionLoss) and not self.loss.classifies  # what it does with labels
        for part, split in dataset.splits.items():
            if isinstance(split, Split) and split.ignores and self.loss.ignored != IGNORED and not knows:
                named = "MaskedCrossEntropyLoss()"
                if self.loss.sees_output:
                    named = f"FunctionLoss(…, ignored={IGNORED})"
                raise ConfigurationError(
                    f"the data set {dataset.name!r} has labels of {IGNORED} in {part}, which {self.loss!r} "
                    f"does not ignore: take loss=d5.operators.{named}, or leave them out"
                )
        self._check_count_of(len(dataset.train))

    def _check_count_of(self, samples: int) -> None:
        """Sampler and batch size, against the samples that there are to train on."""
        self.train_sampler.check(samples)
        check_fits(self.batch_size, self.train_sampler.length(samples), self.accumulate)

    @cached_property
    def hash(self) -> str:
        """SHA-256 over everything but the name; equal experiments have equal hashes in every process."""
        return digest({name: value for name, value in self._described.items() if name != "name"})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Experiment):
            return NotImplemented
        return self.name == other.name and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def describe(self) -> dict[str, Any]:
        """The experiment as JSON data, for the tables and for people."""
        return dict(self._described)

    @cached_property
    def _described(self) -> dict[str, Any]:
        values = values_of_fields(self)
        described = canonical(values)
        if not described.keys() >= values.keys():  # larger than what is said in full
            described = {name: canonical(value) for name, value in values.items()}
        return {name: described[name] for name in values}

    @classmethod
    def from_values(cls, **values: Any) -> "Experiment":
        """An experiment of values named as in `describe()`: those of `faults` and the like by their own."""
        return cls(**gathered(cls, values))

    def with_values(self, **changes: Any) -> "Experiment":
        """A copy with other values, named as for `from_values`.

        A new topology brings its agents, new agents keep a complete topology.
        """
        sizes = changes.keys() & {"agents", "mesh"}
        if sizes and "topology" not in changes and isinstance(self.topology, Complete):
            changes["topology"] = None
        if "mesh" in changes:
            changes.setdefault("agents", None)
        if changes.get("topology") is not None:
            changes.setdefault("agents", None)
        return replace(self, **gathered(type(self), changes, vars(self)))
