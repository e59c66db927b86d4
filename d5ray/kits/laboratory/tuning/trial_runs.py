"""The runs that a search makes: each is the recipe with other settings, judged as any run of it

A training of one tells its metric after every epoch, and ends where it is told to.
"""

import inspect
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import pyarrow as pa
import pyarrow.compute as pc

from d5ray.actors.group.run_row import RunOrigin
from d5ray.actors.group.training import EndedEarly, TrainingRun
from d5ray.errors import AgentError
from d5ray.kits.laboratory.tuning.search import END_SECONDS, RUN
from d5ray.kits.laboratory.tuning.space import with_settings
from d5ray.metrics.judge.criteria import Metric
from d5ray.recipes.engine import runner
from d5ray.recipes.engine.recipe import Recipe
from d5ray.simulator import simulate

BY_TUNE: Final = "ended early by Ray Tune"
INTERRUPTED: Final = "the search was interrupted"


@final
@dataclass(frozen=True)
class RecipeRuns:
    """Runs of a recipe with settings that a search has drawn.

    by: what makes agents of an experiment; series: of which the runs are a part; root: the folder in which
    they have theirs.
    """

    recipe: Recipe
    quantity: Metric
    by: Any
    series: str
    root: Path

    @property
    def metric(self) -> str:
        """The metric by which settings are chosen, as it is called."""
        return self.quantity.label

    @property
    def waits(self) -> bool:
        """True if trainings are held until it is known that they go on: those of simulations."""
        return simulates(self.by)

    def begin(self, settings: Mapping[str, Any]) -> TrainingRun:
        """The run with these settings, ready to train."""
        recipe = with_settings(self.recipe, settings)
        origin = RunOrigin(**recipe.described(), series=self.series)
        begun: TrainingRun = self.by(recipe.made(), origin=origin, root=self.root)
        return begun

    def after(self, epoch: int, tables: Mapping[str, pa.Table], ranks: list[int]) -> float | None:
        """The metric after this epoch; None as long as one of these agents has not recorded it."""
        samples = tables["samples"]
        read = self.quantity.reads()
        known = samples["epoch"]
        of_epoch = pc.equal(known, epoch) if read else pc.greater(known, epoch)
        if read:
            of_epoch = pc.and_kleene(of_epoch, pc.is_in(samples["metric"].cast(pa.utf8()), pa.array(read)))
        recorded = samples.filter(pc.fill_null(of_epoch, False))["rank"].unique().to_pylist()
        if not set(ranks) <= set(recorded):
            return None
        until = pc.fill_null(pc.less_equal(known, epoch), True)
        return self.quantity.estimate({**tables, "samples": samples.filter(until)}).value

    def close(self, group: TrainingRun) -> float:
        """Judge and close a run that has ended; its metric. Raises `AgentError` where it has none."""
        result = runner.close(self.recipe, group)
        if result.status == "nan_loss":
            raise AgentError(result.reason)
        found = self.quantity.estimate(group.tables())
        if found.value is None:
            raise AgentError(f"the run has no {self.metric}: {found.reason}")
        return found.value


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


def simulates(by: Any) -> bool:
    """True if this makes simulated agents: `simulate`, or a partial of it."""
    while isinstance(by, partial):
        by = by.func
    return inspect.unwrap(by) is simulate
