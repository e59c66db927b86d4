"""Moment: the argument of an event's hooks: the state of its agent, and requests to it"""

from collections.abc import Callable
from typing import Any, Protocol, final

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.executor import Evaluation, Executor
from d5ray.training.batches.batch import Batch
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.samples import Samples
from d5ray.training.transformations.transformation import Transformation


class RunStorage(Protocol):
    """The place where an agent's rows, events, files and checkpoints go."""

    def record(self, metric: str, value: float | None, unit: str, step: int, epoch: int, phase: str) -> None:
        """Record a value of a metric at a step, for this agent."""

    def note(self, name: str, moment: "Moment", detail: dict[str, Any]) -> None:
        """Record an event by name at the moment's step, with its details."""

    def keep(self, name: str, data: bytes) -> None:
        """Keep these bytes in the run's folder under this name."""

    def checkpoint(self, path: str | None, keep: int) -> None:
        """Write a checkpoint into this folder, by default the run's own, and keep only the last few."""


@final
class Moment:
    """The argument of a hook: one object per agent, whose values change during the training.

    rank, agents     the number of this agent, and of all agents
    seed             of the run
    step             steps done since the beginning of the run; within a step, its number from 0
    epoch            the current epoch, or the one just completed, from 0
    steps_per_epoch  of this run
    batch            this agent's share of the step, from after_sampling to after_step; after_sampling may
                     replace it
    loss             of the last step, on this agent's samples; NaN without samples
    evaluation       the last one; None before the first
    split            of the last or the current evaluation: 'validation' if there is such a split, and 'test'
                     at the end of the training; otherwise always 'test'
    completed        in after_run: whether the training has completed without a failure
    executor         the network: parameters, gradients, slots, inference
    dataset          the data set
    transformations  of each batch
    precision        of training passes, that of the experiment
    """

    def __init__(
        self,
        *,
        rank: int,
        agents: int,
        seed: int,
        steps_per_epoch: int,
        executor: Executor,
        dataset: Dataset,
        transformations: tuple[Transformation, ...],
        keeper: RunStorage,
        now: Callable[[], int],
        stops: bool,
        precision: str = "float32",
    ) -> None:
        self.rank = rank
        self.agents = agents
        self.seed = seed
        self.steps_per_epoch = steps_per_epoch
        self.executor = executor
        self.dataset = dataset
        self.transformations = transformations
        self.step = 0
        self.epoch = 0
        self.batch: Batch | None = None
        self.loss = float("nan")
        self.evaluation: Evaluation | None = None
        self.split = "test"
        self.completed = False
        self.stop_reason = ""
        self._keeper = keeper
        self._now = now
        self.precision = precision
        self._stops = stops
        self._begun: int | None = None
        self._before = 0  # ns of training in calls that are over

    @property
    def evaluated(self) -> Samples:
        """The samples of the current or the last evaluation."""
        return self.dataset.splits[self.split]

    @property
    def looks_ahead(self) -> bool:
        """True if the training may be changed by this evaluation: it is not the one on the test split beside
        another to validate on."""
        return self.split == "validation" or self.dataset.validation is None

    @property
    def elapsed_seconds(self) -> float:
        """The training time of this agent, including evaluations, over all calls of `train`."""
        running = 0 if self._begun is None else self._now() - self._begun
        return (self._before + running) * 1e-9

    def stop(self, reason: str) -> None:
        """Request the end of the training: for all agents after the same step, at most ten steps later.

        Under asynchronous optimizers each agent ends as soon as it learns of it. The run is complete, with
        this as its `stop_reason`.
        """
        if not self._stops:
            raise ConfigurationError(
                "an event called moment.stop, but none of the experiment's events says that it does: "
                "write `stops = True` in its class"
            )
        self.stop_reason = self.stop_reason or reason

    def record(
        self,
        metric: str,
        value: float | None,
        unit: str = "1",
        *,
        phase: str = "event",
        step: int | None = None,
    ) -> None:
        """Record a row of `samples`; unit: in SI (s, B, J, W, 1); step: by default that of the training.

        Raises `ConfigurationError` for a name of d5ray's own metrics, and for what is not one number.
        """
        self._keeper.record(metric, value, unit, self.step if step is None else step, self.epoch, phase)

    def note(self, name: str, **detail: Any) -> None:
        """Add a row to the table `events`."""
        self._keeper.note(name, self, detail)

    def keep(self, name: str, data: bytes) -> None:
        """Store a file of this name in the run's folder; an existing file is replaced."""
        self._keeper.keep(name, data)

    def checkpoint(self, path: str | None = None, keep: int = 1) -> None:
        """Save everything needed to resume from here, see `Checkpoint`; all agents call it at one step."""
        self._keeper.checkpoint(path, keep)

    # -- for the trainer -------------------------------------------------------------------------------

    def begin(self) -> None:
        """A call of `train` begins."""
        self._begun = self._now()
        self.completed = False
        self.stop_reason = ""

    def end(self) -> None:
        """Stop the clock: the call of `train` is over."""
        if self._begun is not None:
            self._before += self._now() - self._begun
            self._begun = None

    def continued(self, elapsed_seconds: float) -> None:
        """The training goes on that took so long before."""
        self._before = round(elapsed_seconds * 1e9)
