"""The driver's side of a run: waits for the agents, shows progress, notices failures, ends everything."""

import contextlib
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayError, RayTaskError

from d5ray.actors.calls import CALL_SECONDS, cause_of, get, owned
from d5ray.actors.group.coordinator import Place
from d5ray.actors.group.progress_bar import Bar
from d5ray.actors.group.recovery import AgentDied, Recovery
from d5ray.actors.group.run_row import RunOrigin
from d5ray.actors.group.training import Training
from d5ray.actors.metrics.aggregator import MetricsAggregator
from d5ray.actors.metrics.node_monitors import Monitors
from d5ray.actors.metrics.running import CONTROL
from d5ray.actors.session import session
from d5ray.actors.session.session import Session
from d5ray.agent.building import BuiltSizes
from d5ray.agent.outcome import FAILURES, Outcome
from d5ray.agent.training_agent import TrainingAgent
from d5ray.archive.experiments import ArchiveFiles
from d5ray.distributed.checkpoints.checkpoint import Checkpoints
from d5ray.distributed.mesh.assignments import Shares
from d5ray.errors import AgentError, D5Error, RayLost, StorageError, first_line
from d5ray.experiment import Experiment
from d5ray.metrics.record.artifacts import keep_parameters
from d5ray.metrics.record.schema import VERDICTS, table_of
from d5ray.metrics.record.store import Run, RunWriter

LOSS_SECONDS = 30.0  # in which all have noticed that another agent of their group is gone
MOST_RECOVERIES = 20  # of one run
LOOK_SECONDS = 0.1  # between two looks where the agents are, if they may have to be started again
STOP_SECONDS = 2.0  # for an agent to end its step after it was told to


