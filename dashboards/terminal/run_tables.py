"""Output of commands in a terminal: the verdict, runs, tables, timings"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from d5ray.dashboards.disturbances import disturbances
from d5ray.dashboards.quantities import COLOURS, PLAIN, count, number, size
from d5ray.display.console import (
    ConsoleTable,
    err,
    lines,
    out,
    styled,
)
from d5ray.display.console import as_json as as_json
from d5ray.errors import StorageError
from d5ray.metrics.definitions import asynchrony
from d5ray.metrics.definitions.catalogue import metric_named
from d5ray.metrics.judge.criteria import Verdict
from d5ray.metrics.judge.summary import summary
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.schema import TABLES
from d5ray.metrics.views.run_labels import besides, in_words, label_of
from d5ray.metrics.views.verdicts import estimators
from d5ray.names.kits import parts

if TYPE_CHECKING:
    from d5ray.actors.group.group import TrainingGroup
    from d5ray.replayer import Replay

FEWEST_VALUES, MOST_OUTLIERS = 60, 0.1  # from that many values on, a larger share of outliers is told
MOST_STALENESSES = 6  # of a histogram on one line
PARTS = ("data_time", "forward_time", "backward_time", "exchange_time", "update_time", "record_time")


def announce(group: "TrainingGroup") -> None:
    """Say what begins, and where to watch it."""
    nodes = len({place.node for place in group.places})
    text = f"{group.run_id}  {count(len(group.agents), 'agent')} on {count(nodes, 'node')}"
    if group.session.dashboard:
        text += f"  dashboard {group.session.dashboard}"
    err().print(text, style="dim")
    if group.flight is not None:
        text = f"flight {group.flight['location']}  token {group.flight['token']}"
        err().print(text, style="dim")


def verdict(run: Run, verdicts: Sequence[Verdict], overall: str | None, other: str = "") -> None:
    """The table of criteria with the verdict of each, the parts of a step, and where the data are.

    other: by which settings it differs from other runs like it.
    """
    row, console, lost = run.row, out(), list[str]()
    try:
        tables = run.tables()
    except StorageError as error:
        lost = [str(error)]
        tables = {**run.tables(without=["samples"]), "samples": TABLES["samples"].empty_table()}
    agents = count(row["agents"], "agent")
    rounds = json.loads(row["experiment"] or "{}").get("pairs")
    if isinstance(rounds, dict):  # as many as it took, see the reason
        length = f"at most {count(rounds['pairs'][-1], 'round')}"
    else:
        length = count(rounds, "round") if rounds else count(row["steps"] or 0, "step")
    title = f"d5ray  {row['recipe']}  seed {row['seed']}  {agents}  {length}"
    console.print(
        title, styled(f"  {overall or row['status']}", style=COLOURS.get(overall or "", "bold")), sep=""
    )
    if (label := label_of(row)).model:
        console.print(str(label) + (f"; unlike others: {other}" if other else ""), style="dim")
    if row["stop_reason"]:
        style = "dim" if row["status"] == "completed" else "red"
        console.print(lines(f"{row['status']}: {row['stop_reason']}", style))
    known = tables["metrics"].to_pylist() if "metrics" in tables else []
    # Of each: the criteria that it is for, and its tables of them.
    own = [of(verdicts) for of in parts("tables of criteria").values()]
    others = [v for v in verdicts if not any(v in some for some, _ in own)]
    for some, sections in ((others, [criteria(others)]), *own):
        for section in sections if some else ():
            console.print(section)
        if told := estimated(some, known):
            console.print(told, style="dim")
    stopped = row["stop_reason"] or "nothing"
    happened = [text for text in disturbances(tables["events"]) if stopped not in text]
    for note in [*lost, *happened, *notes(verdicts), *unsteady(tables, verdicts)]:
        console.print(f"! {note}", style="yellow")
    makers = {} if lost else parts("tables of a run")
    measured = [part for of in makers.values() for part in of(run)]
    for part in measured:
        console.print(part)
    if not measured and (times := breakdown(tables)):
        console.print(lines(times))
        if apart := apartness(tables):
            console.print(apart)
    console.print(f"data  {run.folder}", f'sql  d5ray sql {run.name} "select …"', sep="   ")


def replay(result: "Replay") -> None:
    """Print if the simulation, given a run's schedule, reached the run's parameters."""
    word, colour = ("PASS", "green") if result.agrees else ("FAIL", "red")
    out().print(
        f"d5ray replay  {result.run_id}  {count(result.steps, 'step')}", styled(f"  {word}", style=colour)
    )
    what = (
        "the run did what its algorithm says"
        if result.agrees
        else "the run did something else than its algorithm says"
    )
    out().print(
        f"{count(result.operations, 'operation')} done again in their order; the parameters differ by "
        f"{result.difference:.1e} of their norm (at most {result.tolerance:.0e}): {what}"
    )


def output_files(files: Sequence[Path]) -> None:
    """The files that a command wrote; of many the first, and how many more."""
    most = 4
    for file in files[:most]:
        out().print(str(file))
    if len(files) > most:
        out().print(f"and {count(len(files) - most, 'figure')} in {files[-1].parent}")


def criteria(verdicts: Sequence[Verdict]) -> ConsoleTable:
    """Print a line for each criterion."""
    table = ConsoleTable()
    for name in ("criterion", "", "target", "measured", "95% interval", "n", "verdict"):
        table.add_column(name, justify="left" if name in ("criterion", "", "n", "verdict") else "right")
    for v in verdicts:
        unit = "" if v.unit == "1" else f" ({v.unit})"
        table.add_row(
            v.metric + unit,
            "≥" if v.relation == ">=" else "≤",
            number(v.target),
            PLAIN.text(v.value),
            PLAIN.interval(v.low, v.high),
            f"{v.n} {v.sample_unit}" if v.n else "",
            styled(v.verdict, style=COLOURS.get(v.verdict, "")),
        )
    return table


def estimated(verdicts: Iterable[Verdict], metrics: Iterable[Mapping[str, Any]] = ()) -> str:
    """`step_time: largest over ranks, median over steps`: how what was measured is made, metric by metric.

    metrics: rows of the run's table `metrics`.
    """
    found = estimators([v.metric for v in verdicts], metrics)
    return "; ".join(f"{name}: {text}" for name, text in found.items())


def notes(verdicts: Iterable[Verdict]) -> list[str]:
    """Why something is missing or open, each reason once."""
    metrics: dict[str, list[str]] = {}
    for v in verdicts:
        if v.reason:
            metrics.setdefault(v.reason, []).append(v.metric)
    return [
        f"{names[0] if len(names) == 1 else count(len(names), 'criterion', 'criteria')}: {reason}"
        for reason, names in metrics.items()
    ]


def unsteady(tables: Mapping[str, pa.Table], verdicts: Iterable[Verdict]) -> list[str]:
    """The judged times of which many values are outliers: they count, and something disturbed the machine."""
    judged = pa.array(sorted({v.metric.partition("(")[0] for v in verdicts}), pa.utf8())
    samples = tables["samples"]
    samples = samples.filter(pc.is_in(samples["metric"].cast(pa.utf8()), value_set=judged))
    return [
        f"{row['metric']} of {row['scope']}: {row['outliers'] / row['n']:.0%} of {row['n']:,} values are "
        "outliers; all of them count: see what else the machine does"
        for row in summary({**tables, "samples": samples}).to_pylist()
        if row["unit"] == "s" and row["phase"] != "warmup" and row["n"] >= FEWEST_VALUES
        if (row["outliers"] or 0) > MOST_OUTLIERS * row["n"]
    ]


def breakdown(tables: Mapping[str, pa.Table]) -> str | None:
    """`medians: step 2.61 ms = data 0.05 | forward 0.9 | …`, of the slowest agent; they may not add up."""
    step = metric_named("step_time").estimate(tables).value
    if step is None:
        return None
    parts = [(name.removesuffix("_time"), metric_named(name).estimate(tables).value) for name in PARTS]
    shown = " | ".join(f"{name} {value * 1e3:.3g}" for name, value in parts if value is not None)
    alone = asynchrony.is_asynchronous(tables)
    rate = metric_named(f"{'asynchronous_' if alone else ''}samples_per_second").estimate(tables).value
    sent = metric_named("bytes_sent").estimate(tables).value
    said = ", each agent at its own pace (asynchronous_samples_per_second)" if alone else ""
    beside = [f"mean: {rate:,.0f} samples/s{said}"] if rate is not None else []
    if sent:
        beside.append(f"most sent: {size(sent)}")
    predicted = metric_named("predicted_exchange_time").estimate(tables).value
    if predicted is not None:
        beside.append(f"exchange predicted {predicted * 1e3:.3g} ms")
    return "\n".join(filter(None, (f"medians: step {step * 1e3:.3g} ms = {shown}", "   ".join(beside))))


def apartness(tables: Mapping[str, pa.Table]) -> str | None:
    """`mean staleness 2.2   …   all pushes by staleness 0: 18%, 1: 31%, …`: of agents that do not wait."""
    if not asynchrony.is_asynchronous(tables):
        return None
    parts = []
    for name, word in (
        ("staleness", "mean staleness"),
        ("clock_gap", "largest gap"),
        ("consensus_distance", "last consensus distance"),
        ("load_balance", "load balance"),
    ):
        value = metric_named(name).estimate(tables).value
        if value is not None:
            parts.append(f"{word} {value:.3g}")
    if counted := asynchrony.staleness_histogram(tables):
        total = sum(counted.values())
        most = sorted(counted, key=lambda stale: -counted[stale])[:MOST_STALENESSES]
        shown = ", ".join(f"{stale}: {counted[stale] / total:.0%}" for stale in sorted(most))
        parts.append(f"all pushes, warm-up included, by staleness {shown}; at most {max(counted)}")
    return "   ".join(parts) or None


def timings(seconds: Mapping[str, float]) -> None:
    """Print the times of the phases from the command to the first step."""
    table = ConsoleTable("stage", numbers=("seconds",), title="from the command to the first step")
    for name, value in seconds.items():
        table.add_row(name, f"{value:.2f}")
    err().print(table)


def runs(found: Sequence[Run]) -> None:
    """Print a line for each run, newest first: what it is, and how it differs from others like it."""
    rows = [run.row for run in found]
    table = ConsoleTable("run", "status", "verdict", "seed", "steps", "started (UTC)", "what it is")
    differing = besides(rows)
    if any(differing):
        table.add_column("besides")
    for run, row, other in zip(found, rows, differing, strict=True):
        cells = [
            run.name,
            row["status"],
            styled(row["verdict"] or "–", style=COLOURS.get(row["verdict"] or "", "")),
            str(row["seed"]),
            str(row["steps"] if row["steps"] is not None else "–"),
            f"{row['started']:%Y-%m-%d %H:%M}" if row["started"] else "–",
            in_words(row) or "–",
        ]
        table.add_row(*cells, *[other] * any(differing))
    out().print(table)


def pairs(lines: Mapping[str, str]) -> None:
    """A name and a text a line."""
    table = ConsoleTable(header=False)
    for name, text in lines.items():
        table.add_row(styled(name, style="bold"), text)
    out().print(table)


def arrow(table: pa.Table, limit: int = 1000) -> None:
    """A query's result, at most `limit` rows of it."""
    shown = ConsoleTable()
    for field in table.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        shown.add_column(field.name, justify="right" if numeric else "left")
    for row in table.slice(0, limit).to_pylist():
        shown.add_row(*map(cell, row.values()))
    out().print(shown)
    if table.num_rows > limit:
        err().print(f"{limit} of {table.num_rows} rows are shown; --json gives all", style="dim")


def cell(value: object) -> str:
    """A value as a table shows it."""
    if value is None:
        return "null"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
