"""A run's agents on Ray, from their start over training and faults to the end of all that was started"""

import platform
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from d5ray.actors.calls import CALL_SECONDS, DEATHS, ActorDied, get, owned
from d5ray.actors.cluster.nodes import environments
from d5ray.actors.cluster.placement import place_of
from d5ray.actors.group.coordinator import Coordinator
from d5ray.actors.group.ending import LastAnswers, faults_told, steps_recorded
from d5ray.actors.group.faults import Injector, finder
from d5ray.actors.group.last_calls import LastCalls
from d5ray.actors.group.loading import Loading
from d5ray.actors.group.models import Models
from d5ray.actors.group.progress_bar import Bar
from d5ray.actors.group.progress_watch import ProgressWatch
from d5ray.actors.group.recovery import Recovery
from d5ray.actors.group.room import Room
from d5ray.actors.group.roster import AgentRoster
from d5ray.actors.group.run_row import RunPlan
from d5ray.actors.group.train_calls import TrainCalls
from d5ray.actors.group.training import TrainingRun
from d5ray.actors.metrics.aggregator_client import AggregatorClient
from d5ray.actors.metrics.node_monitors import Monitors
from d5ray.actors.remote import END_SECONDS, SETUP_SECONDS, RunActors
from d5ray.actors.servers.run_servers import RunServers
from d5ray.actors.session import session
from d5ray.actors.session.session import Session
from d5ray.agent.loop import Progress
from d5ray.agent.outcome import FAILURES, Outcome
from d5ray.agent.training_agent import TrainingAgent
from d5ray.archive.unfinished import GoingOn
from d5ray.distributed.checkpoints.checkpoint import Checkpoints
from d5ray.errors import AgentError, D5Error, RayLost, StorageError, first_line
from d5ray.metrics.exports.exported_metrics import COORDINATOR
from d5ray.metrics.record.artifacts import keep_parameters
from d5ray.metrics.record.files import when_there_is_room
from d5ray.metrics.record.model_state import ModelState
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.schema import VERDICTS
from d5ray.training.batches.epochs import Epochs

OVER: Final = ("completed", "nan_loss")  # outcomes after which agents are asked what they came to
QUICKLY: Final = 0.5  # seconds for Ray to end each thing of a run that was interrupted
LOOK_SECONDS = 0.1  # between two looks where the agents are, if they may have to be started again


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


