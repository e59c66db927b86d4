"""A training of a search: it tells its metric after every epoch, and ends where it is told to"""

import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

from d5ray.actors.group.training import EndedEarly, TrainingRun
from d5ray.kits.laboratory.tuning.search import END_SECONDS, RUN
from d5ray.kits.laboratory.tuning.trial_runs import RecipeRuns

BY_TUNE: Final = "ended early by Ray Tune"
INTERRUPTED: Final = "the search was interrupted"


@final
class OneTraining:
    """A run that trains in a thread of its own, and is asked from another how far it is.

    interrupted: a file that is there once the search is.
    """

    def __init__(self, runs: RecipeRuns, interrupted: Path, settings: Mapping[str, Any]) -> None:
        self._runs, self._interrupted, self._settings = runs, interrupted, settings
        self._told: queue.Queue[dict[str, Any] | BaseException] = queue.Queue()
        self._heard = threading.Event()
        self._ending = ""  # why it is to end
        self._epochs = 0  # that were told
        self._thread = threading.Thread(target=self._run, name="d5ray-trial", daemon=True)
        self._thread.start()

    def next(self) -> dict[str, Any]:
        """Wait for the end of the next epoch, or of the run, which is `done` then; raises what ended it."""
        self._heard.set()
        told = self._told.get()
        if isinstance(told, BaseException):
            raise told
        return told

    def end(self) -> None:
        """Let the run end where it is, and return when it has."""
        self._ending = self._ending or (INTERRUPTED if self._interrupted.exists() else BY_TUNE)
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
