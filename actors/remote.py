"""The one place that says `ray.remote`: makes actors of plain classes, of a run or not, and ends them"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psutil
import ray
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from d5ray.actors.cluster.hand import FaultInjector
from d5ray.actors.cluster.placement import (
    NOTHING,
    Place,
    Reservation,
    end_at_sigterm,
    end_process,
    process_of,
    reservation_of,
    reserve,
    share_gpu,
    strategy,
    without_room,
)
from d5ray.actors.group.run_row import RunPlan, new_run_id
from d5ray.actors.metrics.aggregator import MetricsAggregator
from d5ray.actors.metrics.exporter import MetricsExporter
from d5ray.actors.metrics.running import ACTOR_NAME, CONTROL, QUESTIONS
from d5ray.actors.metrics.sink import AggregatorSink
from d5ray.actors.servers.parameter_server import ParameterServer
from d5ray.actors.session import session
from d5ray.agent.faults import AgentFaults, left_after, signal_itself
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.experiment import Experiment
from d5ray.metrics.exports.exported_metrics import AGENT, AGGREGATOR, SERVER
from d5ray.metrics.probes.node_monitor import NodeMonitor
from d5ray.training.events.checkpoint import Checkpoint

SETUP_SECONDS: Final = 300.0  # for importing a framework and building a model, also from a slow file system
END_SECONDS: Final = 10.0  # for the processes of killed agents on this node to be gone
SINK_SECONDS: Final = 30.0  # that a sink waits longer for its rows to be stored than the driver
MORTAL: Final = (TrainingAgent, ParameterServer)  # SIGTERM ends them at once; others store rows until the end
AGAIN: Final = " again "  # in the name of an actor in the place of another, before a number
SHOWN: Final = 8  # digits of a node's identifier, as Ray's dashboard shows them


class RunActors:
    """Makes the actors of one run, and ends them. node: the driver's, which has the file system."""

    aggregator: Any

    def __init__(self, plan: RunPlan) -> None:
        self.node: str = ray.get_runtime_context().get_node_id()
        self._plan, self._experiment = plan, plan.experiment
        self._shipped = _from_here(plan.experiment)
        self._bundles: PlacementGroup | None = None
        self._reserved = NOTHING  # of an agent
        self._made: dict[str, Any] = {}  # by what each is; of those that died, the one in its place
        self.outside: Counter[int] = Counter()  # ends of each agent's process by plan, from outside
        self._names: set[str] = set()  # a name is free again only some time after its actor died

    def begin(self) -> Any:
        """Reserve room for all agents, and start the aggregator."""
        agents = self._experiment.agents or 1
        self._reserved = session.guarded(lambda: reservation_of(self._experiment))
        self._bundles = reserve(agents, self._reserved)
        return self._aggregator(again=False)

    def another_aggregator(self) -> Any:
        """Start one in the place of the aggregator; ValueError as long as the name is that of the dead."""
        ray.kill(self.aggregator)
        return self._aggregator(again=True)

    def agent(self, rank: int, attempt: int) -> Any:
        """The agent with this rank; attempt: how often one with it was started before."""
        plan = self._plan
        own = plan.faults.of_agent(rank)
        if own:
            own = left_after(own, max(0, attempt - self.outside[rank]))
        return self._actor(
            TrainingAgent,
            (
                rank, self._shipped, plan.run_id, None, self._sink(), None, attempt,
                str(plan.folder.absolute()), self.exporter(AGENT, rank),
                AgentFaults(own, signal_itself, again=attempt > 0) if own else None, plan.clock,
            ),
            f"TrainingAgent(rank={rank})" + (f"{AGAIN}{attempt}" if attempt else ""),
            strategy(self._bundles, rank),
            self._reserved,
            control=1,
            model=1,
        )  # fmt: skip

    def without_room(self, rank: int) -> str:
        """Why no node has room for the agent with this rank; empty if one has, or nobody knows yet."""
        return session.guarded(lambda: without_room(self._bundles, rank, self._reserved))

    def server(self, resolved: ResolvedServers, suffix: str, server: ParameterServer, number: int) -> Any:
        """The actor that is to be this server; suffix: what stands behind its name."""
        exporter = self.exporter(SERVER, f"{number}{suffix}")
        return self._actor(
            ParameterServer,
            (server.shard, resolved, self._experiment.replicas, server.group, exporter),
            f"{server!r}{suffix}",
            strategy(self._bundles, number % (self._experiment.agents or 1)),
            watch=1,
            control=1,
        )

    def hand(self, node: str) -> Any:
        """An actor that sends signals to processes of a node."""
        return self._actor(FaultInjector, (), f"FaultInjector({node[:SHOWN]})", self._on(node))

    def node_monitor(self, node: str, pids: Mapping[str, int]) -> Any:
        """The monitor of a node on which no aggregator is."""
        seconds = self._experiment.recording.monitor_seconds
        given = self._plan.run_id, node[:SHOWN], self._sink(), seconds, pids, None, 0, self._plan.clock
        return self._actor(NodeMonitor, given, f"NodeMonitor({node[:SHOWN]})", self._on(node))

    def _aggregator(self, *, again: bool) -> Any:
        plan, one_sided = self._plan, self._experiment.distributed_optimizer.one_sided
        given = str(plan.root), plan.run_id, self.exporter(AGGREGATOR), again, one_sided, plan.clock
        where, groups = self._on(self.node), {QUESTIONS: 1, CONTROL: 1}
        actor = _actor(MetricsAggregator, given, ACTOR_NAME, plan.run_id, where, NOTHING, **groups)
        self._made[ACTOR_NAME] = actor
        self.aggregator = actor
        return actor

    def _sink(self) -> AggregatorSink:
        """The sink of an actor's rows. It is patient with an aggregator that is stuck, and then restored."""
        experiment = self._experiment
        seconds = experiment.timeout_seconds + experiment.faults.stuck_seconds + SINK_SECONDS
        return AggregatorSink(self.aggregator, ACTOR_NAME, self._plan.run_id, seconds)

    def exporter(self, role: str, rank: object = "") -> MetricsExporter:
        """The exporter of an actor of this run to Ray's metrics."""
        recipe = self._plan.origin.recipe or self._experiment.name
        seconds = self._experiment.recording.mirror_seconds
        return MetricsExporter(self._plan.run_id, recipe, role, rank, seconds)

    def end(self, agents: Sequence[Place], seconds: float) -> None:
        """End all actors, give back what was reserved, and return when the agents of this node are gone.

        `ray.kill` only asks for it: a process that still ends would disturb what is measured next. seconds:
        for Ray to do each; agents of this node are killed after that, and `RayLost` says that it does not.
        """
        here = [process_of(place) for place in agents if place.node == self.node]
        alive = [process for process in here if process is not None]
        try:
            session.guarded(self._kill, seconds)
            _, alive = psutil.wait_procs(alive, timeout=seconds)
        finally:
            for process in alive:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(alive, timeout=END_SECONDS)
        if self._bundles is not None:
            bundles, self._bundles = self._bundles, None
            session.guarded(lambda: remove_placement_group(bundles), seconds)

    def _kill(self) -> None:
        while self._made:
            ray.kill(self._made.popitem()[1])

    def kill(self, actor: Any, place: Place) -> None:
        """End an actor's process by SIGKILL, which a stopped one obeys too."""
        if place.node == self.node:
            end_process(place)
        else:
            ending: Any = ray.remote(end_process)
            ending.options(num_cpus=0, scheduling_strategy=self._on(place.node)).remote(place)
        ray.kill(actor)

    def _actor(
        self, kind: type, given: Any, name: str, where: Any, reserved: Reservation = NOTHING, **groups: int
    ) -> Any:
        named = None if name in self._names else name
        self._names.add(name)
        actor = _actor(kind, given, named, self._plan.run_id, where, reserved, **groups)
        if kind in MORTAL:
            actor.__ray_call__.remote(end_at_sigterm)
        if 0 < reserved.gpus < 1:
            actor.__ray_call__.remote(share_gpu)
        self._made[name.partition(AGAIN)[0]] = actor
        return actor

    @staticmethod
    def _on(node: str) -> NodeAffinitySchedulingStrategy:
        return NodeAffinitySchedulingStrategy(node, soft=False)


