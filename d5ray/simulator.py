"""An Experiment in one process, on a virtual clock: the same agents, repeatable to the last bit"""

import json
import platform
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from d5ray.actors.group.progress_bar import Bar
from d5ray.actors.group.run_row import RunOrigin, RunPlan, new_run_id
from d5ray.actors.group.training import TrainingRun, found_for
from d5ray.actors.metrics.aggregator import MetricsAggregator
from d5ray.agent.connections import LateEntry
from d5ray.agent.outcome import Outcome
from d5ray.agent.training_agent import TrainingAgent
from d5ray.archive.experiments import Archived, ArchiveFiles, SimulationSettings, kept
from d5ray.checks import check_kind, check_path
from d5ray.distributed.checkpoints.checkpoint import Checkpoints
from d5ray.distributed.group.group import Group
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.simulation.arrival_order import Order
from d5ray.distributed.simulation.clock import Task, VirtualEvent
from d5ray.distributed.simulation.compute import ComputeTime, ConstantTime
from d5ray.distributed.simulation.failures import Failure, check_failures
from d5ray.distributed.simulation.links import Links, UniformLinks
from d5ray.distributed.simulation.world import SimulatedWorld, Simulation
from d5ray.distributed.topologies.survivors import survivors
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.metrics.probes.environment import capture
from d5ray.metrics.probes.numeric_libraries import computing
from d5ray.metrics.record import store
from d5ray.metrics.record.schema import VERDICTS, table_of
from d5ray.metrics.record.store import Run

T = TypeVar("T")
DATA_CENTRE = UniformLinks()
A_MILLISECOND = ConstantTime()


def simulate(
    experiment: Experiment,
    network: Links = DATA_CENTRE,
    compute: ComputeTime = A_MILLISECOND,
    *,
    origin: RunOrigin | None = None,
    root: Path | None = None,
    order: Order | None = None,
    failures: Iterable[Failure] = (),
    resume: str | Path | None = None,
) -> "SimulatedGroup":
    """The experiment's agents in this process, ready to train. Use it as a context manager, like `launch`.

    Their gradients are real, their times are virtual: network says what messages cost, compute how long a
    gradient takes, and the experiment's `slow` who takes longer. Everything else takes no time. The same
    seed gives the same parameters and the same tables, to the last bit on the same processor with the same
    libraries; only the run's name differs.

    root: the folder in which the run's own is made, by default `runs_root()`. order: of what agents ask of
    servers and of each other, by default as it arrives.
    failures: agents that die by plan; with on_failure='continue' the others go on without them.
    resume: a checkpoint to go on from, as for `launch`; the virtual clock begins at 0 again.
    Raises `ConfigurationError` and `DataError` for what does not fit, `StorageError` where the run cannot
    be written.
    """
    check_kind("experiment", experiment, Experiment, "an Experiment")
    for name, found, kind in (("network", network, Links), ("compute", compute, ComputeTime)):
        if not isinstance(found, kind):
            raise ConfigurationError(
                f"{name} is {found!r}: it must be a {kind.__name__} such as "
                f"{DATA_CENTRE if kind is Links else A_MILLISECOND!r}"
            )
    if experiment.mesh is not None:
        raise ConfigurationError(
            f"a simulation knows agents that have the whole network, the experiment has {experiment.mesh!r}: "
            "launch it, or leave the mesh out"
        )
    assert experiment.agents is not None
    planned = check_failures(failures, experiment.agents)
    if planned and experiment.on_failure not in (
        ("stop", "continue") if experiment.distributed_optimizer.one_sided else ("stop",)
    ):
        raise ConfigurationError(
            f"when an agent dies, a simulation cannot go on with {experiment.distributed!r} and "
            f"on_failure={experiment.on_failure!r}: it knows 'stop', and 'continue' where agents do not wait "
            "for each other's steps"
        )
    check_kind("origin", origin, RunOrigin | None, "None, or a RunOrigin")
    check_kind("order", order, Order | None, "None, or the Order of another run")
    root = store.runs_root() if root is None else check_path("root", root)
    checkpoint = None if resume is None else found_for(experiment, resume, root)
    store.check_writable(root)
    simulation = Simulation.of(network, compute, experiment.seed, order)
    archived = Archived(experiment, SimulationSettings(network, compute, planned))
    keeping = kept(archived, lambda: _pickled(archived)) if order is None else ArchiveFiles()
    group = SimulatedGroup(experiment, simulation, root, origin, keeping, planned)
    try:
        group.open(checkpoint)
    except BaseException:
        group.abandon()
        raise
    return group


def _pickled(archived: Archived) -> bytes:
    import cloudpickle  # noqa: PLC0415 - only experiments with the user's own code need it

    data: bytes = cloudpickle.dumps(archived)
    return data


