"""The event that periodically saves everything that is needed to resume a training"""

from os import PathLike
from pathlib import Path
from typing import Any, final

from d5ray.checks import check_count, check_path
from d5ray.errors import ConfigurationError
from d5ray.training.events.event import Event
from d5ray.training.events.moment import Moment


@final
class Checkpoint(Event):
    """Saves every few epochs, or steps, and at the end; `launch(…, resume=…)` resumes from a checkpoint.

    It saves parameters, state that is not trained, the state of both optimizers, residuals of error feedback,
    random streams, the position in the epoch, and the state of events: a resumed training is bitwise equal to
    one that was never interrupted. Every agent of a mesh saves its share; the checkpoint is complete when all
    have.

    path         a folder, or a URI that pyarrow supports, such as s3://bucket/folder; by default
                 `checkpoints` in the run's own folder. All nodes must have access; a relative path starts in
                 the working folder of the program that launches the run.
    every_epochs between two checkpoints
    every_steps  instead of epochs
    keep         the number of a run's last checkpoints to keep; 0: all
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        every_epochs: int = 1,
        every_steps: int | None = None,
        keep: int = 2,
    ) -> None:
        check_count("every_epochs", every_epochs)
        if every_steps is not None:
            check_count("every_steps", every_steps)
        check_count("keep", keep, low=0)
        if path is not None and "://" not in str(path):
            check_path("path", path)
        self.path = None if path is None else str(path)
        self.every_epochs = every_epochs
        self.every_steps = every_steps
        self.keep = keep

    def from_here(self) -> "Checkpoint":
        """An equal event for processes that work in other folders: its path is absolute."""
        if self.path is None or "://" in self.path:
            return self
        path = Path(self.path).expanduser().absolute()
        return Checkpoint(path, every_epochs=self.every_epochs, every_steps=self.every_steps, keep=self.keep)

    def check(self, experiment: Any) -> None:
        if not experiment.in_lockstep:
            raise ConfigurationError(
                f"Checkpoint saves agents that meet at every step, but those of {experiment.distributed!r} "
                "do not: take an optimizer such as AllreduceSGD() or ParameterServerSGD(), or leave the "
                "checkpoints out"
            )

    def before_run(self, moment: Moment) -> None:
        self._last = moment.step

    def after_step(self, moment: Moment) -> None:
        if self.every_steps is not None and moment.step % self.every_steps == 0:
            self._save(moment)

    def after_epoch(self, moment: Moment) -> None:
        if self.every_steps is None and (moment.epoch + 1) % self.every_epochs == 0:
            self._save(moment)

    def after_run(self, moment: Moment) -> None:
        if moment.completed and moment.step != self._last:
            self._save(moment)

    def _save(self, moment: Moment) -> None:
        self._last = moment.step
        moment.checkpoint(self.path, self.keep)
