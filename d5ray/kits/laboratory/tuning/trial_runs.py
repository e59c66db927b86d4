"""The runs that a search makes: each is the recipe with other settings, judged as any run of it"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import pyarrow as pa
import pyarrow.compute as pc

from d5ray.actors.group.run_row import RunOrigin
from d5ray.actors.group.training import TrainingRun
from d5ray.errors import AgentError
from d5ray.kits.laboratory.tuning.space import with_settings
from d5ray.metrics.judge.criteria import Metric
from d5ray.recipes.engine import runner
from d5ray.recipes.engine.recipe import Recipe
from d5ray.simulator import simulate


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


def simulates(by: Any) -> bool:
    """True if this makes simulated agents: `simulate`, or a partial of it."""
    while isinstance(by, partial):
        by = by.func
    return inspect.unwrap(by) is simulate