class SimulatedGroup(TrainingRun):
    """The agents of one simulation; what `TrainingGroup` is for real ones. All times are virtual."""

    agents: list[TrainingAgent]
    communicator = "simulated"

    def __init__(
        self,
        experiment: Experiment,
        simulation: Simulation,
        root: Path,
        origin: RunOrigin | None,
        kept: ArchiveFiles,
        failures: tuple[Failure, ...] = (),
    ) -> None:
        origin = origin or RunOrigin(recipe=experiment.name)
        run_id = new_run_id(origin.recipe or experiment.name)
        super().__init__(RunPlan(experiment, run_id, root, origin, kept))
        self.startup_seconds: dict[str, float] = {}
        self._simulation = simulation
        self._failures = list(failures)
        self._tasks: dict[int, Task] = {}
        self._late = dict(experiment.late_agents)
        self._training: set[int] = set()
        self._over = VirtualEvent(simulation.clock)  # when no agent trains any more
        self.gone: set[int] = set(self._late)  # who is not there, or not yet
        self._aggregator = MetricsAggregator(str(root), self.run_id)
        sink = _Sink(self._aggregator)
        assert experiment.agents is not None
        self.agents = [
            TrainingAgent(
                rank,
                experiment,
                self.run_id,
                f"agent-{rank}",
                sink,
                SimulatedWorld(simulation, rank),
                folder=str(self.folder),
            )
            for rank in range(experiment.agents)
        ]

    @property
    def seconds(self) -> float:
        """The virtual time that has passed."""
        return self._simulation.clock.seconds

    def open(self, checkpoint: Checkpoints | None = None) -> None:
        """Build the models, form the group, go on from a checkpoint, and begin the run's folder."""
        dataset = self.experiment.load_dataset()
        self.built, *_ = [agent.build(dataset) for agent in self.agents]
        if self._late:
            self._begin_without()
        else:
            self._together(lambda rank: self.agents[rank].join(self._group(0, rank, len(self.agents))))
        if checkpoint is not None:
            self.resume(checkpoint)
        self._environment = capture() | computing()
        facts = self._environment | {"communicator": self.communicator, "dataset_sha256": dataset.fingerprint}
        rows = [
            {"run_id": self.run_id, "node": platform.node(), "key": key, "value": value}
            for key, value in facts.items()
        ]
        self._aggregator.open(self._row("running"), table_of("environment", rows))
        self._plan.kept.keep(self.folder)

    def parameters(self, rank: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of the parameters of the agent with this rank, by name."""
        return self.agents[rank].parameters()

    def tables(self) -> dict[str, pa.Table]:
        """All tables of the run, by name."""
        return Run(self.folder).tables()

    def abandon(self) -> None:
        """End the tasks that still wait."""
        self._closed = True
        self._simulation.clock.close()

    @property
    def left(self) -> list[int]:
        """The ranks of the agents that are there."""
        return [rank for rank in range(len(self.agents)) if rank not in self.gone]

    def _resume(self, checkpoint: Checkpoints) -> None:
        self._together(lambda rank: self.agents[rank].resume(checkpoint.path, checkpoint.step))

    def _train(self, first: int, last: int, bar: Bar) -> dict[int, Outcome]:
        def watch() -> None:
            bar.update(self.agents[0].progress())

        try:
            servers = self._simulation.servers
            if servers is not None:
                for rank in self.left:
                    servers.enter(rank)
            if self._begun is None:
                self._begun = self.seconds
            for failure in self._failures:
                self._simulation.clock.at(failure.seconds, partial(self._die, failure.agent))
            self._failures.clear()
            self._over = VirtualEvent(self._simulation.clock, "the others' training")
            ranks = [*self.left, *self._late]
            outcomes = self._together(partial(self._do, last), watch if bar.visible else None, ranks)
            if self.experiment.distributed_optimizer.asynchronous and all(
                o.completed for o in outcomes.values()
            ):
                self._together(lambda rank: self.agents[rank].drain())
                if servers is not None:
                    servers.refresh()
                self._together(lambda rank: self.agents[rank].conclude())
        except KeyboardInterrupt:
            self._interrupted(max(agent.progress().step for agent in self.agents))
            raise
        named = {
            rank: Outcome(o.status, o.step, f"{self.agents[rank]!r} failed at step {o.step}: {o.reason}")
            if o.status == "failed"
            else o
            for rank, o in outcomes.items()
        }
        dead = min(self.gone - self._late.keys(), default=None)
        if dead is not None and self.experiment.on_failure == "stop":
            named[dead] = Outcome("died", 0, f"{self.agents[dead]!r} died, so the others were stopped")
        return named

    def _complete(self, verdict: str | None, verdicts: pa.Table | None) -> None:
        stored = self._aggregator.received()  # what an agent had not sent died with it
        rows = sum(
            stored.get((repr(agent), 0), 0) if rank in self.gone else agent.rows()
            for rank, agent in enumerate(self.agents)
        )
        row = self._last_row(verdict, rows, self.agents[self.left[0]].parameters_sha256())
        self._aggregator.close(row, VERDICTS.empty_table() if verdicts is None else verdicts)

    def _end(self) -> None:
        self.abandon()

    def _do(self, last: int, rank: int) -> Outcome:
        """One agent's steps up to the last; while it trains, and no longer, the servers wait for it."""
        if rank in self._late and not self._come(rank):
            return Outcome("completed", last)
        self._training.add(rank)
        steps = last - self.agents[rank].progress().step
        outcome = self.agents[rank].train(steps) if steps else Outcome("completed", last)
        if self._simulation.servers is not None:
            self._simulation.servers.leave(rank)
        self._ended(rank)
        if outcome.completed and outcome.reason and self.experiment.distributed_optimizer.asynchronous:
            for other in self._training:
                self.agents[other].stop(outcome.reason)
        if self.experiment.distributed_optimizer.lingers and outcome.completed:
            self.agents[rank].linger(self._simulation.order.rounds(rank))
        return outcome

    def _die(self, rank: int) -> None:
        """An agent dies, now, in the middle of whatever it does; nothing happens if its training is over."""
        task = self._tasks.get(rank)
        if rank in self.gone or task is None or task.greenlet.dead:
            return
        self.gone.add(rank)
        self._note_death(rank)
        self._ended(rank)
        simulation = self._simulation
        simulation.clock.kill(task)
        simulation.meadow.lose(rank)
        self.agents[rank].leave()  # as its operating system does: connections break
        for index, other in enumerate(self.left):
            if self.experiment.on_failure == "stop":
                self.agents[other].stop()
            else:
                self.agents[other].lost(rank, len(self.left), index)

    def _note_death(self, rank: int) -> None:
        now = round(self.seconds * 1e9)
        row = {
            "run_id": self.run_id, "agent": "driver", "rank": rank, "name": "agent_died", "t_wall": now,
            "t_mono": now, "detail": json.dumps({"reason": "by plan", "attempt": 0}),
        }  # fmt: skip
        self._aggregator.append_deaths(table_of("events", [row]).combine_chunks().to_batches()[0])

    def _ended(self, rank: int) -> None:
        """An agent trains no more."""
        self._training.discard(rank)
        if not self._training:
            self._over.set()
            for other in self.left:
                self.agents[other].over()

    def _begin_without(self) -> None:
        """Let those that are there join each other so that the late ones can come."""
        present = self.left
        topology = self.experiment.topology
        assert topology is not None
        among = survivors(topology, self.gone)
        self._together(
            lambda rank: self.agents[rank].take_first(
                self._group(0, present.index(rank), len(present)), among
            )
        )
        self.gone.update(present)
        for rank in present:
            self._together(partial(self._join, step=0, begins=True), ranks=[rank])
        servers = self._simulation.servers
        for rank in self._late:
            self._simulation.meadow.gone.add(rank)
            if servers is not None:
                servers.leave(rank)

    def _join(self, rank: int, *, step: int, begins: bool = False) -> None:
        """An agent joins those that are there, at this step; begins: it has its parameters already."""
        servers, peers = (
            self._simulation.servers,
            ExchangeVia.PEERS in self.experiment.distributed_optimizer.exchange,
        )
        if servers is not None and not begins:
            servers.enter(rank)
        parameters = self.agents[self.left[0]].flat_parameters() if peers and not begins else None
        group = self._group(1, rank, len(self.agents))
        self.agents[rank].join_late(LateEntry(group, step, None, {}, parameters, tuple(self.gone - {rank})))
        self._simulation.meadow.admit(rank)
        for other in self.left:
            self.agents[other].admit(rank)
        self.gone.discard(rank)

    def _come(self, rank: int) -> bool:
        """Wait until a late agent is to come, and let it join; not if all others have ended before."""
        assert self._begun is not None
        due = self._begun + self._late[rank].seconds
        if self._over.wait(max(0.0, due - self._simulation.clock.seconds)):
            return False
        del self._late[rank]
        self._join(rank, step=max(self.agents[other].progress().step for other in self._training))
        return True

    def _group(self, epoch: int, rank: int, size: int) -> Group:
        return Group(self.run_id, epoch, rank, size, timeout_seconds=self.experiment.timeout_seconds)

    def _together(
        self,
        call: Callable[[int], T],
        watch: Callable[[], None] | None = None,
        ranks: Iterable[int] | None = None,
    ) -> dict[int, T]:
        """call(rank) for these agents, or all that are there, as tasks on the virtual clock; the results."""
        clock = self._simulation.clock
        ranks = self.left if ranks is None else ranks
        self._tasks = {rank: clock.start(partial(call, rank), repr(self.agents[rank])) for rank in ranks}
        clock.run(list(self._tasks.values()), watch)
        return {rank: task.result for rank, task in self._tasks.items() if rank not in self.gone}


class _Sink:
    """Hands rows to the aggregator of this process."""

    def __init__(self, aggregator: MetricsAggregator) -> None:
        self._aggregator = aggregator

    def samples(self, batch: Any) -> None:
        self._aggregator.append(batch)

    def frames(self, batch: Any) -> None:
        self._aggregator.append_frames(batch)

    def events(self, batch: Any) -> None:
        self._aggregator.append_events(batch)

    def file(self, name: str, data: bytes) -> None:
        self._aggregator.keep_file(name, data)

    def drain(self) -> None:
        pass
