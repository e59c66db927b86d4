"""Claims about timing reports: the runs are there as agents write them, and the page is complete."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.report_speed import recipe as recipe
from benchmarks.report_speed.job import EVALUATIONS, Reported, Reports, check, rows_of, written
from d5ray.errors import AgentError, ConfigurationError
from d5ray.metrics.queries.sql import sql
from d5ray.recipes.engine.checking.checker import violations
from d5ray.recipes.engine.recipe import Recipe


def test_what_is_reported_on_is_a_run_as_agents_write_it(tmp_path: Path) -> None:
    """Rows without a gap, evaluations, facts, verdicts; `d5ray check` finds what is made up, and no more."""
    run = written(tmp_path, 3, steps=60, agents=2)
    (found,) = sql(
        run,
        "select count(distinct (rank, seq)) as n, count(*) filter (metric = 'test_loss') as e from samples",
    ).to_pylist()
    assert found == {"n": 2 * (60 * 13 + EVALUATIONS * 3), "e": 2 * EVALUATIONS}
    assert run.row["status"] == "completed" and run.tables()["verdicts"].num_rows == 2
    made_up = [
        "samples has rows of 2001-09-09", "FIXED has the hash", "the experiment does not say",
        "no hash of the parameters", "how many rows were recorded", "d5ray_version is 0",
        "no git is recorded", "no host is recorded", "verdicts are recorded, but not on which criteria",
    ]  # fmt: skip
    missed = violations(run)
    assert [text.startswith(begin) for text, begin in zip(missed, made_up, strict=True)] == [True] * 9, missed


@pytest.mark.full
def test_the_command_reports_on_all_runs(tmp_path: Path) -> None:
    """Two runs of a thousand rows: the page names both, their steps and all sections, or nothing counts."""
    times = Reported(("1 thousand rows",), 2, 2, tmp_path)(0)
    assert list(times) == ["1 thousand rows"] and 0 < times["1 thousand rows"] < 120
    page = (tmp_path / "1-thousand-rows.html").read_text()
    check(page, 38, ["reported-0", "reported-1"])
    with pytest.raises(AgentError, match="lacks reported-2, 1,234"):
        check(page, 1234, ["reported-2"])


def test_the_recipe_is_one_and_refuses_wrong_sizes() -> None:
    job = Recipe.of(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, name="x").made()
    assert isinstance(job, Reports) and job.runs == 10
    assert [rows_of(size) for size in recipe.SIZES] == [36_000, 1_000_000]
    for changes in ({"sizes": ("many rows",)}, {"runs": 1}, {"agents": 0}):
        with pytest.raises(ConfigurationError):
            replace(job, **changes)
