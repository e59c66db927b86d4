"""The driver's side of a run: waits for the agents, shows progress, notices failures, ends everything."""

import contextlib
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import ray
from ray.exceptions import RayActorError, RayTaskError

from d5ray.actors.calls import CALL_SECONDS, first_line, get
from d5ray.actors.coordinator import Place
from d5ray.actors.metrics_aggregator import MetricsAggregator
from d5ray.actors.progress import Bar
from d5ray.actors.run_row import RunOrigin, run_row
from d5ray.actors.session import Session
from d5ray.actors.training_agent import Built, Outcome
from d5ray.errors import AgentError, D5Error, StorageError
from d5ray.experiment import Experiment, check_whole
from d5ray.metrics.schema import VERDICTS, table_of
from d5ray.metrics.store import Run

STOP_SECONDS = 2.0  # for an agent to end its step after it was told to
RUN_STATUS = {"died": "failed", "peer_lost": "failed"}  # in the `runs` table, where an outcome has another
FAILURES = ("failed", "nan_loss", "died")  # of one agent; they end the run for all


class TrainingGroup:
    """The agents of one run. A context manager: leaving it closes the group.

    agents: Ray actor handles, by rank. run_id, folder: of the run's tables. communicator: the backend by
    which the agents exchange.
    """

    def __init__(
        self,
        *,
        experiment: Experiment,
        run_id: str,
        root: Path,
        agents: list[Any],
        aggregator: Any,
        places: list[Place],
        built: list[Built],
        communicator: str,
        session: Session,
        origin: RunOrigin,
        startup_seconds: dict[str, float],
        release: Callable[[], None],
    ) -> None:
        self.experiment = experiment
        self.run_id = run_id
        self.folder = root / run_id
        self.agents = agents
        self.aggregator = aggregator
        self.places = places
        self.built = built[0]
        self.communicator = communicator
        self.session = session
        self.startup_seconds = startup_seconds
        self._origin = origin
        self._release = release
        self._started = datetime.now(UTC)
        self._outcome = Outcome("completed", 0)
        self._closed = False

    def __repr__(self) -> str:
        return f"TrainingGroup({self.run_id}, agents={len(self.agents)})"

    @property
    def outcome(self) -> Outcome:
        """How the training ended so far."""
        return self._outcome

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

    def train(self, steps: int | None = None, *, epochs: int | None = None, progress: bool = True) -> Outcome:
        """Let all agents do `steps` further steps, or `epochs` (default: the experiment's); wait for them.

        Shows a progress bar on a terminal. A NaN loss ends the run with the outcome 'nan_loss'; an agent
        that dies or fails raises `AgentError`, after the others were stopped; Ctrl-C stops all and is
        raised again. What was measured until then is kept.
        """
        if self._closed or not self._outcome.completed:
            raise AgentError(f"{self!r} has ended ({self._outcome.status}): launch the experiment again")
        if steps is None:
            wanted = self.experiment.epochs if epochs is None else epochs
            check_whole("epochs", wanted, 1)
            steps = wanted * self.built.steps_per_epoch
        check_whole("steps", steps, 1)
        first = self._outcome.step
        pending = {agent.train.remote(steps): rank for rank, agent in enumerate(self.agents)}
        outcomes: dict[int, Outcome] = {}
        try:
            with Bar(self._origin.recipe or self.experiment.name, first, first + steps, show=progress) as bar:
                while pending:
                    done, _ = ray.wait(list(pending), num_returns=1, timeout=bar.interval)
                    for reference in done:
                        rank = pending.pop(reference)
                        outcomes[rank] = self._result(reference, rank)
                    if any(not outcome.completed for outcome in outcomes.values()):
                        self._stop(pending, outcomes)
                    elif bar.visible:
                        bar.update(self._watch())
        except KeyboardInterrupt:
            self._stop(pending, outcomes)
            # Ctrl-C may come before any agent's outcome is known, and an agent given up says step 0.
            done_steps = max((outcome.step for outcome in outcomes.values()), default=0)
            self._outcome = Outcome("interrupted", max(first, done_steps), "interrupted by the user")
            raise
        self._outcome = _worst(outcomes)
        if self._outcome.status not in ("completed", "nan_loss"):
            raise AgentError(self._outcome.reason)
        return self._outcome

    def parameters(self, rank: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of the parameters of the agent with this rank, by name."""
        named: dict[str, np.ndarray[Any, Any]] = get(
            [self.agents[rank].parameters.remote()], CALL_SECONDS, "give its parameters"
        )[0]
        return named

    def metrics(self) -> pa.Table:
        """The `samples` table: one row a measured value. Rows of finished calls of `train` are all there."""
        return self.tables()["samples"]

    def tables(self) -> dict[str, pa.Table]:
        """All tables of the run, by name."""
        if self._closed:
            return Run(self.folder).tables()
        tables: dict[str, pa.Table] = get([self.aggregator.tables.remote()], CALL_SECONDS, "give its tables")[
            0
        ]
        return tables

    def close(self, *, verdict: str | None = None, verdicts: pa.Table | None = None) -> None:
        """End the actors and complete the run's folder; every row that an agent recorded must be in it."""
        if self._closed:
            return
        self._closed = True
        try:
            self._complete(verdict, verdicts)
        finally:
            self._release()

    def __enter__(self) -> "TrainingGroup":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        if self._outcome.completed:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            self._outcome = Outcome(status, self._outcome.step, first_line(error))
        with contextlib.suppress(D5Error, RayActorError):  # the error under way matters more
            self.close()

    # ------------------------------------------------------------------------------------------------

    def _result(self, reference: Any, rank: int) -> Outcome:
        try:
            outcome: Outcome = ray.get(reference)
        except RayActorError as error:
            reason = (
                f"TrainingAgent(rank={rank}) died ({first_line(error)}), so the others were stopped; what "
                f"was measured until then is kept: d5ray show {self.run_id}"
            )
            return Outcome("died", 0, reason)
        except RayTaskError as error:
            return Outcome("failed", 0, f"TrainingAgent(rank={rank}) failed: {error}")
        if outcome.status == "failed":
            reason = f"TrainingAgent(rank={rank}) failed at step {outcome.step}: {outcome.reason}"
            return Outcome("failed", outcome.step, reason)
        return outcome

    def _stop(self, pending: dict[Any, int], outcomes: dict[int, Outcome]) -> None:
        """Stop the agents that still train; one that does not end its step in time is given up."""
        for rank in pending.values():
            with contextlib.suppress(RayActorError):
                self.agents[rank].stop.options(concurrency_group="control").remote()
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
        reference = self.agents[0].progress.options(concurrency_group="control").remote()
        done, _ = ray.wait([reference], timeout=1.0)
        with contextlib.suppress(RayActorError):
            return ray.get(done[0]) if done else None
        return None

    def _complete(self, verdict: str | None, verdicts: pa.Table | None) -> None:
        recorded = self._recorded() if self._outcome.status in ("completed", "nan_loss") else {}
        received = self._received()
        row = self._row(RUN_STATUS.get(self._outcome.status, self._outcome.status))
        row |= {
            "stop_reason": self._outcome.reason or None,
            "verdict": verdict,
            "ended": datetime.now(UTC),
            "steps": self._outcome.step,
            "rows": sum(received.values()),
            "parameters_sha256": recorded[0][1] if recorded else None,
        }
        if verdicts is None:
            verdicts = VERDICTS.empty_table()
        if isinstance(self.aggregator, MetricsAggregator):
            self.aggregator.close(row, verdicts)
        else:
            get([self.aggregator.close.remote(row, verdicts)], CALL_SECONDS, "complete the run")
        for rank, (rows, _) in recorded.items():
            found = received.get((f"TrainingAgent(rank={rank})", 0), 0)
            if found != rows:
                raise StorageError(
                    f"TrainingAgent(rank={rank}) recorded {rows} rows, {found} arrived: the run "
                    f"{self.run_id} is incomplete"
                )

    def _received(self) -> dict[tuple[str, int], int]:
        """Rows received of each agent; an aggregator that died is replaced by one in this process."""
        try:
            received: dict[tuple[str, int], int] = get(
                [self.aggregator.received.remote()], CALL_SECONDS, "count its rows"
            )[0]
        except AgentError:
            self.aggregator = MetricsAggregator(str(self.folder.parent), self.run_id)
            self.aggregator.resume(self._row("running"))
            received = self.aggregator.received()
        return received

    def _recorded(self) -> dict[int, tuple[int, str]]:
        """For each agent the rows it recorded and the hash of its parameters."""
        calls = [
            call for agent in self.agents for call in (agent.rows.remote(), agent.parameters_sha256.remote())
        ]
        answers = get(calls, CALL_SECONDS, "give its row count")
        return {rank: (answers[2 * rank], answers[2 * rank + 1]) for rank in range(len(self.agents))}

    def _row(self, status: str) -> dict[str, Any]:
        return run_row(
            run_id=self.run_id,
            origin=self._origin,
            job=self.experiment.describe(),
            seed=self.experiment.seed,
            status=status,
            started=self._started,
            session=self.session,
            agents=len(self.agents),
            environment=self._environment,
        )


def _worst(outcomes: dict[int, Outcome]) -> Outcome:
    """What ended the run: an agent's own failure rather than that its peers lost it."""
    for status in (*FAILURES, "peer_lost", "stopped"):
        for outcome in outcomes.values():
            if outcome.status == status:
                step = max(other.step for other in outcomes.values())
                return Outcome(status, outcome.step or step, outcome.reason)
    return outcomes[0]
