"""Launch: an experiment as data becomes Ray actors, in the one place that says `ray.remote`"""

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import ray
import threadpoolctl
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from d5ray.actors.calls import CALL_SECONDS, get
from d5ray.actors.cluster.placement import reserve, strategy
from d5ray.actors.cluster.shape import shape
from d5ray.actors.group.coordinator import Coordinator, Place
from d5ray.actors.group.group import TrainingGroup
from d5ray.actors.group.recovery import Recovery
from d5ray.actors.group.run_row import RunOrigin, new_run_id
from d5ray.actors.group.training import found_for
from d5ray.actors.metrics.aggregator import MetricsAggregator
from d5ray.actors.metrics.exporter import MetricsExporter
from d5ray.actors.metrics.node_monitors import SHOWN, Monitors
from d5ray.actors.metrics.running import ACTOR_NAME, CONTROL, QUESTIONS
from d5ray.actors.metrics.sink import AggregatorSink
from d5ray.actors.servers.mesh_servers import MeshServers
from d5ray.actors.servers.parameter_server import ParameterServer
from d5ray.actors.servers.server_actors import ServerActors
from d5ray.actors.session import session
from d5ray.actors.shipping import ship
from d5ray.agent.mesh import shares_of
from d5ray.agent.training_agent import TrainingAgent
from d5ray.archive.experiments import Archived, ArchiveFiles, kept
from d5ray.checks import check_address, check_kind, check_path
from d5ray.distributed import network_cost
from d5ray.distributed.checkpoints.checkpoint import Checkpoints
from d5ray.distributed.mesh.assignments import Shares
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.world import Directory
from d5ray.experiment import Experiment
from d5ray.metrics.exports.exported_metrics import AGENT, AGGREGATOR, COORDINATOR, SERVER
from d5ray.metrics.probes.environment import capture
from d5ray.metrics.probes.node_monitor import NodeMonitor
from d5ray.metrics.probes.numeric_libraries import computing
from d5ray.metrics.queries.binding import free_at
from d5ray.metrics.record import store
from d5ray.training.batches.epochs import Epochs
from d5ray.training.datasets import Dataset

Opened = Directory | Mapping[tuple[int, int], Directory] | None  # in a mesh by stage and part

MISSING_SECONDS = 0.05  # in which a data set that is not there is noticed
SETUP_SECONDS = 300.0  # for importing a framework and building a model, also from a slow file system
END_SECONDS = 10.0  # for processes on this node to be gone: of killed agents, and git


@dataclass
class Timings:
    """Seconds from one point of the start to the next, in order."""

    seconds: dict[str, float] = field(default_factory=dict)
    _mark: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        """The time since the last lap belongs to `name`."""
        now = time.perf_counter()
        self.seconds[name] = now - self._mark
        self._mark = now


