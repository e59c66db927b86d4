"""The agents of one simulation as their user holds them: to train, to look at and to close"""

import json
import platform
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import pyarrow as pa

from d5ray.actors.group.models import Models
from d5ray.actors.group.progress_bar import Bar
from d5ray.actors.group.run_row import RunOrigin, RunPlan, new_run_id
from d5ray.actors.group.training import TrainingRun
from d5ray.actors.metrics.aggregator import check_resize
from d5ray.agent.building import load_framework
from d5ray.agent.faults import Do
from d5ray.agent.loop import Progress
from d5ray.agent.outcome import Outcome
from d5ray.agent.training_agent import TrainingAgent
from d5ray.agent.trial import try_parts
from d5ray.archive.experiments import ArchiveFiles
from d5ray.distributed.checkpoints.checkpoint import Checkpoints
from d5ray.distributed.faults.fault import MISSED, missed
from d5ray.distributed.faults.plan import Faults
from d5ray.distributed.simulation.clock import WATCH_EVENTS, VirtualEvent
from d5ray.distributed.simulation.world import Simulation
from d5ray.experiment import Experiment
from d5ray.failures.program_state import apart
from d5ray.metrics.probes.environment import capture
from d5ray.metrics.probes.numeric_libraries import computing
from d5ray.metrics.record.model_state import ModelState
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.schema import VERDICTS, table_of
from d5ray.simulated.deaths import Deaths
from d5ray.simulated.forming import SimulatedForming
from d5ray.simulated.members import Members
from d5ray.training.batches.epochs import Epochs

BESIDE_EVENTS: Final = 50  # of the virtual clock, between two calls of `beside`


