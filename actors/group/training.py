"""A run's agents as its user holds them: to train, to look at and to close, on Ray or simulated"""

import contextlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, final

import numpy as np
import pyarrow as pa

from d5ray.actors.group.models import Models
from d5ray.actors.group.progress_bar import Bar
from d5ray.actors.group.run_row import RunPlan, run_row
from d5ray.agent.building import BuiltSizes
from d5ray.agent.loop import Progress
from d5ray.agent.outcome import RUN_STATUS, Outcome, worst
from d5ray.archive.models import model_of
from d5ray.archive.unfinished import checkpoints_of
from d5ray.checks import check_count
from d5ray.distributed.checkpoints.checkpoint import Checkpoints
from d5ray.distributed.topologies.topology import drawn
from d5ray.errors import AgentError, ConfigurationError, D5Error, first_line
from d5ray.experiment import Experiment
from d5ray.failures.interrupts import held
from d5ray.failures.program_state import Apart, apart
from d5ray.failures.tracebacks import keep
from d5ray.failures.unforeseen import foreseen
from d5ray.metrics.record.artifacts import MODEL
from d5ray.metrics.record.files import when_there_is_room
from d5ray.metrics.record.model_state import ModelState, kept_model
from d5ray.metrics.record.reader import list_runs
from d5ray.training.batches.epochs import Epochs, Position
from d5ray.training.schedules import Schedule, never


class EndedEarly(KeyboardInterrupt):
    """Raised `beside` a training, ends it as Ctrl-C does; its words are why, for the run's row."""


