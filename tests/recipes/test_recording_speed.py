"""Claims about timing recording: what is recorded, stored and asked is all there, and right."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.allreduce_speed.baselines import ThroughTorch
from benchmarks.recording_speed import job as recordings
from benchmarks.recording_speed import recipe as recipe
from benchmarks.recording_speed.job import (
    NAME,
    WIDTH,
    Asked,
    Query,
    Recorded,
    Recordings,
    Store,
    Stored,
    Values,
)
from d5ray.errors import AgentError, ConfigurationError
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.store import Run, list_runs
from d5ray.metrics.statistics.sequential_stopping import StoppingRule
from d5ray.recipes.engine.comparisons import timing
from d5ray.recipes.engine.recipe import Recipe
from tests.conftest import d5ray

ONCE = StoppingRule(most=6, seconds=30)


def job(**changes: Any) -> Recordings:
    """The recipe's, with other values."""
    made = Recipe.of(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, name="x").made()
    assert isinstance(made, Recordings)
    return replace(made, **changes)


def test_every_value_is_recorded_in_every_repetition() -> None:
    """It counts its rows itself; a value takes less than a step's whole repetition and more than nothing."""
    times = Recorded(steps=100, rule=ONCE)(0)
    assert len(times.seconds) == 6 and min(times.seconds) > 0 and times.stop_reason


def test_what_is_stored_is_in_the_run_without_a_gap(tmp_path: Path) -> None:
    """A warm-up and six repetitions of 50 steps: their rows are numbered on, once each."""
    times = Stored(50, tmp_path, ONCE)(0)
    (found,) = sql(
        Run(tmp_path / NAME), "select count(*) n, count(distinct seq) d, max(seq) hi from samples"
    ).to_pylist()
    assert len(times.seconds) == 6 and times.loops == 1
    assert found == {"n": 7 * 50 * WIDTH, "d": 7 * 50 * WIDTH, "hi": 7 * 50 * WIDTH - 1}


def test_the_query_is_on_a_finished_run_with_as_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least as many as asked for, in whole steps, and in Parquet; the medians are NumPy's."""
    monkeypatch.setattr(recordings, "BLOCK", 1000)  # more than one, and the last not whole
    asked = Asked(30_000, tmp_path, ONCE)
    assert len(asked(0).seconds) == 6
    run = Run(tmp_path / NAME)
    rows = run.tables()["samples"].num_rows
    assert 30_000 <= rows < 30_000 + WIDTH and (run.folder / "samples.parquet").exists()
    with pytest.raises(AgentError, match=r"SQL's median of loss is .* NumPy's"):
        asked.check(run, np.ones((3, WIDTH)))


@pytest.mark.parametrize(
    ("change", "words"),
    [({"steps": 0}, "steps"), ({"rows": 0}, "rows"), ({"seconds": 0}, "seconds"),
     ({"comparisons": ((ThroughTorch(2),),)}, "Values"), ({"pairs": 0}, "pairs")],
)  # fmt: skip
def test_a_wrong_value_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        job(**change)


def test_repetitions_end_by_the_rule_and_short_operations_are_looped(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only the operation moves: 1 ms each, ten for a value, as many values as it takes."""
    now = [0.0]
    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])
    cost = iter([0.001] * 10_000)

    def operation() -> None:
        now[0] += next(cost)

    times = timing.repeated(operation, StoppingRule(seconds=1e3))
    assert (times.loops, len(times.seconds)) == (10, 30)
    assert times.seconds == pytest.approx([0.001] * 30)
    assert times.stop_reason.startswith("precise")
    slow = timing.repeated(operation, StoppingRule(seconds=0.055))
    assert slow.stop_reason == "time: 0.055 s have passed, 6 values"


@pytest.mark.full
def test_the_recipe_in_a_reduced_form_gives_rows_reasons_and_a_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round is too few for a verdict; why measuring stopped stands in the table `summary`."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    few = {"rows": 20_000}
    changed = {**recipe.FIXED, **few}
    made = Recipe.of(
        changed, recipe.MUTABLE | {"steps": 40, "seconds": 0.05, "pairs": 1}, recipe.METRICS, name="x"
    )
    from d5ray.recipes.engine.runner import run  # noqa: PLC0415 - imports Ray

    result = run(made, address=None, quiet=True)
    assert result.verdict == "INCONCLUSIVE"
    (kept,) = list_runs(tmp_path / "runs")
    rows = sql(kept, "select metric, n, median, ci_lo, stop_reason from summary order by metric").to_pylist()
    assert [row["metric"] for row in rows] == ["query_time", "recording_time", "rows_stored_per_second"]
    assert all(row["n"] >= 1 and row["median"] > 0 and row["stop_reason"] for row in rows)
    values = {v.metric: v.value for v in result.verdicts}
    assert all(value is not None and value > 0 for value in values.values()) and len(values) == 3


@pytest.mark.slow
def test_the_recipe_reaches_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    done = d5ray("run", "benchmarks/recording_speed", "--set", "seconds=1", "--json", seconds=280)
    assert done.json["verdict"] in ("PASS", "FAIL", "INCONCLUSIVE") and not done.left()


def test_the_contenders_are_those_of_the_criteria() -> None:
    names = [contender.name for contender in job().contenders()]
    assert names == [Values().name, Store().name, Query().name]
    assert [vars(criterion.metric)["contender"] for criterion in recipe.METRICS] == names
