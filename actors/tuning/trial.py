"""A trial of Ray Tune: a run of d5ray, which tells Tune its metric after every epoch while it trains"""

import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, final

import pyarrow as pa
from ray import cloudpickle
from ray.tune import Trainable

from d5ray.actors.group.training import EndedEarly, TrainingRun

RUN: Final = "run"  # the run's name in what is told to Tune
END_SECONDS: Final = 60.0  # for a run that was told to end
BY_TUNE: Final = "ended early by Ray Tune"
INTERRUPTED: Final = "the search was interrupted"
Settings = Mapping[str, Any]
Tables = Mapping[str, pa.Table]


class TrialRuns(Protocol):
    """The runs that a search makes, as their trials need them; it is pickled.

    metric: its name. waits: whether a training is held until Tune has heard of an epoch.
    """

    @property
    def metric(self) -> str: ...
    @property
    def waits(self) -> bool: ...

    def begin(self, settings: Settings) -> TrainingRun:
        """The run with these settings, ready to train."""

    def after(self, epoch: int, tables: Tables, ranks: list[int]) -> float | None:
        """The metric after this epoch; None as long as agents have not recorded it."""

    def close(self, group: TrainingRun) -> float:
        """Judge and close a run that has ended; its metric. Raises where it has none."""


@final
class TuneTrial(Trainable):  # type: ignore[misc]  # Ray has no types here
    """The process of a trial: one run after the other. `step` gives the metric of the next epoch."""

    def setup(self, config: dict[str, Any], shipped: bytes = b"", interrupted: str = "") -> None:
        """Begin the run with these settings. shipped: `TrialRuns`; interrupted: a file, once that is so."""
        self._runs: TrialRuns = cloudpickle.loads(shipped)
        self._interrupted = Path(interrupted)
        self._training = OneTraining(self._runs, config)

    def step(self) -> dict[str, Any]:
        """Wait for the next epoch's end, or for that of the run, which is done then."""
        return self._training.next()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Go on with a run of other settings."""
        self.cleanup()
        self._training = OneTraining(self._runs, new_config)
        return True

    def cleanup(self) -> None:
        """End the run, if it still trains."""
        self._training.end(INTERRUPTED if self._interrupted.exists() else BY_TUNE)


@final
class OneTraining:
    """A run that trains in a thread of its own, and is asked from another how far it is."""

    def __init__(self, runs: TrialRuns, settings: Settings) -> None:
        self._runs, self._settings = runs, dict(settings)
        self._told: queue.Queue[dict[str, Any] | BaseException] = queue.Queue()
        self._heard = threading.Event()
        self._ending = ""  # why it is to end
        self._epochs = 0  # that were told
        self._thread = threading.Thread(target=self._run, name="d5ray-trial", daemon=True)
        self._thread.start()

    def next(self) -> dict[str, Any]:
        """Wait for what is told next; raises what ended the run."""
        self._heard.set()
        told = self._told.get()
        if isinstance(told, BaseException):
            raise told
        return told

    def end(self, why: str) -> None:
        """Let the run end where it is, and return when it has."""
        self._ending = self._ending or why
        self._heard.set()
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        try:
            with self._runs.begin(self._settings) as group:
                group.beside = self._beside(group)
                with suppress(EndedEarly):
                    group.train(progress=False)
                value = self._runs.close(group)
            self._told.put(self._result(group, value) | {"done": True})
        except BaseException as error:  # it is raised where the caller waits
            self._told.put(error)

    def _beside(self, group: TrainingRun) -> Callable[[], None]:
        """What is done beside the training: an epoch that all agents have evaluated is told."""

        def look() -> None:
            self._end_early()
            progress = group.progress()
            if progress is None or progress.epoch <= self._epochs:
                return
            group.deliver()
            tables, left = group.tables(), group.left
            while progress.epoch > self._epochs:
                value = self._runs.after(self._epochs, tables, left)
                if value is None:
                    return
                self._epochs += 1
                self._tell(self._result(group, value))

        return look

    def _tell(self, result: dict[str, Any]) -> None:
        self._heard.clear()
        self._told.put(result)
        if self._runs.waits:
            self._heard.wait()
            self._end_early()

    def _end_early(self) -> None:
        if self._ending:
            raise EndedEarly(self._ending)

    def _result(self, group: TrainingRun, value: float) -> dict[str, Any]:
        return {self._runs.metric: value, RUN: group.run_id}