@final
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
        faults: Faults,
    ) -> None:
        origin = origin or RunOrigin(recipe=experiment.name)
        run_id = new_run_id(origin.recipe or experiment.name)
        super().__init__(RunPlan(experiment, run_id, root, origin, kept, faults=faults))
        self.startup_seconds: dict[str, float] = {}
        self._simulation, self._faults = simulation, faults
        self._late = dict(experiment.late_agents)
        self._training: set[int] = set()
        self._over = VirtualEvent(simulation.clock)  # when no agent trains any more
        members = self._members = Members(experiment, simulation, self.folder, faults, self._own)
        self._models = Models(self._plan, lambda: members.left, self._asked)
        self._forming = SimulatedForming(members)
        self._deaths = Deaths(members, self._do, self._ended, self._forming)
        self.agents, self.gone = members.agents, members.gone
        self._aggregator, self._together = members.aggregator, members.together

    @property
    def seconds(self) -> float:
        """The virtual time that has passed."""
        return self._simulation.clock.seconds

    def open(self, checkpoint: Checkpoints | None = None) -> None:
        """Build the models, form the group, go on from a checkpoint, and begin the run's folder."""
        load_framework(self.experiment)  # whose random streams are kept then
        self._open(checkpoint)

    @apart
    def _open(self, checkpoint: Checkpoints | None) -> None:
        dataset = self.experiment.load_dataset()
        try_parts(self.experiment, dataset)
        self.built, *_ = self._members.build(dataset)
        self._forming.epochs = self.built.epochs
        self._members.join()
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

    def resize(self, agents: int) -> None:
        """Let the run have this number of agents, from a step on that all reach together.

        Before or between trainings, or by an event in one; see `d5ray.resize`.
        """
        described = self.experiment.describe() | {"agents": self.experiment.agents}
        check_resize(described, agents, one_sided=self.experiment.distributed_optimizer.one_sided)
        self._forming.want(agents)

    def progress(self) -> Progress:
        """The step and state of the first agent."""
        return self.agents[self.left[0]].progress()

    def deliver(self) -> None:
        """Bring into `tables` what agents have recorded by now; called `beside` a training."""
        for rank in self.left:
            self.agents[rank].records.recorder.flush()

    def abandon(self) -> None:
        """End the tasks that still wait."""
        self._closed = True
        self._simulation.clock.close()

    @property
    def left(self) -> list[int]:
        """The ranks of the agents that are there."""
        return self._members.left

    def _resume(self, checkpoint: Checkpoints) -> Epochs:
        self._together(lambda rank: self.agents[rank].resume(checkpoint.path, checkpoint.step))
        epochs = self._forming.epochs = self.agents[0].data.epochs
        return epochs

    @property
    def _epochs(self) -> Epochs:
        return self._forming.epochs

    def _train(self, first: int, last: int, bar: Bar) -> dict[int, Outcome]:
        def watch() -> None:
            if bar.visible:
                bar.update(self.progress())
            if self.beside is not None:
                self.beside()

        try:
            servers = self._simulation.servers
            if servers is not None:
                for rank in self.left:
                    servers.enter(rank, again=True)
            if self._begun is None:
                self._begun = self.seconds
            planned, self._faults = self._faults, Faults()
            self._deaths.plan(planned)
            self._forming.last, self._forming.until = last, self._until
            self._forming.advance()
            self._over = VirtualEvent(self._simulation.clock, "the others' training")
            watching = watch if bar.visible or self.beside is not None else None
            every = WATCH_EVENTS if self.beside is None else BESIDE_EVENTS
            outcomes = self._together(self._do, watching, [*self.left, *self._late], every)
            while self._forming.goes_on(outcomes):
                outcomes = self._together(self._do, watching, every=every)
            if self.experiment.distributed_optimizer.asynchronous and all(
                o.completed for o in outcomes.values()
            ):
                self._together(lambda rank: self.agents[rank].drain())
                if servers is not None:
                    servers.refresh()
                self._together(lambda rank: self.agents[rank].conclude())
            if self._shares_anew and self.left:
                self._forming.epochs = self.agents[self.left[0]].epochs()
        except KeyboardInterrupt:
            self._interrupted(max(agent.progress().step for agent in self.agents))
            raise
        named = {
            rank: Outcome(o.status, o.step, f"{self.agents[rank]!r} failed at step {o.step}: {o.reason}")
            if o.status == "failed"
            else o
            for rank, o in outcomes.items()
        }
        dead = min(self._deaths.dead, default=None)
        if dead is not None and self.experiment.faults.on_failure == "stop":
            named[dead] = Outcome("died", 0, f"{self.agents[dead]!r} died, so the others were stopped")
        return named

    def _complete(self, verdict: str | None, verdicts: pa.Table | None) -> None:
        if self._plan.faults:
            self._note_missed()
        first = self.left[0]
        self._note_absent(self._forming.coming, self._members.note)
        if self._outcome.completed:
            self._keep_model(self._models, self._members.note)
        row = self._last_row(verdict, self._members.rows(), self.agents[first].parameters_sha256())
        self._aggregator.close(row, VERDICTS.empty_table() if verdicts is None else verdicts)

    def _note_missed(self) -> None:
        """Keep an event for every fault of the plan that has not happened."""
        events = self.tables()["events"].to_pylist()
        told = [json.loads(each["detail"])["planned"] for each in events if each["name"] == "fault"]
        for fault, why in missed(self._plan.faults, told, self._deaths.missed).items():
            rank = fault.numbers[0] if fault.victim == "agent" else -1
            self._members.note(MISSED, rank, **fault.described, reason=why)

    def _end(self) -> None:
        self.abandon()

    def _asked(self, ranks: Collection[int], of_servers: bool) -> dict[int, ModelState]:
        return {rank: self.agents[rank].model_state(of_servers=of_servers) for rank in ranks}

    def _own(self, rank: int) -> Do:
        """What does a fault that this agent does itself."""
        return lambda fault: self._deaths.own(rank, fault)

    def _do(self, rank: int) -> Outcome:
        """One agent's steps up to the last; while it trains, and no longer, the servers wait for it."""
        last = self._forming.last
        if rank in self._late and not self._come(rank):
            return Outcome("completed", last)
        self._training.add(rank)
        steps = last - self.agents[rank].progress().step
        outcome = (
            self.agents[rank].train(steps, self._forming.until) if steps > 0 else Outcome("completed", last)
        )
        if self._simulation.servers is not None:
            self._simulation.servers.leave(rank)
        self._ended(rank)
        if outcome.completed and outcome.reason and self.experiment.distributed_optimizer.asynchronous:
            for other in self._training:
                self.agents[other].stop(outcome.reason)
        if self.experiment.distributed_optimizer.has_idle_rounds and outcome.completed:
            self.agents[rank].idle(self._simulation.order.rounds(rank))
        return outcome

    def _ended(self, rank: int) -> None:
        """An agent trains no more."""
        self._training.discard(rank)
        if not self._training:
            self._over.set()
            for other in self.left:
                self.agents[other].over()

    def _come(self, rank: int) -> bool:
        """Wait until a late agent is to come, and let it join; not if all others have ended before."""
        assert self._begun is not None
        due = self._begun + self._late[rank].seconds
        if self._over.wait(max(0.0, due - self._simulation.clock.seconds)):
            return False
        del self._late[rank]
        self._members.let_in(rank, step=max(self.agents[other].progress().step for other in self._training))
        return True
