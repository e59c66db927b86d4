"""What notebooks show: of runs, results, verdicts, comparisons, recipes' results and topologies"""

from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import d5ray as d5
from d5ray.dashboards.page import tables
from d5ray.metrics.judge.comparison import RunComparison
from d5ray.metrics.judge.criteria import Verdict
from d5ray.metrics.judge.differences import MetricDifference
from d5ray.metrics.queries.notebook_table import Table
from d5ray.metrics.record.schema import table_of
from d5ray.recipes.engine.recipe import Recipe, Result
from tests.dashboards.html_page import Page
from tests.metrics.small_runs import finished, written

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def shown(thing: Any) -> Page:
    """The page of it, on which nothing is active."""
    page = Page(thing._repr_html_())
    assert not page.left
    assert not {"script", "img", "iframe", "link", "a", "style"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "href")]
    return page


def verdict(metric: str = "loss", word: Any = "PASS", reason: str = "") -> Verdict:
    return Verdict("r", metric, "s", "<=", 1.0, 0.5, 0.4, 0.6, 7, "steps", word, reason)


def test_a_run_shows_its_verdict(tmp_path: Path) -> None:
    """Name, recipe, criteria with intervals, and how many samples."""
    writer = written(tmp_path, "r", seed=1)
    writer.write_table("verdicts", table_of("verdicts", [verdict().row]))
    writer.update_run(status="completed", verdict="PASS")
    writer.close()
    page = shown(d5.Run(writer.folder))
    for words in ("small", "completed", "loss (s)", "[0.4, 0.6]", "7 steps", "PASS", "400 samples"):
        assert words in page.text
    finished(tmp_path, "s", seed=2)
    every = shown(d5.Run(tmp_path))
    assert "2 runs" in every.text and "800 samples" in every.text
    assert (
        "no run" in shown(d5.Run(tmp_path / "nowhere")).text
        or "not there" in shown(d5.Run(tmp_path / "n")).text
    )


def test_texts_from_a_run_are_texts(tmp_path: Path) -> None:
    """A recipe, metric, reason or value that holds HTML is shown as it is written."""
    writer = written(tmp_path, "r", seed=1, recipe=HOSTILE)
    hostile = verdict(HOSTILE, "INCONCLUSIVE", HOSTILE)
    writer.write_table("verdicts", table_of("verdicts", [hostile.row]))
    writer.close()
    run = d5.Run(writer.folder)
    result = Result(
        Recipe(HOSTILE, {"model": "lenet"}, {}, ()),
        HOSTILE,
        tmp_path,
        HOSTILE,
        (hostile,),
        HOSTILE,
        HOSTILE,
        {},
    )
    difference = MetricDifference(HOSTILE, HOSTILE, 1.0, 2.0, 2.0, 1.5, 2.5, 6, "worse", HOSTILE)
    things = [
        run,
        run.sql("select recipe from runs"),
        Table(pa.table({HOSTILE: [HOSTILE]})),
        hostile,
        result,
        RunComparison((HOSTILE,), (HOSTILE,), (), (HOSTILE,), (difference,)),
        RunComparison((HOSTILE,), (HOSTILE,), (HOSTILE,), (), ()),
    ]
    for thing in things:
        assert HOSTILE in shown(thing).text.replace("  ", " "), type(thing)


@pytest.mark.parametrize(
    ("topology", "facts"),
    [
        (d5.topologies.Ring(6), ["agents 6", "degree 2", "undirected", "spectral gap 0.333"]),
        (d5.topologies.Star(5), ["agents 5", "degree 1 to 4"]),
        (d5.topologies.OnePeerExponential(8), ["directed", "rounds in turn 3", "spectral gap 1"]),
        (d5.topologies.Complete(5000), ["agents 5000", "not computed beyond 512 agents"]),
    ],
)
def test_a_topology_shows_its_picture_and_its_facts(topology: d5.Topology, facts: list[str]) -> None:
    """Size, degree, spectral gap: of a large one only what takes no time."""
    page = shown(topology)
    words = " ".join(page.text.split())
    for fact in facts:
        assert fact in words
    assert ("svg" in page.tags) == (topology.agents <= 512)


def test_what_was_not_reached_is_over_the_budget_as_in_the_terminal_and_on_the_page() -> None:
    """A median that is infinite, and an upper bound alone: of a criterion, and of a comparison."""
    never = Verdict("r", "time", "s", "<=", 100.0, inf, 10.0, inf, 8, "runs", "INCONCLUSIVE", "")
    card = str(tables.verdicts(pa.Table.from_pylist([never.row])))
    slower = MetricDifference("time", "s", 10.0, inf, None, None, None, 8, "worse")
    notebook, other = shown(never).text, shown(RunComparison(("a",), ("b",), (), (), (slower,))).text
    assert "> budget" in other and "inf" not in other
    for text in (card, notebook):
        assert "[10, > budget]" in text and text.count("> budget") == 2 and "inf" not in text, text


def test_a_large_result_shows_its_beginning() -> None:
    """And how large it is."""
    page = shown(Table(pa.table({"n": range(1_000_000)})))
    assert "1,000,000 rows, the first 20 are shown" in page.text
    assert page.tags.count("tr") == 21
