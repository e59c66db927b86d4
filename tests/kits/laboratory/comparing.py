"""The job of a recipe with other values, and rows as contenders would have written them"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

import d5ray as d5
from d5ray.kits.laboratory.jobs.workloads import Workload
from d5ray.metrics.definitions.catalogue import CATALOGUE
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import SAMPLES
from d5ray.recipes.engine.recipe import Recipe

LINEAR = Workload(
    model="mlp", model_kwargs={"hidden": ()}, dataset="digits", target=d5.metrics.TestAccuracy() >= 0.9,
    steps=135, every=45,
)  # fmt: skip

UNITS = {"updates_per_second": "1/s", "steps_to_target": "1", "samples_to_target": "1", "evaluated_step": "1"}
Row = tuple[str, str, int, int, float]  # metric, scope, rank, round, value


def job_of(recipe: Any, **changes: Any) -> Any:
    """What the module FIXED, MUTABLE and METRICS makes."""
    made = Recipe.of(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, name="x").made()
    return replace(made, **changes)


def written(rows: Iterable[Row], phase: str = "run") -> dict[str, pa.Table]:
    """The tables of a run with these rows."""
    batches: list[pa.RecordBatch] = []
    for metric, scope, rank, rep, value in rows:
        recorder = Recorder(run_id="r", agent=f"{scope}/{rank}", rank=rank, node="n", send=batches.append)
        known = CATALOGUE.get(metric)
        recorder.declare(metric, UNITS.get(metric, "s") if known is None else known.unit)
        recorder.record(metric, value, step=0, phase=phase, scope=scope, rep=rep)
        recorder.flush()
    return {"samples": pa.Table.from_batches(batches)}


def planted(values: dict[tuple[str, str], list[float]]) -> dict[str, pa.Table]:
    """The tables of a run in which (metric, scope) has these values, one in each round."""
    return written(
        (metric, scope, 0, pair, value)
        for (metric, scope), own in values.items()
        for pair, value in enumerate(own)
    )


def measured_rows(executor: Any, problem: Any) -> list[dict[str, Any]]:
    """The rows of a problem that are no warm-up, by an executor as a run has it."""
    executor.prepare()
    found = executor.measure(problem, 0.0, 20.0)
    assert not found.reason
    rows: list[dict[str, Any]] = pa.Table.from_batches(found.rows, SAMPLES).to_pylist()
    return [row for row in rows if row["phase"] == "run"]


def check_rates(rows: list[dict[str, Any]], time: str, rate: str, work: float) -> None:
    """Every value of the rate is this work over the time of its call."""
    times, rates = ([row["value"] for row in rows if row["metric"] == metric] for metric in (time, rate))
    np.testing.assert_allclose(np.multiply(times, rates), work)
    assert times
