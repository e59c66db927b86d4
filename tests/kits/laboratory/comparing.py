"""The job of a recipe with other values, and rows as contenders would have written them"""

from dataclasses import replace
from typing import Any

import pyarrow as pa

import d5ray as d5
from d5ray.kits.laboratory.jobs.workloads import Workload
from d5ray.metrics.record.recorder import Recorder
from d5ray.recipes.engine.recipe import Recipe

LINEAR = Workload(
    model="mlp", model_kwargs={"hidden": ()}, dataset="digits", target=d5.metrics.TestAccuracy() >= 0.9,
    steps=135, every=45,
)  # fmt: skip


def job_of(recipe: Any, **changes: Any) -> Any:
    """What the module FIXED, MUTABLE and METRICS makes."""
    made = Recipe.of(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, name="x").made()
    return replace(made, **changes)


def planted(values: dict[tuple[str, str], list[float]]) -> dict[str, pa.Table]:
    """The tables of a run in which (metric, scope) has these values, one in each round."""
    batches: list[pa.RecordBatch] = []
    recorder = Recorder(run_id="r", agent="a", rank=0, node="n", send=batches.append)
    for (metric, scope), own in values.items():
        recorder.declare(metric, "1")
        for pair, value in enumerate(own):
            recorder.record(metric, value, step=0, phase="run", scope=scope, rep=pair)
    recorder.flush()
    return {"samples": pa.Table.from_batches(batches)}