def launch(
    experiment: Experiment,
    *,
    address: str | None = None,
    origin: RunOrigin | None = None,
    quiet: bool = False,
    root: Path | None = None,
    resume: str | Path | None = None,
    flight: str | None = None,
) -> TrainingGroup:
    """Start the experiment's agents as Ray actors, ready to train. Use it as a context manager.

    address: a Ray cluster, 'HOST:PORT' or 'auto'; otherwise RAY_ADDRESS, otherwise an embedded Ray.
    root: the folder in which the run's own is made, by default `runs_root()`.
    resume: a checkpoint to go on from; of a folder of several, or of a run by its name, the last one.
    flight: PORT or HOST:PORT at which the run answers queries by Arrow Flight, see `TrainingGroup.flight`.
    Raises `PlacementError` where the cluster cannot place the agents or does not answer, `DataError` and
    `ConfigurationError` for what does not fit, `StorageError` where the run cannot be written. After an
    error nothing is left running and no folder of the run exists.
    """
    check_kind("experiment", experiment, Experiment, "an Experiment")
    check_kind("origin", origin, RunOrigin | None, "None, or a RunOrigin")
    check_kind("quiet", quiet, bool, "True or False")
    check_kind("flight", flight, str | None, "PORT or HOST:PORT, as a text")
    check_address(address)
    root = store.runs_root() if root is None else check_path("root", root)
    origin = origin or RunOrigin(recipe=experiment.name)
    pickled = ship(experiment)
    checkpoint = None if resume is None else found_for(experiment, resume, root)
    if flight is not None:
        free_at(flight)
    store.check_writable(root)
    run_id = new_run_id(origin.recipe or experiment.name)
    timings = Timings()
    loader = ThreadPoolExecutor(max_workers=1)
    dataset = loader.submit(load_meanwhile, experiment)
    environment = loader.submit(capture)
    try:
        loader.submit(pa.array, [""])  # imports pandas, which takes a moment
        fingerprint = loader.submit(lambda: dataset.result().fingerprint)
        if wait([dataset], timeout=MISSING_SECONDS).done:
            dataset.result()  # missing files are noticed before Ray starts
        shares = None if experiment.mesh is None else shares_of(experiment, dataset.result())
        agents = experiment.agents or 1
        ray_session = session.connect(
            address,
            cpus=int(-(-agents * experiment.cpus_per_agent // 1)),
            metadata={"recipe": origin.recipe, "recipe_hash": origin.recipe_hash, "run": run_id},
            quiet=quiet,
        )
        timings.lap("ray.init")
        keeping = kept(
            Archived(experiment), lambda: pickled, needed=experiment.distributed_optimizer.asynchronous
        )
        launcher = _Launcher(experiment, keeping, run_id, root, timings, origin, shares)
        try:
            group = launcher.start(dataset, environment, fingerprint, ray_session, checkpoint)
            if flight is not None:
                group.serve(flight)
            return group
        except BaseException:
            launcher.undo()
            raise
    finally:
        loader.shutdown(wait=False, cancel_futures=True)
        if not environment.cancel():  # it runs, and asks git, which must not outlive a start that failed
            wait([environment], timeout=END_SECONDS)


def load_meanwhile(experiment: Experiment) -> Dataset:
    """The experiment's data set, by a thread beside which Ray starts.

    Ray forks this process, and a fork ends OpenBLAS's threads: a product that they compute just then would
    wait for them for ever. So products are computed by this thread alone.
    """
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        return experiment.load_dataset()


class _Launcher:
    """The steps of a start, and how to undo those that were done."""

    def __init__(
        self,
        experiment: Experiment,
        kept: ArchiveFiles,
        run_id: str,
        root: Path,
        timings: Timings,
        origin: RunOrigin,
        shares: Shares | None,
    ) -> None:
        self.experiment = experiment
        self.kept = kept
        self.run_id = run_id
        self.root = root
        self.timings = timings
        self.origin = origin
        self.shares = shares  # of a mesh
        self.actors: list[Any] = []
        self.aggregator: Any = None
        self.shared: Any = None  # reference to the data set
        self.bundles: PlacementGroup | None = None
        self.coordinator: Coordinator | None = None
        self.node = ray.get_runtime_context().get_node_id()  # the driver's
        self.places: list[Place] = []  # of the agents, as `Recovery` keeps them

    def start(
        self,
        loading: "Future[Dataset]",
        environment: "Future[dict[str, str]]",
        fingerprint: "Future[str]",
        ray_session: session.Session,
        checkpoint: Checkpoints | None,
    ) -> TrainingGroup:
        experiment = self.experiment
        self.bundles = reserve(experiment.agents or 1, experiment.cpus_per_agent)
        self.aggregator = aggregator = self._aggregator()
        later = experiment.late_agents
        agents = [None if rank in later else self._agent(rank, 0) for rank in range(experiment.agents or 1)]
        present = [agent for agent in agents if agent is not None]
        preparing = [agent.prepare.remote() for agent in present]
        dataset = loading.result()
        self.timings.lap("data set and placement")
        imports = get(preparing, SETUP_SECONDS, "import the framework")
        self.timings.lap("processes and framework import")
        self.timings.seconds["  of which framework import"] = max(imports)
        self.shared = ray.put(dataset)  # the agents of a node map one copy
        built = get(self._building(present), SETUP_SECONDS, "build the model")
        # not before it is known that every shard gets a parameter, and how long an epoch is
        servers = self._servers(built[0].epochs)
        self.timings.lap("model and data")
        answers = get([agent.__ray_call__.remote(place_of) for agent in present], CALL_SECONDS, "answer")
        rest = iter(answers)  # one that comes late stands where the first agent is, until it is known
        self.places = places = [answers[0] if agent is None else next(rest) for agent in agents]
        mirror = self._mirror(COORDINATOR)
        self.coordinator = Coordinator(
            self.run_id,
            experiment.timeout_seconds,
            place_of(None),
            mirror,
            encrypted=experiment.encryption,
        )
        groups = self.coordinator.issue(places)
        networks = network_cost.known([place.hostname for place in places])
        opened = None if servers is None else servers.open(groups, place_of)
        recovery = Recovery(experiment, agents, places, self.coordinator, servers, self, place_of)
        self.coordinator.count(lambda: len(recovery.left))
        if later:
            backend = recovery.begin_without(later)
        else:
            joining = [
                agent.join.remote(group, networks, self._directory(opened, group.rank))
                for agent, group in zip(present, groups, strict=True)
            ]
            backend = get(joining, experiment.timeout_seconds + CALL_SECONDS, "join the group")[0]
        self.timings.lap("group")
        monitors = Monitors(aggregator, self.node, experiment.monitor_seconds, self._monitor)
        group = TrainingGroup(
            experiment=experiment,
            run_id=self.run_id,
            root=self.root,
            agents=agents,
            aggregator=aggregator,
            places=places,
            built=built,
            communicator=backend,
            session=ray_session,
            origin=self.origin,
            startup_seconds=self.timings.seconds,
            release=self.undo,
            recovery=recovery,
            monitors=monitors,
            kept=self.kept,
            shares=self.shares,
        )
        if checkpoint is not None:
            group.resume(checkpoint)
        environments = self._environments(environment.result(), agents, places)
        common = {"communicator": backend, "dataset_sha256": fingerprint.result()}
        group.open({node: facts | common for node, facts in environments.items()})
        self.timings.lap("run folder")
        if experiment.monitor_seconds:
            monitors.start(places, later)
            self.timings.lap("node monitors")
        return group

    def _building(self, agents: Sequence[Any]) -> list[Any]:
        """References to what the agents build; in a mesh each is sent its own share of the network alone."""
        experiment = self.experiment
        if experiment.mesh is None:
            return [agent.build.remote(self.shared) for agent in agents]
        assert self.shares is not None
        seats = [experiment.mesh.seat(rank) for rank in range(len(agents))]
        sent = {id(share): ray.put(share) for share in map(self.shares.of, seats)}
        return [
            agent.build.remote(self.shared, sent[id(self.shares.of(seat))])
            for agent, seat in zip(agents, seats, strict=True)
        ]

    def _environments(
        self, here: dict[str, str], agents: list[Any], places: list[Place]
    ) -> dict[str, dict[str, str]]:
        """The environment of each node by host name, and of an agent's process there. here: the driver's."""
        home = self.node
        one = {place.node: (place, agent) for agent, place in zip(agents, places, strict=True) if agent}
        calls = [
            agent.__ray_call__.remote(_computing if place.node == home else _capture)
            for place, agent in one.values()
        ]
        answers = get(calls, CALL_SECONDS, "describe its node")
        facts = {platform.node(): here | shape()}
        for (place, _), found in zip(one.values(), answers, strict=True):
            name = platform.node() if place.node == home else place.hostname
            facts[name] = facts.get(name, {}) | found
        return facts

    def undo(self) -> None:
        """End the actors, give back what was reserved, and leave when the agents of this node are gone.

        `ray.kill` only asks for it: a process that still ends would disturb what is measured next.
        """
        if session.lost():
            session.shutdown()
            if self.coordinator is not None:
                self.coordinator.close()
            return
        here = [process_of(place) for place in self.places if place.node == self.node]
        for actor in self.actors:
            ray.kill(actor)
        self.actors.clear()
        self.places = []
        psutil.wait_procs([process for process in here if process is not None], timeout=END_SECONDS)
        if self.bundles is not None:
            remove_placement_group(self.bundles)
            self.bundles = None
        if self.coordinator is not None:
            self.coordinator.close()

    def _mirror(self, role: str, rank: object = "") -> MetricsExporter:
        """The exporter of an actor of this run to Ray's metrics."""
        recipe = self.origin.recipe or self.experiment.name
        return MetricsExporter(self.run_id, recipe, role, rank, self.experiment.mirror_seconds)

    def _aggregator(self) -> Any:
        actor = ray.remote(concurrency_groups={QUESTIONS: 1, CONTROL: 1})(MetricsAggregator).options(
            name=ACTOR_NAME,
            namespace=self.run_id,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(self.node, soft=False),  # has the file system
        )
        made = actor.remote(str(self.root), self.run_id, self._mirror(AGGREGATOR))
        self.actors.append(made)
        return made

    def _monitor(self, node: str, pids: Mapping[str, int]) -> Any:
        """The monitor of a node on which no aggregator is."""
        actor = ray.remote(NodeMonitor).options(
            name=f"NodeMonitor({node[:SHOWN]})",
            namespace=self.run_id,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        seconds = self.experiment.monitor_seconds
        made = actor.remote(self.run_id, node[:SHOWN], AggregatorSink(self.aggregator), seconds, pids)
        self.actors.append(made)
        return made

    def _servers(self, epochs: Epochs) -> ServerActors | MeshServers | None:
        resolved, mesh = self.experiment.resolved_servers, self.experiment.mesh
        if resolved is None:
            return None
        resolved = resolved.timed(epochs, self.experiment.replicas)
        if mesh is None or not mesh.shares_networks:
            return ServerActors(resolved, self.experiment, self._server_maker(resolved))

        def made(name: str) -> ServerActors:
            return ServerActors(resolved, self.experiment, self._server_maker(resolved, f" of {name}"))

        return MeshServers(mesh, made)

    def _directory(self, opened: Opened, rank: int) -> Directory | None:
        """The places of an agent's parameter servers."""
        if opened is None or isinstance(opened, Directory):
            return opened
        assert self.experiment.mesh is not None
        seat = self.experiment.mesh.seat(rank)
        return opened[seat.stage, seat.part]

    def _server_maker(
        self, resolved: ResolvedServers, suffix: str = ""
    ) -> Callable[[ParameterServer, int], Any]:
        """The function that starts parameter servers; suffix: what is appended to their names."""
        named: set[int] = set()  # a name is free again only some time after its actor died

        def actor(server: ParameterServer, number: int) -> Any:
            options = ray.remote(concurrency_groups={"watch": 1})(ParameterServer).options(
                name=f"{server!r}{suffix}" if number not in named else None,
                namespace=self.run_id,
                num_cpus=0,
                scheduling_strategy=strategy(self.bundles, number % (self.experiment.agents or 1)),
            )
            named.add(number)
            mirror = self._mirror(SERVER, f"{number}{suffix}")
            made = options.remote(server.shard, resolved, self.experiment.replicas, server.group, mirror)
            self.actors.append(made)
            return made

        return actor

    def agent(self, rank: int, attempt: int) -> Any:
        """One more agent with this rank, that has built its model."""
        made = self._agent(rank, attempt)
        get([made.prepare.remote()], SETUP_SECONDS, "import the framework")
        get([made.build.remote(self.shared)], SETUP_SECONDS, "build the model")
        return made

    def _agent(self, rank: int, attempt: int) -> Any:
        cpus = self.experiment.cpus_per_agent
        actor = ray.remote(concurrency_groups={"control": 1})(TrainingAgent).options(
            name=f"TrainingAgent(rank={rank})" + (f" again {attempt}" if attempt else ""),
            namespace=self.run_id,
            num_cpus=cpus,
            scheduling_strategy=strategy(self.bundles, rank),
        )
        sink = AggregatorSink(self.aggregator)
        folder = str((self.root / self.run_id).absolute())
        mirror = self._mirror(AGENT, rank)
        made = actor.remote(rank, self.experiment, self.run_id, None, sink, None, attempt, folder, mirror)
        self.actors.append(made)
        return made


@contextmanager
def spawned(kind: type, arguments: Sequence[tuple[Any, ...]], *, cpus: float = 1.0) -> Iterator[list[Any]]:
    """Actors of a plain class outside a run, one for each tuple of arguments; leaving the context ends them.

    They are placed, and their processes set up, as the agents of an experiment are.
    """
    bundles = reserve(len(arguments), cpus)
    actors: list[Any] = []
    namespace = new_run_id(kind.__name__)
    try:
        for rank, given in enumerate(arguments):
            actor = ray.remote(kind).options(
                name=f"{kind.__name__}(rank={rank})",
                namespace=namespace,
                num_cpus=cpus,
                scheduling_strategy=strategy(bundles, rank),
            )
            actors.append(actor.remote(*given))
        yield actors
    finally:
        for actor in actors:
            ray.kill(actor)
        if bundles is not None:
            remove_placement_group(bundles)


def process_of(place: Place) -> psutil.Process | None:
    """The process of an agent on this node; None when it has ended."""
    try:
        return psutil.Process(place.pid)
    except psutil.NoSuchProcess:
        return None


def _capture(_actor: object) -> dict[str, str]:
    return capture() | computing()


def _computing(_actor: object) -> dict[str, str]:
    return computing()


def place_of(_actor: object) -> Place:
    """The place where this process runs."""
    context = ray.get_runtime_context()
    return Place(context.get_node_id(), ray.util.get_node_ip_address(), platform.node(), os.getpid())