class TrainingGroup(Training):
    """The agents of one run on Ray.

    agents: actor handles, by rank; None: it comes late.
    """

    agents: list[ActorHandle[TrainingAgent]]
    closing_errors = (D5Error, RayError)

    def __init__(
        self,
        *,
        experiment: Experiment,
        run_id: str,
        root: Path,
        agents: list[ActorHandle[TrainingAgent]],
        aggregator: Any,
        places: list[Place],
        built: list[BuiltSizes],
        communicator: str,
        session: Session,
        origin: RunOrigin,
        startup_seconds: dict[str, float],
        release: Callable[[], None],
        recovery: Recovery,
        monitors: Monitors,
        kept: ArchiveFiles,
        shares: Shares | None = None,
    ) -> None:
        super().__init__(experiment, run_id, root, origin, kept)
        self.agents = agents
        self.aggregator = aggregator
        self.places = places
        self.built = built[0]
        self.communicator = communicator
        self.session = session
        self.startup_seconds = startup_seconds
        self.flight: dict[str, str] | None = None  # location and token, while the run is served
        self._cluster = {"ray_address": session.address, "dashboard": session.dashboard}
        self._release = release
        self._recovery = recovery
        self._monitors = monitors
        self._shares = shares
        self._recoveries = 0
        self._late = list(experiment.late_agents.values())
        self._steps: dict[int, int] = {}  # done by each agent, when it was asked last
        self._asked: dict[int, Any] = {}  # references to what they will say

    @property
    def asynchronous(self) -> bool:
        """True if the agents do not wait for each other; the run then keeps its schedule."""
        return self.experiment.distributed_optimizer.asynchronous

    # -- a run -----------------------------------------------------------------------------------------

    def open(self, environments: dict[str, dict[str, str]]) -> None:
        """Begin the run's folder. environments: keys and values of every node, by host name."""
        here = environments[platform.node()]
        self._environment = here
        rows = [
            {"run_id": self.run_id, "node": node, "key": key, "value": value}
            for node, facts in environments.items()
            for key, value in facts.items()
        ]
        call = self.aggregator.open.remote(self._row("running"), table_of("environment", rows))
        get([call], CALL_SECONDS, "open the run")
        self._kept.keep(self.folder)

    def serve(self, bind: str) -> None:
        """Let the aggregator answer queries by Arrow Flight at PORT or HOST:PORT; see `flight`."""
        call = self.aggregator.serve.options(concurrency_group=CONTROL).remote(bind)
        self.flight = get([call], CALL_SECONDS, "serve queries")[0]

    def parameters(self, rank: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of the parameters of the agent with this rank, by name."""
        if rank not in self._recovery.left:
            raise AgentError(f"TrainingAgent(rank={rank}) is not there: it has died, or not come yet")
        named: dict[str, np.ndarray[Any, Any]] = get(
            [self.agents[rank].parameters.remote()], CALL_SECONDS, "give its parameters"
        )[0]
        return owned(named)

    def network_parameters(self, replica: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of the parameters of a replica's whole network, by name: those of its agents together."""
        if self._shares is None:
            return self.parameters(replica)
        calls = [agent.parameters.remote() for agent in self.agents]
        return owned(self._shares.whole(get(calls, CALL_SECONDS, "give its parameters"), replica))

    def tables(self) -> dict[str, pa.Table]:
        """All tables of the run, by name."""
        if self._closed:
            return Run(self.folder).tables()
        tables: dict[str, pa.Table] = get([self.aggregator.tables.remote()], CALL_SECONDS, "give its tables")[
            0
        ]
        return tables

    # --------------------------------------------------------------------------------------------------

    def _resume(self, checkpoint: Checkpoints) -> None:
        calls = [agent.resume.remote(checkpoint.path, checkpoint.step) for agent in self.agents]
        get(calls, self.experiment.timeout_seconds + CALL_SECONDS, "take over its checkpoint")

    def _train(self, first: int, last: int, bar: Bar) -> dict[int, Outcome]:
        left = self._recovery.left
        self._recovery.wake()
        if self._recovery.restorable is not None:
            self._recovery.restorable.keep()
        self._monitors.phase("train")
        pending = {self.agents[rank].train.remote(last - first): rank for rank in left}
        self._begun = self._begun or time.monotonic()
        outcomes: dict[int, Outcome] = {}
        try:
            while pending:
                self._let_come(pending, last)
                for rank, outcome in self._news(pending, bar.interval):
                    if outcome.status == "died" and self.experiment.on_failure != "stop":
                        self._recover(rank, outcome.reason, last, pending, outcomes)
                    else:
                        outcomes[rank] = outcome
                        if outcome.completed:
                            self._steps[rank] = outcome.step
                            self._recovery.rest(rank)
                            if outcome.reason and self.asynchronous:
                                self._end_early(pending, outcome.reason)
                if any(not outcome.completed for outcome in outcomes.values()):
                    self._stop(pending, outcomes)
                elif bar.visible:
                    bar.update(self._watch())
                if not pending and all(outcome.completed for outcome in outcomes.values()):
                    for rank, died in self._conclude().items():
                        outcomes.pop(rank, None)
                        self._recover(rank, died.reason, last, pending, outcomes)
        except KeyboardInterrupt:
            self._stop(pending, outcomes)
            # Ctrl-C may come before any agent's outcome is known, and an agent given up says step 0.
            done_steps = max((outcome.step for outcome in outcomes.values()), default=0)
            self._interrupted(max(first, done_steps))
            raise
        finally:
            self._monitors.phase("run")
        for outcome in outcomes.values():
            if outcome.status in (*FAILURES, "peer_lost"):
                self._recovery.coordinator.failed(outcome.status)
        return outcomes

    def _news(self, pending: dict[Any, int], seconds: float) -> list[tuple[int, Outcome]]:
        """The outcomes that have come, by rank; servers that died are started anew, or end the run."""
        servers = self._recovery.servers
        watched = {} if servers is None else servers.watching
        if self._recovery.restorable is not None:
            self._recovery.restorable.snapshot()
        if self.experiment.on_failure == "restart":
            seconds = LOOK_SECONDS
            self._look()
        done, _ = ray.wait([*pending, *watched], num_returns=1, timeout=seconds)
        session.check_alive()
        news = []
        for reference in done:
            if reference in pending:
                rank = pending.pop(reference)
                news.append((rank, self._result(reference, rank)))
            else:
                self._server_died(watched[reference])
        return news

    def _let_come(self, pending: dict[Any, int], last: int) -> None:
        """Start the agents that are to join by now; they go on up to step `last`."""
        assert self._begun is not None
        passed = time.monotonic() - self._begun
        for late in [late for late in self._late if late.seconds <= passed]:
            self._late.remove(late)
            step = self._steps[late.agent] = min(last, self._recovery.furthest())
            try:
                self._recovery.let_come(late.agent, step)
            except AgentDied as died:
                if self.experiment.on_failure == "stop":
                    raise AgentError(f"TrainingAgent(rank={late.agent}) came late: {died}") from None
                self._recover(late.agent, str(died), last, pending, {})
            else:
                if step < last:
                    pending[self.agents[late.agent].train.remote(last - step)] = late.agent

    def _server_died(self, number: int) -> None:
        assert self._recovery.servers is not None
        name = self._recovery.servers.name(number)
        self._recovery.coordinator.failed("server_died")
        if self.experiment.on_failure == "stop":
            raise AgentError(
                f"{name} died, so the agents were stopped; what was measured until then is kept: "
                f"d5ray show {self.run_id}"
            )
        self._count_recovery(name)
        self._note("server_died", -1, server=name)
        self._recovery.restore(number)
        self._note("server_restored", -1, server=name)

    def _recover(
        self,
        rank: int,
        reason: str,
        last: int,
        pending: dict[Any, int],
        outcomes: dict[int, Outcome],
    ) -> None:
        """An agent died; go on up to step `last` as the experiment's policy says."""
        self._note_death(rank, reason)
        if not self._recovery.alone:
            self._form_again(rank, last, pending, outcomes)
        elif self.experiment.on_failure == "continue":
            self._recovery.drop(rank)
        else:
            self._replace(rank, last, pending)

    def _replace(self, rank: int, last: int, pending: dict[Any, int]) -> None:
        """Start an agent again whose peers go on meanwhile."""
        step = min(last, self._steps.get(rank, 0))
        again = None
        try:
            self._recovery.replace(rank, step)
        except AgentDied as died:
            again = str(died)
        self._note("agent_restarted", rank, step=step)
        if again is None:
            pending[self.agents[rank].train.remote(last - step)] = rank
            return
        self._note_death(rank, again)
        self._replace(rank, last, pending)

    def _form_again(
        self, rank: int, last: int, pending: dict[Any, int], outcomes: dict[int, Outcome]
    ) -> None:
        """Let all exchange again after this one's death; others may die until they do."""
        survivors, dying = self._gather(rank, pending, outcomes)
        named = dying
        while dying:
            if not survivors:
                raise AgentError(
                    f"TrainingAgent(rank={named[-1]}) died, the last one: no agent is left to go on"
                )
            formed = self._recovery.form_again(dying)
            for other, reason in formed.died.items():
                self._note_death(other, reason)
                survivors.discard(other)
            dying = list(formed.died)
            named = named + dying
        name = "agent_restarted" if self.experiment.on_failure == "restart" else "group_formed_again"
        for other in named:
            self._note(name, other, step=formed.step, group=formed.group)
        self._note(
            "agreed", -1, step=formed.step, **formed.describe(self.experiment.distributed_optimizer.one_model)
        )
        for other in self._recovery.left:
            pending[self.agents[other].train.remote(last - formed.step)] = other

    def _gather(
        self, rank: int, pending: dict[Any, int], outcomes: dict[int, Outcome]
    ) -> tuple[set[int], list[int]]:
        """Wait for those that lost the agent with this rank; who they are, and the dead."""
        done, late = (
            ray.wait(list(pending), num_returns=len(pending), timeout=LOSS_SECONDS) if pending else ([], [])
        )
        for reference in late:
            raise AgentError(
                f"TrainingAgent(rank={pending[reference]}) did not notice within {LOSS_SECONDS:g} s that "
                f"TrainingAgent(rank={rank}) died"
            )
        found = outcomes | {
            pending[reference]: self._result(reference, pending[reference]) for reference in done
        }
        pending.clear()
        outcomes.clear()
        dead = [rank]
        for other, outcome in found.items():
            if outcome.status == "died":
                self._note_death(other, outcome.reason)
                dead.append(other)
            elif outcome.status not in ("peer_lost", "completed"):
                raise AgentError(outcome.reason)
        return found.keys() - set(dead), dead

    def _look(self) -> None:
        """Ask all agents where they are, without waiting: one of them may have to be started again there."""
        for rank in self._recovery.left:
            asked = self._asked.get(rank)
            if asked is not None and ray.wait([asked], timeout=0)[0]:
                with contextlib.suppress(RayActorError):
                    self._steps[rank] = ray.get(asked).step
                asked = None
            if asked is None:
                call = self.agents[rank].progress.options(concurrency_group="control")
                self._asked[rank] = call.remote()

    def _note_death(self, rank: int, reason: str) -> None:
        self._recovery.coordinator.failed("died")
        self._count_recovery(f"TrainingAgent(rank={rank})")
        self._note("agent_died", rank, reason=reason)

    def _count_recovery(self, name: str) -> None:
        self._recoveries += 1
        if self._recoveries > MOST_RECOVERIES:
            raise AgentError(
                f"{name} died, as others did {MOST_RECOVERIES} times before in this run: look at the actors' "
                "logs in the Ray dashboard"
            )

    def _note(self, name: str, rank: int, **detail: object) -> None:
        """Keep an event of the run as a whole."""
        call = self.aggregator.append_events.remote(self._event(name, rank, **detail))
        get([call], CALL_SECONDS, "keep an event")

    def _event(self, name: str, rank: int, **detail: object) -> pa.RecordBatch:
        now = time.perf_counter_ns()
        row = {
            "run_id": self.run_id, "agent": "driver", "rank": rank, "name": name, "t_wall": time.time_ns(),
            "t_mono": now, "detail": json.dumps(detail),
        }  # fmt: skip
        return table_of("events", [row]).combine_chunks().to_batches()[0]

    def _result(self, reference: Any, rank: int) -> Outcome:
        try:
            outcome: Outcome = ray.get(reference)
        except RayActorError as error:
            reason = f"TrainingAgent(rank={rank}) died ({first_line(error)})"
            if self.experiment.on_failure == "stop":
                reason += (
                    ", so the others were stopped; what was measured until then is kept: "
                    f"d5ray show {self.run_id}"
                )
            return Outcome("died", 0, reason)
        except RayTaskError as error:
            return Outcome("failed", 0, f"TrainingAgent(rank={rank}) failed: {cause_of(error)}")
        if outcome.status == "failed":
            reason = f"TrainingAgent(rank={rank}) failed at step {outcome.step}: {outcome.reason}"
            return Outcome("failed", outcome.step, reason)
        return outcome

    def _conclude(self) -> dict[int, Outcome]:
        """Let the agents of an asynchronous training evaluate what all of them have made.

        Gives those that have died since they did their steps, where the run is to go on.
        """
        died = self._wait_for(self._recovery.over(), "end its rounds without gradients")
        if self.asynchronous or self.experiment.on_failure != "stop":
            died |= self._all("drain", "end its pushes")
        if died:
            return died
        if not self.asynchronous:
            return {}
        if self._recovery.servers is not None:
            self._recovery.servers.refresh()
        return self._all("conclude", "evaluate")

    def _all(self, method: str, what: str) -> dict[int, Outcome]:
        """Call this on every agent that is there; those that died, unless that ends the run."""
        left = self._recovery.left
        return self._wait_for({rank: getattr(self.agents[rank], method).remote() for rank in left}, what)

    def _wait_for(self, calls: dict[int, Any], what: str) -> dict[int, Outcome]:
        """Wait for calls of agents, by rank; those that died, unless that ends the run."""
        if not calls:
            return {}
        bound = self.experiment.timeout_seconds + CALL_SECONDS
        if self.experiment.on_failure == "stop":
            get(list(calls.values()), bound, what)
            return {}
        ray.wait(list(calls.values()), num_returns=len(calls), timeout=bound)
        died = {}
        for rank, call in calls.items():
            try:
                ray.get(call, timeout=0)
            except RayActorError as error:
                died[rank] = Outcome("died", 0, f"TrainingAgent(rank={rank}) died ({first_line(error)})")
            except RayError:
                get([call], CALL_SECONDS, what)  # raises what people can read
        return died

    def _end_early(self, pending: dict[Any, int], reason: str) -> None:
        """An event of one agent has ended the training of agents that do not wait for each other."""
        for rank in pending.values():
            with contextlib.suppress(RayActorError):
                self.agents[rank].stop.options(concurrency_group="control").remote(reason)

    def _stop(self, pending: dict[Any, int], outcomes: dict[int, Outcome]) -> None:
        """Stop the agents that still train; one that does not end its step in time is given up."""
        for rank in pending.values():
            with contextlib.suppress(RayActorError):
                self.agents[rank].stop.options(concurrency_group="control").remote()
        self._recovery.over()
        done, late = (
            ray.wait(list(pending), num_returns=len(pending), timeout=STOP_SECONDS) if pending else ([], [])
        )
        for reference in done:
            outcomes[pending[reference]] = self._result(reference, pending[reference])
        for reference in late:
            rank = pending[reference]
            outcomes[rank] = Outcome("stopped", 0, f"TrainingAgent(rank={rank}) did not end its step")
        pending.clear()

    def _watch(self) -> Any:
        reference = self.agents[self._recovery.left[0]].progress.options(concurrency_group="control").remote()
        done, _ = ray.wait([reference], timeout=1.0)
        with contextlib.suppress(RayActorError):
            return ray.get(done[0]) if done else None
        return None

    def _complete(self, verdict: str | None, verdicts: pa.Table | None) -> None:
        self._monitors.stop()
        recorded = self._recorded() if self._outcome.status in ("completed", "nan_loss") else {}
        if recorded and self.asynchronous:
            left = self._recovery.left
            calls = [self.agents[rank].flat_parameters.remote() for rank in left]
            kept = dict(zip(left, get(calls, CALL_SECONDS, "give its parameters"), strict=True))
            keep_parameters(self.folder, kept)
        if recorded and self._recovery.servers is not None:
            for name, load in self._recovery.servers.loads().items():
                self._note("load", -1, server=name, **load)
        try:
            received = self._received()
        except StorageError:
            self._end_without_rows(verdict)
            raise
        sha256 = recorded[min(recorded)][1] if recorded else None
        row = self._last_row(verdict, sum(received.values()), sha256)
        if verdicts is None:
            verdicts = VERDICTS.empty_table()
        if isinstance(self.aggregator, MetricsAggregator):
            self.aggregator.close(row, verdicts)
        else:
            get([self.aggregator.close.remote(row, verdicts)], CALL_SECONDS, "complete the run")
        for rank, (rows, _) in recorded.items():
            found = received.get((f"TrainingAgent(rank={rank})", self._recovery.attempts[rank]), 0)
            if found != rows:
                raise StorageError(
                    f"TrainingAgent(rank={rank}) recorded {rows} rows, {found} arrived: the run "
                    f"{self.run_id} is incomplete"
                )

    def _end_without_rows(self, verdict: str | None) -> None:
        """Write how the run ended where its rows cannot be taken over, since another process holds them."""
        row = self._last_row(verdict, 0, None)
        del row["rows"]  # nobody has counted them
        RunWriter(self.folder.parent, self.run_id).update_run(**row)

    def _end(self) -> None:
        self._release()

    def _received(self) -> dict[tuple[str, int], int]:
        """Rows received of each agent; an aggregator that died is replaced by one in this process."""
        try:
            session.check_alive()  # actors may answer for some time after the head's end, but not to the last
            received: dict[tuple[str, int], int] = get(
                [self.aggregator.received.remote()], CALL_SECONDS, "count its rows"
            )[0]
        except (AgentError, RayLost) as error:
            if session.lost():
                session.end_processes()  # the aggregator's too, which holds the files
            self.aggregator = MetricsAggregator(str(self.folder.parent), self.run_id)
            self.aggregator.resume(self._row("running"))
            if session.lost():
                self.aggregator.append_events(self._event("ray_lost", -1, reason=first_line(error)))
            received = self.aggregator.received()
        return received

    def _recorded(self) -> dict[int, tuple[int, str]]:
        """The rows that each agent recorded, and the hash of its parameters."""
        left = self._recovery.left
        calls = [
            call
            for rank in left
            for call in (self.agents[rank].rows.remote(), self.agents[rank].parameters_sha256.remote())
        ]
        answers = get(calls, CALL_SECONDS, "give its row count")
        return {rank: (answers[2 * at], answers[2 * at + 1]) for at, rank in enumerate(left)}
