"""The rule checker for a series: its runs keep the rules, are all there, and give the joint verdict"""

import json
from collections.abc import Iterator
from typing import Any

from d5ray.errors import AccessError, D5Error
from d5ray.kits.laboratory.checking import checker
from d5ray.kits.laboratory.checking.verdicts import described, verdicts_of
from d5ray.metrics.judge.comparable import incomparable
from d5ray.metrics.judge.run_series import TUNING, RunSeries
from d5ray.metrics.record.reader import Run, list_runs

Rows = dict[str, dict[str, Any]]  # of `runs`, by the run's name

FREE = {"seeds": "seed", "determinism": "executor"}  # in what the runs may differ; an executor keeps a trace


def violations(series: RunSeries) -> list[str]:
    """One sentence for every rule that the series, or a run of it, breaks; see `checker.violations`.

    Of a search, runs that failed or were ended early are as they are.
    """
    try:
        row, runs = series.row, series.runs
        rows = {run.name: run.row for run in runs}
        whole = [run for run in runs if row["purpose"] != TUNING or rows[run.name]["status"] == "completed"]
        return [*_rules(series, row, rows), *_each(whole)]
    except AccessError:
        raise
    except D5Error as error:
        return [f"the series cannot be read: {error}"]


def _rules(series: RunSeries, row: dict[str, Any], rows: Rows) -> Iterator[str]:
    if row["series_id"] != series.name:
        yield f"the folder is called {series.name}, the series {row['series_id']}"
    if row["status"] != "completed":
        yield f"the series is {row['status']}: only a completed one counts"
    yield from _members(series, row, rows)
    yield from _alike(row, rows, series.runs)
    if set(row["runs"] or ()) == set(rows):
        yield from _verdicts(series, row, rows)


def _members(series: RunSeries, row: dict[str, Any], rows: Rows) -> Iterator[str]:
    """All runs that were made are there, and no others."""
    listed = row["runs"] or []
    for name in listed:
        if name not in rows:
            yield f"the run {name} is not there"
        elif rows[name]["series"] != series.name:
            yield f"the run {name} is of the series {rows[name]['series']}"
    for run in list_runs(series.runs_root):
        if run.row["series"] == series.name and run.name not in listed:
            yield f"the run {run.name} belongs to the series, which does not list it: no run may be left out"
    asked = row["seeds"] or []
    found = [rows[name]["seed"] for name in listed if name in rows]
    if row["purpose"] in ("determinism", TUNING):
        asked, found = asked[:1], sorted(set(found))
    if found != asked:
        yield f"its runs have the seeds {found}, asked for were {asked}"


def _alike(row: dict[str, Any], rows: Rows, runs: list[Run]) -> Iterator[str]:
    """The runs can be compared, and differ in nothing but their seeds."""
    for name, run in rows.items():
        if run["recipe_hash"] != row["recipe_hash"]:
            yield f"the hash of FIXED in the run {name} is not that of the series: they are not comparable"
    for reason in incomparable(runs):
        yield f"its runs cannot be compared, since these differ: {reason}"
    if row["purpose"] == TUNING:  # their settings are what is searched
        return
    free = FREE.get(row["purpose"], "seed")
    jobs = {
        name: {key: value for key, value in json.loads(run["experiment"] or "{}").items() if key != free}
        for name, run in rows.items()
    }
    first = next(iter(jobs), "")
    for name, job in jobs.items():
        keys = sorted(key for key in job.keys() | jobs[first].keys() if job.get(key) != jobs[first].get(key))
        if keys:
            yield f"the runs {first} and {name} differ in {', '.join(keys)}: only the {free} may differ"


def _verdicts(series: RunSeries, row: dict[str, Any], rows: Rows) -> Iterator[str]:
    """The joint verdicts are those that the rows of all runs give."""
    tables = series.tables() | {"verdicts": series.verdicts}
    first = next(iter(rows.values()), None)
    criteria = described(first) if first is not None and row["purpose"] == "seeds" else None
    for text in verdicts_of(row, tables, criteria):
        yield f"together: {text}"


def _each(runs: list[Run]) -> Iterator[str]:
    for run in runs:
        for text in checker.violations(run):
            yield f"{run.name}: {text}"