@final
class TrainingGroup(TrainingRun):
    """The agents of one run on Ray.

    agents: actor handles, by rank; None: it comes late. places: where they run.
    """

    agents: list[ActorHandle[TrainingAgent]]
    closing_errors = (D5Error, RayError)

    def __init__(self, plan: RunPlan, session: Session) -> None:
        super().__init__(plan)
        experiment = plan.experiment
        self.session = session
        self.startup_seconds: dict[str, float] = {}
        self.flight: dict[str, str] | None = None  # location and token, while the run is served
        self._cluster = {"ray_address": session.address, "dashboard": session.dashboard}
        self._late = list(experiment.late_agents.values())
        self._injector: Injector | None = None
        self._actors = RunActors(plan)
        self._coordinator = Coordinator(
            plan.run_id,
            experiment.timeout_seconds,
            place_of(None),
            self._actors.exporter(COORDINATOR),
            encrypted=experiment.encryption,
        )
        self._servers = RunServers(experiment, self._actors.server, self._actors.kill)
        self._members = AgentRoster(plan, self._actors.agent, self._coordinator, self._servers)
        self.aggregator = AggregatorClient(
            self.folder,
            self._actors.another_aggregator,
            experiment.timeout_seconds,
            experiment.faults.stuck_seconds,
            plan.clock,
        )
        self._monitors = Monitors(self._actors, self.aggregator, experiment.recording.monitor_seconds)
        self.agents, self.places = self._members.agents, self._members.places
        self._models = Models(plan, lambda: self._members.present, self._asked)

    @property
    def asynchronous(self) -> bool:
        """True if the agents do not wait for each other; the run then keeps its schedule."""
        return self.experiment.distributed_optimizer.asynchronous

    # -- the start -------------------------------------------------------------------------------------

    def start(self, loading: Loading, timings: Timings, going_on: GoingOn) -> str:
        """Start all actors, let the agents join each other, and begin the run's folder.

        Gives what became of a run before that did not come to its end, for people.
        """
        experiment, members = self.experiment, self._members
        self.startup_seconds = timings.seconds
        self.aggregator.begin(self._actors.begin())
        note = self.aggregator.note
        if self._plan.faults:
            find, now = finder(members, self._servers, self.aggregator), self.aggregator.note_now
            self._injector = Injector(
                self._plan.faults, self._plan.root, find, now, self._actors.hand, members.where
            )
            self._actors.outside, note = self._injector.outside, self._injector.noting(note)
        members.room = Room(self._actors.without_room, self.aggregator.note)
        self._recovery = Recovery(self._plan, members, note, self._end_actor)
        self._progress = ProgressWatch(self._plan, members, self.aggregator.note)
        self._last = LastCalls(
            experiment.faults.stuck_seconds, self._progress, self._servers, self._kill, self.aggregator.note
        )
        preparing = members.make()
        dataset = loading.dataset.result()
        timings.lap("data set and placement")
        imports = get(preparing, SETUP_SECONDS, "import the framework")
        timings.lap("processes and framework import")
        timings.seconds["  of which framework import"] = max(imports)
        self.built, *_ = members.build(dataset)
        self._recovery.forming.epochs = self.built.epochs
        # not before it is known that every shard gets a parameter, and how long an epoch is
        self._servers.start(self.built.epochs)
        timings.lap("model and data")
        self.communicator = members.join()
        if self._injector is not None:
            self._injector.check()
        timings.lap("group")
        checkpoint = going_on.chosen(experiment, self.built.epochs)
        if checkpoint is not None:
            self.resume(checkpoint)
            self._recovery.forming.resumed = checkpoint
        self._open(loading)
        if told := going_on.told(checkpoint):
            name = "begun_anew" if checkpoint is None else "continues"
            self.aggregator.note(name, -1, run=going_on.run, checkpoint=str(checkpoint or ""))
        timings.lap("run folder")
        if experiment.recording.monitor_seconds:
            self._monitors.start(self.places, experiment.late_agents)
            timings.lap("node monitors")
        return told

    def _open(self, loading: Loading) -> None:
        """Begin the run's folder."""
        here = loading.environment.result()
        common = {"communicator": self.communicator, "dataset_sha256": loading.fingerprint.result()}
        found = environments(here, self._actors.node, self.agents, self.places)
        found = {node: facts | common for node, facts in found.items()}
        self._environment = found[platform.node()]
        self.aggregator.open(self._row("running"), found)
        self._plan.kept.keep(self.folder)

    @property
    def left(self) -> list[int]:
        """The ranks of the agents that are there."""
        return self._members.present

    def abandon(self) -> None:
        """End a start that failed."""
        self._closed = True
        self._end()

    # -- beside a training -----------------------------------------------------------------------------

    def serve(self, bind: str) -> None:
        """Let the aggregator answer queries by Arrow Flight at PORT or HOST:PORT; see `flight`."""
        self.flight = self.aggregator.serve(bind)

    def resize(self, agents: int) -> None:
        """Let the run have this number of agents; see `d5ray.resize`. Also from another thread."""
        self._recovery.changes.request(agents)

    def parameters(self, rank: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of the parameters of the agent with this rank, by name."""
        if rank not in self._members.present:
            raise AgentError(f"TrainingAgent(rank={rank}) is not there: it has died, or not come yet")
        call = self.agents[rank].parameters.remote()
        named: dict[str, np.ndarray[Any, Any]] = get([call], CALL_SECONDS, "give its parameters")[0]
        return owned(named)

    def network_parameters(self, replica: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of the parameters of a replica's whole network, by name: those of its agents together."""
        shares = self._plan.shares
        if shares is None:
            return self.parameters(replica)
        given = self._members.gather("parameters", "give its parameters")
        replicas, size = self.experiment.replicas, self.experiment.agents_per_replica
        if not 0 <= replica < replicas or replica * size not in given:
            raise AgentError(f"replica {replica} of {replicas} is not there, or an agent of it has died")
        return owned(shares.whole(given, replica))

    def tables(self) -> dict[str, pa.Table]:
        """All tables of the run, by name."""
        if not self._closed:
            with suppress(ActorDied, RayLost):  # what the aggregator has kept is there without it
                return self.aggregator.tables()
        return Run(self.folder).tables()

    def deliver(self) -> None:
        """Do nothing: agents send by themselves what they have recorded, every second."""

    def _asked(self, ranks: Collection[int], of_servers: bool) -> dict[int, ModelState]:
        agents = {rank: self.agents[rank] for rank in ranks}
        return _models_of(agents, of_servers, self.experiment.timeout_seconds)

    def _asked_last(self, ranks: Collection[int], of_servers: bool) -> dict[int, ModelState]:
        """The same when the training is over: an agent that is stuck then is found."""
        kept: dict[int, ModelState] = {}
        calls = _asking({rank: self.agents[rank] for rank in ranks}, of_servers)
        dead = self._last.of_agents(kept, calls, "give its model", self.experiment.timeout_seconds)
        if dead:
            raise AgentError(next(iter(dead.values())))
        return kept

    def _resume(self, checkpoint: Checkpoints) -> Epochs:
        calls = [agent.resume.remote(checkpoint.path, checkpoint.step) for agent in self.agents]
        bound = self.experiment.timeout_seconds + CALL_SECONDS
        epochs: Epochs = get(calls, bound, "take over its checkpoint")[0]
        self._recovery.forming.epochs = epochs
        return epochs

    @property
    def _epochs(self) -> Epochs:
        return self._recovery.forming.epochs

    # -- a training ------------------------------------------------------------------------------------

    def _train(self, first: int, last: int, bar: Bar) -> dict[int, Outcome]:
        self._servers.resume(self._members.present)
        self._servers.keep()
        self._monitors.phase("train")
        calls = TrainCalls(self._plan, self._members, last, self._progress, self._kill, self.aggregator.note)
        calls.until = self._until
        for rank in self._members.present:
            calls.go_on(rank, first)
        self._begun = self._begun or time.monotonic()
        self._recovery.changes.forget()
        if self._injector is not None:
            self._injector.begin()
        try:
            while calls.pending or self._recovery.holds:
                self._let_come(calls)
                self._take_news(calls, bar.interval)
                self._recovery.changes.advance(calls, self.aggregator.wanted)
                if self._recovery.holds:
                    continue
                if calls.parted:
                    self._recovery.parted(calls)
                elif calls.failed:
                    calls.stop()
                elif not calls.pending:
                    for rank, outcome in self._conclude(calls).items():
                        calls.outcomes.pop(rank, None)
                        self._recovery.agent_died(rank, outcome, calls)
                if bar.visible and not calls.failed:
                    bar.update(self.progress())
                if self.beside is not None:
                    self.beside()
        except KeyboardInterrupt:
            self._members.forget_dataset()
            self.aggregator.end()  # all of the run may have been interrupted: none is to stand in its place
            calls.stop()
            # Ctrl-C may come before any agent's outcome is known, and an agent given up says step 0.
            done_steps = max((outcome.step for outcome in calls.outcomes.values()), default=0)
            self._interrupted(max(first, done_steps))
            raise
        except D5Error:
            if not session.lost():
                calls.stop()  # so that the rows of those that are there arrive
            raise
        finally:
            self._monitors.phase("run")
        if self._shares_anew and not calls.failed:
            asked = self.agents[self._members.present[0]].epochs.remote()
            self._recovery.forming.epochs = get([asked], CALL_SECONDS, "tell of its epochs")[0]
        for outcome in calls.outcomes.values():
            if outcome.status in (*FAILURES, "peer_lost"):
                self._coordinator.failed(outcome.status)
        return calls.outcomes

    def _let_come(self, calls: TrainCalls) -> None:
        """Start the agents that are to join by now."""
        assert self._begun is not None
        passed = time.monotonic() - self._begun
        for late in [late for late in self._late if late.seconds <= passed]:
            self._late.remove(late)
            self._recovery.come_late(late.agent, calls)

    def _take_news(self, calls: TrainCalls, seconds: float) -> None:
        """Wait for an agent that ends its training or dies, or a server that dies, and act upon it."""
        self._servers.snapshot()
        watched = self._servers.watching
        if self._recovery.restarts:
            self._members.look()
        calls.end_stuck()
        seconds = min(seconds, self._progress.interval)
        if self._recovery.restarts or self._recovery.changes.under_way:
            seconds = min(seconds, LOOK_SECONDS)
        awaited = [*calls.pending, *watched]
        if not awaited:
            time.sleep(LOOK_SECONDS)
            return
        done, _ = ray.wait(awaited, num_returns=1, timeout=seconds)
        session.check_alive()
        self.aggregator.check()
        for reference in done:
            if reference in watched:
                self._recovery.server_died(watched[reference])
                continue
            rank, outcome = calls.take(reference)
            if outcome.status == "died":
                self._recovery.agent_died(rank, outcome, calls)
                continue
            calls.keep(rank, outcome)
            if outcome.completed and outcome.reason and self.asynchronous:  # an event of it ends the run
                calls.ask_to_stop(outcome.reason)

    def _conclude(self, calls: TrainCalls) -> dict[int, Outcome]:
        """Let the agents of an asynchronous training evaluate what all of them have made.

        Gives those that have died since they did their steps, where the run is to go on.
        """
        self._servers.on_look = calls.end_stuck
        try:
            return self._concluded(calls)
        finally:
            self._servers.on_look = None

    def _concluded(self, calls: TrainCalls) -> dict[int, Outcome]:
        dead = self._wait_for(calls.over(), "end its rounds without gradients")
        if self.asynchronous or self._recovery.goes_on:
            dead |= self._all("drain", "end its pushes")
        if dead or not self.asynchronous:
            return dead
        self._servers.refresh()
        return self._all("conclude", "evaluate")

    def _all(self, method: str, what: str) -> dict[int, Outcome]:
        """Call this on every agent that is there; those that died, unless that ends the run."""
        present = self._members.present
        return self._wait_for({rank: getattr(self.agents[rank], method).remote() for rank in present}, what)

    def _wait_for(self, calls: dict[int, Any], what: str) -> dict[int, Outcome]:
        """Wait for calls of agents, by rank; those that died, unless that ends the run."""
        bound = self.experiment.timeout_seconds + CALL_SECONDS
        dead = self._last.of_agents({}, calls, what, bound, self._servers.wait)
        if dead and not self._recovery.goes_on:
            raise AgentError(next(iter(dead.values())))
        return {rank: Outcome("died", 0, reason) for rank, reason in dead.items()}

    def _kill(self, rank: int) -> None:
        self._actors.kill(self.agents[rank], self.places[rank])

    def _end_actor(self, rank: int) -> None:
        """End an agent's actor, whatever Ray knows of it; waits for nobody."""
        if (agent := self.agents[rank]) is not None:
            with suppress(RayError, ValueError):
                ray.kill(agent)

    def progress(self) -> Progress | None:
        """The step and state of the first agent; None if it does not say."""
        call = self._members.control(self._members.present[0], "progress").remote()
        done, _ = ray.wait([call], timeout=1.0)
        try:
            found: Progress | None = ray.get(done[0]) if done else None
        except DEATHS:
            return None
        return found

    # -- the end ---------------------------------------------------------------------------------------

    def _complete(self, verdict: str | None, verdicts: pa.Table | None) -> None:
        self._members.forget_dataset()
        if self._injector is not None:
            self._injector.mend()
        self._monitors.stop(CALL_SECONDS if self._outcome.status in OVER else END_SECONDS)
        if self._injector is not None:
            self._injector.moment("closing")
        try:
            received = self.aggregator.received()
        except StorageError:
            self.aggregator.close_without_rows(self._last_row(verdict, 0, None))
            raise
        sha256, failure = None, None
        self._note_absent(self._recovery.forming.coming, self.aggregator.note)
        try:
            if self._outcome.status in OVER:
                sha256 = self._tell_last(received)
            else:
                self._outcome = replace(self._outcome, step=steps_recorded(self.folder))
        except (D5Error, RayError) as error:
            self._outcome, failure = Outcome("failed", self._outcome.step, first_line(error)), error
            verdict = verdicts = None
        if self._injector is not None:
            self._injector.settle(faults_told(self.folder), self.aggregator.note)
        row = self._last_row(verdict, sum(received.values()), sha256)
        self.aggregator.close(row, VERDICTS.empty_table() if verdicts is None else verdicts)
        if failure is not None:
            raise failure

    def _tell_last(self, received: Mapping[tuple[str, int], int]) -> str | None:
        """Keep what agents and servers tell at last, and who died before; gives the parameters' hash.

        Raises where one died and that ends the run, and where rows are missing.
        """
        told = self._ask_last()
        if self._injector is not None:
            self.aggregator.note("parameters", -1, sha256=told.hashes)
            for unseen in self._members.ask(list(told.hashes), "unseen_faults").values():
                self._injector.missed |= unseen
            attempts = self._members.attempts
            alive = [f"agent {r}" for r in told.hashes if r not in told.dead and not attempts[r]]
            servers = [f"server {number}" for number in self._servers.never_died(told.loads)]
            self._injector.whole = {*alive, *servers}
        if self.asynchronous:
            bound = self.experiment.timeout_seconds
            when_there_is_room(lambda: keep_parameters(self.folder, told.parameters), bound)
        if self._outcome.completed:
            present = [rank for rank in self._members.present if rank not in told.dead]
            models = Models(self._plan, lambda: present, self._asked_last)
            self._keep_model(models, self.aggregator.note)
        told.note_servers(self.aggregator.note)
        lost = "nothing" if self.experiment.distributed_optimizer.one_model else "its parameters"
        for rank in self._members.present:
            name = f"TrainingAgent(rank={rank})"
            rows = received.get((name, self._members.attempts[rank]), 0)
            if rank in told.dead:
                self.aggregator.note("agent_died_at_end", rank, reason=told.dead[rank], rows=rows, lost=lost)
            elif rows != told.rows[rank]:
                raise StorageError(
                    f"{name} recorded {told.rows[rank]} rows, {rows} arrived: the run {self.run_id} is "
                    "incomplete"
                )
        return told.sha256

    def _ask_last(self) -> LastAnswers:
        """Ask all agents and servers; an error where one has died and that ends the run."""
        agents = {rank: self.agents[rank] for rank in self._members.present}
        told = LastAnswers.of(self._last, agents, self._servers.loads(), parameters=self.asynchronous)
        if self._outcome.completed:
            told.check(goes_on=self._recovery.goes_on)
        return told

    def _end(self) -> None:
        if self._injector is not None:
            self._injector.close()
        self.aggregator.end()
        interrupted = self._outcome.status == "interrupted"  # then Ray may have been, too
        try:
            self._actors.end(self.places, QUICKLY if interrupted else END_SECONDS)
        except RayLost:
            session.abandon() if interrupted else session.shutdown()
        self._coordinator.close()


def _models_of(agents: Mapping[int, Any], of_servers: bool, seconds: float) -> dict[int, ModelState]:
    """The models of these actors by rank, also while they train; seconds: for a step to end."""
    calls = _asking(agents, of_servers)
    return dict(zip(calls, get(list(calls.values()), seconds + CALL_SECONDS, "give its model"), strict=True))


def _asking(agents: Mapping[int, Any], of_servers: bool) -> dict[int, Any]:
    """References to the models of these actors, by rank."""
    return {
        rank: agent.model_state.options(concurrency_group="model").remote(of_servers=of_servers)
        for rank, agent in agents.items()
    }
