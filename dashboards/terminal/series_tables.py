"""Output for a series: what each run came to, and the joint verdict"""

import json
from collections.abc import Sequence
from typing import Any

from d5ray.dashboards.quantities import COLOURS, count, number
from d5ray.dashboards.terminal.run_tables import criteria, estimated, notes
from d5ray.display.console import ConsoleTable, lines, out, styled
from d5ray.metrics.judge.criteria import Verdict
from d5ray.metrics.judge.run_series import TUNING, RunSeries
from d5ray.metrics.views.run_labels import label_of


def show(series: RunSeries) -> None:
    """Print a series on standard output."""
    row, runs, console = series.row, series.runs, out()
    joint = [Verdict(**verdict) for verdict in series.verdicts.to_pylist()]
    word = row["verdict"] or row["status"]
    title = f"d5ray  {row['recipe']}  {_what(row)}  {count(len(runs), 'run')}"
    console.print(title, styled(f"  {word}", style=COLOURS.get(word, "bold")), sep="")
    labels = dict.fromkeys(str(each) for run in runs if (each := label_of(run.row)).model)
    for label in _found(row) if row["purpose"] == TUNING else labels:
        console.print(label, style="dim")
    if row["stop_reason"]:
        console.print(lines(f"{row['status']}: {row['stop_reason']}", "red"))
    console.print(_runs(series))
    if joint:
        console.print(criteria(joint))
        known = runs[0].tables(without=("samples", "events"))["metrics"].to_pylist() if runs else []
        console.print(estimated(joint, known), style="dim")
    detail = json.loads(row["detail"] or "{}")
    for note in (*notes(joint), *detail.get("warnings", ())):
        console.print(f"! {note}", style="yellow")
    console.print(f"data  {series.folder}", f'sql  d5ray sql {series.name} "select …"', sep="   ")


def listed(found: Sequence[RunSeries]) -> None:
    """Print a line for each series, newest first."""
    table = ConsoleTable("series", "status", "verdict", "runs", "of")
    for series in found:
        row = series.row
        word = row["verdict"] or "–"
        verdict = styled(word, style=COLOURS.get(word, ""))
        table.add_row(series.name, row["status"], verdict, str(len(row["runs"] or ())), _what(row))
    out().print(table)


def as_data(series: RunSeries) -> dict[str, Any]:
    """A series as data for programs."""
    row = series.row
    return {
        **row,
        "detail": json.loads(row["detail"] or "null"),
        "folder": str(series.folder),
        "criteria": series.verdicts.to_pylist(),
        "runs": [
            {
                "run": run.name,
                **{name: run.row[name] for name in ("seed", "status", "verdict", "parameters_sha256")},
                "criteria": run.tables(without=("samples",))["verdicts"].to_pylist(),
            }
            for run in series.runs
        ],
    }


def _what(row: dict[str, Any]) -> str:
    seeds = row["seeds"] or []
    if row["purpose"] != "seeds" or not seeds:
        return str(row["purpose"])
    return f"seeds {seeds[0]} to {seeds[-1]}"


def _found(row: dict[str, Any]) -> list[str]:
    """A line about what a search found, whose runs have a label each."""
    detail = json.loads(row["detail"] or "{}")
    if not detail.get("best"):
        return []
    chosen = ", ".join(f"{key}={value}" for key, value in detail["settings"].items())
    return [f"best by {detail['metric']}: {chosen}  {detail['best']}"]


def _runs(series: RunSeries) -> ConsoleTable:
    """A line for each run, with what each criterion's metric came to in it."""
    verdicts = {run.name: run.tables(without=("samples",))["verdicts"].to_pylist() for run in series.runs}
    judged = list(dict.fromkeys(v["metric"] for each in verdicts.values() for v in each))
    varied = _varied(series) if series.row["purpose"] == TUNING else {}
    table = ConsoleTable("settings" if varied else "seed", "run", "status", numbers=judged)
    table.add_column("verdict")
    for run in series.runs:
        values = {v["metric"]: v["value"] for v in verdicts[run.name]}
        row = run.row
        word = row["verdict"] or "–"
        cells = ["–" if values.get(name) is None else number(values[name]) for name in judged]
        colour = COLOURS.get(word, "")
        own = varied.get(run.name, str(row["seed"]))
        table.add_row(own, run.name, row["status"], *cells, styled(word, style=colour))
    return table


def _varied(series: RunSeries) -> dict[str, str]:
    """The settings in which the runs of a search differ, by the run's name."""
    given = {run.name: json.loads(run.row["mutable"] or "{}") for run in series.runs}
    keys = {
        key: {json.dumps(own.get(key)) for own in given.values()} for own in given.values() for key in own
    }
    return {
        name: ", ".join(f"{key}={own.get(key)}" for key, values in keys.items() if len(values) > 1)
        for name, own in given.items()
    }