class TrainingRun(ABC):
    """The agents of one run. A context manager: leaving it closes the group.

    run_id, folder: of the run's tables. communicator: the backend by which the agents exchange. built: what
    an agent made of the experiment. beside: called again and again while agents train, by whoever waits for
    them. startup_seconds: of what a start did, in order. apart: what a simulation has of the program's state.
    """

    agents: list[Any]
    built: BuiltSizes
    communicator: str
    startup_seconds: dict[str, float]
    beside: Callable[[], None] | None = None
    _models: Models
    closing_errors: ClassVar[tuple[type[Exception], ...]] = (D5Error,)

    def __init__(self, plan: RunPlan) -> None:
        self.experiment, self.run_id, self.folder = plan.experiment, plan.run_id, plan.folder
        self._plan = plan
        self.apart = Apart()
        assert plan.experiment.topology is not None
        self._graph = drawn(plan.experiment.topology)
        self._begun: float | None = None  # when the first training did
        self._started = plan.clock.now()
        self._outcome = Outcome("completed", 0)
        self._closed = False
        self._until: Position | None = None  # the end of the training under way, if it is of whole epochs
        self._resumed = 0  # the step of the checkpoint, until the training has gone on from it
        self._cut: Epochs | None = None  # the epochs, where a checkpoint knows them to be cut otherwise
        self._environment: Mapping[str, str] = {}
        self._cluster: Mapping[str, str | None] = {}  # ray_address and dashboard, if there is one

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.run_id}, agents={len(self.agents)})"

    @property
    def outcome(self) -> Outcome:
        """The outcome of the training so far."""
        return self._outcome

    @final
    @apart
    def train(self, steps: int | None = None, *, epochs: int | None = None, progress: bool = True) -> Outcome:
        """Let all agents do `steps` further steps, or `epochs` (default: the experiment's); wait for them.

        A run that was resumed goes on to the end of the experiment's epochs when it is first called so.
        Where agents become fewer or more, epochs end with their samples, after other steps than planned; of
        `steps` it does as many as it was told.
        Shows a progress bar on a terminal. A NaN loss ends the run with the outcome 'nan_loss'; an agent
        that dies or fails raises `AgentError`, after the others were stopped; Ctrl-C stops all and is
        raised again. What was measured until then is kept.
        """
        if self._closed or not self._outcome.completed:
            raise AgentError(f"{self!r} has ended ({self._outcome.status}): begin the experiment anew")
        self._until = None
        by_epochs = steps is None
        if steps is None:
            wanted = self.experiment.epochs if epochs is None else epochs
            check_count("epochs", wanted, 1)
            steps = self._epochs.after(self._outcome.step, wanted) - self._outcome.step
            if epochs is None:
                steps = self._left_of(steps)
                self._warn_of_changes_behind(self._outcome.step + steps)
                self._plan.faults.check_steps(self._outcome.step + steps)
        check_count("steps", steps, 1)
        first = self._outcome.step
        if by_epochs:
            self._until = self._epochs.at(first + steps)
        name = self._plan.origin.recipe or self.experiment.name
        with Bar(name, first, first + steps, show=progress) as bar:
            try:
                self._outcome = worst(self._train(first, first + steps, bar))
            except KeyboardInterrupt as error:
                if self._outcome.completed:
                    self._interrupted(first)
                if isinstance(error, EndedEarly):
                    self._outcome = replace(self._outcome, reason=str(error))
                raise
            except Exception as error:
                self._outcome = Outcome("failed", first, first_line(error))
                raise
        if self._outcome.status not in ("completed", "nan_loss"):
            raise AgentError(self._outcome.reason)
        return self._outcome

    @final
    @apart
    def resume(self, checkpoint: Checkpoints) -> None:
        """Go on from a checkpoint, before the first training."""
        self._cut = self._resume(checkpoint)
        self._outcome = Outcome("completed", checkpoint.step)
        self._resumed = checkpoint.step

    @abstractmethod
    def parameters(self, rank: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of the parameters of the agent with this rank, by name."""

    @final
    def state_dict(self, rank: int | str = 0) -> dict[str, Any]:
        """A copy of the model's tensors, parameters and buffers, by the model's own names and in its types.

        rank: of the agent whose model it is (in a mesh, of the replica, whose agents put theirs together);
        "agent": of the first that is there; "mean": of every tensor the mean over all agents, which is what
        decentralized rules approach; "servers": the parameters that parameter servers have, with the buffers
        of the first agent. A rule with one model has the same everywhere; see its `invariant`. When a
        training has ended, an agent's is the model that it has evaluated; while one goes on, as another
        thread may ask, the one after its last step. A group that is closed gives the one that it keeps.

        Tensors of PyTorch where the agents' executor is PyTorch's, otherwise arrays of NumPy. Raises
        `AgentError` for an agent that is not there, `ConfigurationError` for servers of a rule without.
        """
        return self.model_state(rank).state_dict()

    @final
    @apart
    def model(self, rank: int | str = 0) -> Any:
        """The trained model: the experiment's module with the tensors of `state_dict`, in evaluation mode.

        A `Network`, where the experiment's is one, or the executor runs nothing else.
        """
        return model_of(self.experiment, self.model_state(rank))

    @final
    @apart
    def model_state(self, rank: int | str = 0) -> ModelState:
        """The trained model as named tensors, which `write` keeps as a file; see `state_dict` for rank."""
        if self._closed:
            kept, which = kept_model(self.folder), self.experiment.recording.save_model
            if rank == which or kept.of in (f"agent {rank}", f"replica {rank}"):
                return kept
            raise AgentError(
                f"{self!r} is closed, and keeps the model of {kept.of}: ask for another one before"
            )
        return self._models.of(rank)

    @abstractmethod
    def resize(self, agents: int) -> None:
        """Let the run have this number of agents; see `d5ray.resize`."""

    @final
    def metrics(self) -> pa.Table:
        """The `samples` table: one row a measured value. Rows of finished calls of `train` are all there."""
        return self.tables()["samples"]

    @abstractmethod
    def tables(self) -> dict[str, pa.Table]:
        """All tables of the run, by name."""

    @abstractmethod
    def progress(self) -> Progress | None:
        """The step and state of the first agent; None if it does not say."""

    @property
    @abstractmethod
    def left(self) -> list[int]:
        """The ranks of the agents that are there."""

    @abstractmethod
    def deliver(self) -> None:
        """Bring into `tables` what agents have recorded by now; called `beside` a training."""

    @final
    @apart
    def close(self, *, verdict: str | None = None, verdicts: pa.Table | None = None) -> None:
        """End the agents and complete the run's folder; every row that an agent recorded must be in it."""
        if self._closed:
            return
        self._closed = True
        with held():
            try:
                self._complete(verdict, verdicts)
            finally:
                self._end()

    def __enter__(self) -> Self:
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
        if not foreseen(error):
            keep(error, self.folder)
        with contextlib.suppress(*self.closing_errors):  # the error under way matters more
            self.close()

    @property
    def _epochs(self) -> Epochs:
        """The epochs, as they are cut into steps by now."""
        return self.built.epochs if self._cut is None else self._cut

    @property
    def _shares_anew(self) -> bool:
        """True if an agent may have cut the epochs otherwise, by itself, since another one is gone."""
        experiment = self.experiment
        one_sided = experiment.distributed_optimizer.one_sided
        return one_sided and experiment.faults.orphans == "taken_over" and len(self.left) < len(self.agents)

    # -- what a kind of agents fills -------------------------------------------------------------------

    @abstractmethod
    def _resume(self, checkpoint: Checkpoints) -> Epochs:
        """Let all agents take over what was saved of them; the epochs, as they are cut from there on."""

    @abstractmethod
    def _train(self, first: int, last: int, bar: Bar) -> dict[int, Outcome]:
        """Let all agents go on from step `first` to `last`; how it ended for each.

        Ctrl-C is raised again, when all were stopped and `_interrupted` was called.
        """

    def _note_absent(self, coming: Iterable[int], note: Callable[..., None]) -> None:
        """Say in events which agents were to come, and had not when the run ended."""
        for rank in coming if self._outcome.completed else ():
            note("agent_did_not_come", rank, reason="the training ended while it started")

    def _keep_model(self, models: Models, note: Callable[..., None]) -> None:
        """Keep the trained model beside the run's tables, or say in an event why not."""
        which, most = self.experiment.recording.save_model, self.experiment.recording.save_model_bytes
        if which == "no":
            return
        try:
            if self.built.parameter_bytes > most:
                raise ConfigurationError(f"its parameters alone have {self.built.parameter_bytes:,} bytes")
            state = models.of(which)
            if state.nbytes > most:
                raise ConfigurationError(f"it has {state.nbytes:,} bytes")
            when_there_is_room(lambda: state.write(self.folder / MODEL), self.experiment.timeout_seconds)
        except D5Error as error:
            note("model_not_kept", -1, reason=first_line(error), save_model=which, save_model_bytes=most)

    @abstractmethod
    def _complete(self, verdict: str | None, verdicts: pa.Table | None) -> None:
        """Write what closes the run's folder."""

    @abstractmethod
    def _end(self) -> None:
        """End the agents."""

    # --------------------------------------------------------------------------------------------------

    def _left_of(self, steps: int) -> int:
        """The steps to do: these, or of a run that was resumed those to the experiment's end."""
        done, self._resumed = self._resumed, 0
        if not done:
            return steps
        end = self._epochs.begin(self.experiment.epochs)
        if self._outcome.step >= end:
            raise ConfigurationError(
                f"the checkpoint is of step {done}, the experiment ends after {end}: set more epochs, or "
                "say how many steps to train"
            )
        return end - self._outcome.step

    def _warn_of_changes_behind(self, end: int) -> None:
        """Say which planned changes of a hyperparameter a run of that many steps does not reach."""
        size, epochs = self.experiment.batch_size, self._epochs
        sizes = (size,) if isinstance(size, Schedule) else ()
        for schedule in (*self.experiment.optimizer.schedules, *sizes):
            if times := never(schedule, end, epochs.position(end - 1)[0] + 1):
                planned = f"{schedule.unit} {', '.join(map(str, times))}"
                steps = f"{end} steps" if sizes else f"{self.built.steps_per_epoch} steps"
                length = f"{self.experiment.epochs} epochs {'with' if sizes else 'of'} {steps}"
                warnings.warn(
                    f"{schedule!r} plans something at {planned}, but the run ends after "
                    f"{length}: it never happens",
                    stacklevel=4,
                )

    def _interrupted(self, step: int) -> None:
        self._outcome = Outcome("interrupted", step, "interrupted by the user")

    def _row(self, status: str) -> dict[str, Any]:
        """The run's row while it goes on."""
        return run_row(
            run_id=self.run_id,
            origin=self._plan.origin,
            job=self.experiment.describe(),
            seed=self.experiment.seed,
            status=status,
            started=self._started,
            agents=len(self.agents),
            environment=self._environment,
            graph=self._graph,
            experiment_sha256=self._plan.kept.sha256,
            **self._cluster,
        )

    def _last_row(self, verdict: str | None, rows: int, parameters_sha256: str | None) -> dict[str, Any]:
        """The run's row when it has ended, with that many rows of samples."""
        return self._row(RUN_STATUS.get(self._outcome.status, self._outcome.status)) | {
            "stop_reason": self._outcome.reason or None,
            "verdict": verdict,
            "ended": self._plan.clock.now(),
            "steps": self._outcome.step,
            "rows": rows,
            "parameters_sha256": parameters_sha256,
        }


def found_for(experiment: Experiment, path: str | Path, root: Path) -> Checkpoints:
    """The complete checkpoint that a path names; `ConfigurationError` if it is of another experiment.

    "last": that of the last run which wrote one.
    """
    runs = list_runs(root) if path == "last" else []
    written = (each for run in runs for each in reversed(checkpoints_of(run.name, run.folder, experiment)))
    found = next(written, None) or Checkpoints.find(path, root)
    found.check(experiment.describe())
    return found