@contextmanager
def spawned(
    kind: type, arguments: Sequence[tuple[Any, ...]], *, cpus: float = 1.0, gpus: float = 0.0
) -> Iterator[list[Any]]:
    """Actors of a plain class outside a run, one for each tuple of arguments; leaving the context ends them.

    They are placed, and their processes set up, as the agents of an experiment are.
    """
    reserved = Reservation(cpus, gpus)
    bundles = reserve(len(arguments), reserved)
    actors: list[Any] = []
    namespace = new_run_id(kind.__name__)
    try:
        for rank, given in enumerate(arguments):
            name = f"{kind.__name__}(rank={rank})"
            actors.append(_actor(kind, given, name, namespace, strategy(bundles, rank), reserved))
        yield actors
    finally:
        for actor in actors:
            ray.kill(actor)
        if bundles is not None:
            remove_placement_group(bundles)


def lasting(kind: type, *arguments: Any) -> Any:
    """An actor of a plain class outside a run, which lives as long as anybody refers to it; takes no CPU."""
    return _actor(kind, arguments, None, new_run_id(kind.__name__), None, NOTHING)


def _from_here(experiment: Experiment) -> Experiment:
    """The same experiment for agents, which do not work in the driver's folder."""
    assert isinstance(experiment.events, tuple)
    events = tuple(e.from_here() if isinstance(e, Checkpoint) else e for e in experiment.events)
    return experiment if events == experiment.events else experiment.with_values(events=events)


def _actor(
    kind: type, given: Any, name: str | None, namespace: str, where: Any, reserved: Reservation, **groups: int
) -> Any:
    """An actor of a plain class; groups: its concurrency groups, with their threads."""
    remote: Callable[[type], Any] = ray.remote(concurrency_groups=groups) if groups else ray.remote
    options = remote(kind).options(
        name=name,
        namespace=namespace,
        num_cpus=reserved.cpus,
        num_gpus=reserved.gpus,
        scheduling_strategy=where,
    )
    return session.guarded(lambda: options.remote(*given))
