"""Early stopping: events that end a training at an accuracy, a time, a step, a plateau, the first NaN"""

import math
from typing import Any, Final, final

from d5ray.checks import check_choice, check_count, check_number
from d5ray.training.arrays import is_finite
from d5ray.training.events.event import Event, check_classifies, check_evaluates
from d5ray.training.events.moment import Moment

OF: Final = {"test_loss": "min", "test_accuracy": "max", "loss": "min"}


@final
class StopAtAccuracy(Event):
    """Ends after the first evaluation in which any agent reaches this accuracy.

    It uses the validation split if there is one, otherwise the test split.
    """

    stops = True

    def __init__(self, accuracy: float) -> None:
        check_number("accuracy", accuracy, low=0.0, low_included=False, high=1.0 + 1e-12)
        self.accuracy = accuracy

    def check(self, experiment: Any) -> None:
        check_evaluates(self, experiment)
        check_classifies(self, experiment)

    def after_test(self, moment: Moment) -> None:
        assert moment.evaluation is not None
        if moment.looks_ahead and moment.evaluation.accuracy >= self.accuracy:
            moment.stop(f"{moment.split}_accuracy {moment.evaluation.accuracy:.4f} reached {self.accuracy:g}")


@final
class StopAfterSeconds(Event):
    """Ends after the step in which this training time is over, evaluations included.

    A resumed training includes the time before its checkpoint.
    """

    stops = True

    def __init__(self, seconds: float) -> None:
        check_number("seconds", seconds, low=0.0, low_included=False)
        self.seconds = seconds

    def after_step(self, moment: Moment) -> None:
        if moment.elapsed_seconds >= self.seconds:
            moment.stop(f"{self.seconds:g} s of training are over")


@final
class StopAfterSteps(Event):
    """Ends after this many steps of the run, or up to nine later, when the agents next agree."""

    stops = True

    def __init__(self, steps: int) -> None:
        check_count("steps", steps)
        self.steps = steps

    def after_step(self, moment: Moment) -> None:
        if moment.step >= self.steps:
            moment.stop(f"{self.steps} steps are done")


@final
class StopAtPlateau(Event):
    """Early stopping: ends when a quality has not improved for `patience` epochs.

    of            'test_loss', 'test_accuracy', or 'loss', the mean training loss over the epoch; the first
                  two use the validation split if there is one
    patience      consecutive epochs without improvement
    least_change  an improvement must be larger than this
    """

    stops = True

    def __init__(self, of: str = "test_loss", patience: int = 5, least_change: float = 0.0) -> None:
        check_choice("of", of, OF)
        check_count("patience", patience)
        check_number("least_change", least_change, low=0.0, low_included=True)
        self.of = of
        self.patience = patience
        self.least_change = least_change

    def check(self, experiment: Any) -> None:
        if self.of != "loss":
            check_evaluates(self, experiment)
        if self.of == "test_accuracy":
            check_classifies(self, experiment)

    def before_run(self, moment: Moment) -> None:
        if not hasattr(self, "_best"):
            self._best, self._epochs = math.inf, 0
            self._total, self._count = 0.0, 0

    def after_step(self, moment: Moment) -> None:
        if moment.batch is not None and (samples := len(moment.batch.labels)):
            self._total += moment.loss * samples
            self._count += samples

    def after_epoch(self, moment: Moment) -> None:
        value = self._value(moment)
        self._total, self._count = 0.0, 0
        if value < self._best - self.least_change:
            self._best, self._epochs = value, 0
            return
        self._epochs += 1
        if self._epochs >= self.patience:
            best = -self._best if OF[self.of] == "max" else self._best
            of = self.of.replace("test", moment.split)
            moment.stop(f"{of} has not become better than {best:.4g} for {self._epochs} epochs")

    def _value(self, moment: Moment) -> float:
        """The value of this epoch; smaller is better."""
        if self.of == "loss":
            return self._total / self._count if self._count else math.inf
        assert moment.evaluation is not None
        return moment.evaluation.loss if self.of == "test_loss" else -moment.evaluation.accuracy


@final
class StopAtNaN(Event):
    """Ends when a parameter is no longer a finite number, and names its tensor.

    A loss that is not finite always ends a run, with the status 'nan_loss'; this event detects what does not
    appear in the loss of the agent's own samples, such as an overflow in a layer that the batch did not use.

    every_steps: between two checks, each of which reads all parameters.
    """

    stops = True

    def __init__(self, every_steps: int = 100) -> None:
        check_count("every_steps", every_steps)
        self.every_steps = every_steps

    def after_step(self, moment: Moment) -> None:
        x = moment.executor.parameters
        if moment.step % self.every_steps or is_finite(x):
            return
        for slot in moment.executor.slots:
            if not is_finite(x[slot.offset : slot.offset + slot.size]):
                moment.stop(f"the parameter {slot.name} is not finite after step {moment.step}")
                return
