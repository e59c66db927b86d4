"""Moment: everything that an event sees of its agent at a hook point, and may do there"""

from collections.abc import Callable
from typing import Any, Protocol, final

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.executor import Evaluation, Executor
from d5ray.training.batches.batch import Batch
from d5ray.training.datasets import Dataset, Samples
from d5ray.training.transformations import Transformation


class Keeper(Protocol):
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
    """The moment of a hook: one object an agent, whose values change as the training goes on.

    rank, agents     which agent this is, of how many
    seed             of the run
    step             steps done since the beginning of the run; within a step, its number from 0
    epoch            the epoch under way, or just over, from 0
    steps_per_epoch  of this run
    batch            this agent's share of the step, from after_sampling to after_step; in after_sampling
                     another one may be put in its place
    loss             of the last step, on this agent's samples; NaN where it had none
    evaluation       the last one; None before the first
    split            which samples that was on, or is on that is under way: 'validation' where there are such,
                     and 'test' at the end of the training; else always 'test'
    completed        in after_run: whether the training came to its end, and nothing failed
    executor         the network: parameters, gradients, slots, inference
    dataset          what is trained and tested on
    transformations  what is done to each batch of it
    precision        of training passes, as the experiment has it
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
        keeper: Keeper,
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
        """The samples of the evaluation that is under way, or was the last one."""
        return self.dataset.splits[self.split]

    @property
    def looks_ahead(self) -> bool:
        """True if the training may be changed by this evaluation: it is not the one on the test split beside
        another to validate on."""
        return self.split == "validation" or self.dataset.validation is None

    @property
    def elapsed_seconds(self) -> float:
        """The time that this agent has trained, evaluations included, over all calls of `train`."""
        running = 0 if self._begun is None else self._now() - self._begun
        return (self._before + running) * 1e-9

    def stop(self, reason: str) -> None:
        """Ask that the training end: for all agents after the same step, at most ten steps later.

        Agents that do not wait for each other end as soon as each hears of it. The run is complete, with
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
        """A row of `samples`; unit: in SI (s, B, J, W, 1); step: by default that of the training.

        Raises `ConfigurationError` for a name that d5ray measures itself, and for what is not one number.
        """
        self._keeper.record(metric, value, unit, self.step if step is None else step, self.epoch, phase)

    def note(self, name: str, **detail: Any) -> None:
        """Add a row to the table `events`."""
        self._keeper.note(name, self, detail)

    def keep(self, name: str, data: bytes) -> None:
        """Keep a file of this name in the run's folder; one that is there is replaced as a whole."""
        self._keeper.keep(name, data)

    def checkpoint(self, path: str | None = None, keep: int = 1) -> None:
        """Save all that is needed to go on from here, see `Checkpoint`; all agents call it at one step."""
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
