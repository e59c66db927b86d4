"""Claims about timing the live page: the run is as long as it should be, and what is not drawn is no time."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.allreduce_speed.baselines import ThroughTorch
from benchmarks.page_speed import recipe as recipe
from benchmarks.page_speed.job import NAME, VIEWS, WIDTH, Chromium, PageViews, browser, made
from d5ray.errors import ConfigurationError
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.store import Run
from d5ray.recipes.engine.recipe import Recipe


def job(**changes: Any) -> PageViews:
    """The recipe's, with other values."""
    found = Recipe.of(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, name="x").made()
    assert isinstance(found, PageViews)
    return replace(found, **changes)


def test_the_run_has_all_rows_of_all_agents(tmp_path: Path) -> None:
    """Every step of every agent once, finished, in Parquet; the values differ."""
    made(tmp_path, agents=3, steps=2500, seed=1)
    run = Run(tmp_path / NAME)
    (found,) = sql(
        run,
        "select count(*) as n, count(distinct (rank, metric, step)) as each, "
        "count(distinct value) filter (metric = 'loss') as losses from samples",
    ).to_pylist()
    assert found == {"n": 3 * 2500 * WIDTH, "each": 3 * 2500 * WIDTH, "losses": 3 * 2500}
    assert run.row["status"] == "completed" and (run.folder / "samples.parquet").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [({"rows": 0}, "rows"), ({"agents": 0}, "agents"), ({"zooms": 0}, "zooms"),
     ({"comparisons": ((ThroughTorch(2),),)}, "Chromium")],
)  # fmt: skip
def test_a_wrong_value_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        job(**change)


def test_every_criterion_is_measured() -> None:
    """What METRICS asks for is what a viewer of the page does; ten million rows are fixed."""
    asked = {criterion.metric.what for criterion in recipe.METRICS}  # type: ignore[attr-defined]
    assert asked == {"first view", "zoom", "axis", *(f"view {view}" for view in VIEWS)}
    assert recipe.FIXED["rows"] == 10_000_000


@pytest.mark.slow
@pytest.mark.skipif(browser() is None, reason="no Chromium is installed: apt install chromium")
def test_a_viewer_of_a_short_run_waits_for_something(tmp_path: Path) -> None:
    """One round with a server and a browser of its own: each time is there and positive; the run is kept."""
    (tmp_path / "0").mkdir()
    small = job(rows=50_000, agents=2, zooms=2)
    found = {series.at: series.values for series in Chromium().measure(small, tmp_path / "0")}
    assert found.keys() == {"first view", "zoom", "axis", *(f"view {view}" for view in VIEWS)}
    assert len(found["zoom"]) == 2
    assert all(0 < value < 30 for values in found.values() for value in values if value is not None)
    assert (tmp_path / "home" / "runs" / NAME / "samples.parquet").exists()
