"""What a command shows in a terminal: the verdict, runs, tables, timings."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from d5ray.metrics import side_by_side
from d5ray.metrics.definitions import Verdict, metric_named
from d5ray.metrics.store import Run

if TYPE_CHECKING:
    from d5ray.actors.group import TrainingGroup

COLOURS = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow"}
PARTS = ("data_time", "forward_time", "backward_time", "exchange_time", "update_time", "record_time")


def out() -> Console:
    """Standard output; wide enough for tables in a pipe, without colours there."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def err() -> Console:
    """Standard error: everything that is not the result."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def announce(group: "TrainingGroup") -> None:
    """Say what begins, and where to watch it."""
    nodes = len({place.node for place in group.places})
    text = f"{group.run_id}  {count(len(group.agents), 'agent')} on {count(nodes, 'node')}"
    if group.session.dashboard:
        text += f"  dashboard {group.session.dashboard}"
    err().print(text, style="dim")


def verdict(run: Run, verdicts: Sequence[Verdict], overall: str | None) -> None:
    """The table of criteria with the verdict of each, the parts of a step, and where the data are."""
    row, tables, console = run.row, run.tables(), out()
    agents = count(row["agents"], "agent")
    title = f"d5ray  {row['recipe']}  seed {row['seed']}  {agents}  {row['steps'] or 0} steps"
    console.print(
        title, Text(f"  {overall or row['status']}", style=COLOURS.get(overall or "", "bold")), sep=""
    )
    if row["stop_reason"]:
        console.print(f"{row['status']}: {row['stop_reason']}", style="red", markup=False)
    if verdicts:
        console.print(criteria(verdicts))
    notes = [f"{v.metric}: {v.reason}" for v in verdicts if v.reason]
    for note in notes:
        console.print(f"! {note}", style="yellow", markup=False)
    if compared := contenders(tables):
        console.print(compared)
    elif parts := breakdown(tables):
        console.print(parts)
    console.print(f"data  {run.folder}", f'sql  d5ray sql {run.name} "select …"', sep="   ")


def criteria(verdicts: Sequence[Verdict]) -> Table:
    """One line a criterion."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("criterion", "", "target", "measured", "95% interval", "n", "verdict"):
        table.add_column(name, justify="left" if name in ("criterion", "", "n", "verdict") else "right")
    for v in verdicts:
        interval = "" if v.low is None or v.high is None else f"[{number(v.low)}, {number(v.high)}]"
        unit = "" if v.unit == "1" else f" ({v.unit})"
        table.add_row(
            v.metric + unit,
            "≥" if v.relation == ">=" else "≤",
            number(v.target),
            "–" if v.value is None else number(v.value),
            interval,
            f"{v.n} {v.sample_unit}" if v.n else "",
            Text(v.verdict, style=COLOURS[v.verdict]),
        )
    return table


def contenders(tables: Mapping[str, pa.Table]) -> Table | None:
    """The absolute step times behind the ratios, where contenders were measured side by side."""
    names = side_by_side.contenders(tables)
    if not names:
        return None
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("contender")
    for name in ("step (ms)", "95% interval"):
        table.add_column(name, justify="right")
    table.add_column("n")
    for name in names:
        found = side_by_side.StepTimeOf(name).estimate(tables)
        value, low, high = (
            None if time is None else number(time * 1e3) for time in (found.value, found.low, found.high)
        )
        interval = f"[{low}, {high}]" if low and high else ""
        table.add_row(Text(name), value or "–", interval, f"{found.n} {found.sample_unit}")
    return table


def breakdown(tables: Mapping[str, pa.Table]) -> str | None:
    """`step 2.61 ms = data 0.05 | forward 0.9 | …`: the medians; they need not add up exactly."""
    step = metric_named("step_time").estimate(tables).value
    if step is None:
        return None
    parts = [(name.removesuffix("_time"), metric_named(name).estimate(tables).value) for name in PARTS]
    shown = " | ".join(f"{name} {value * 1e3:.3g}" for name, value in parts if value is not None)
    rate = metric_named("samples_per_second").estimate(tables).value
    sent = metric_named("bytes_sent").estimate(tables).value
    text = f"step {step * 1e3:.3g} ms = {shown}"
    if rate is not None:
        text += f"   {rate:,.0f} samples/s"
    if sent:
        text += f"   {size(sent)} sent an agent"
    return text


@contextmanager
def rounds(title: str, total: int, *, show: bool) -> Iterator[Callable[[str], None]]:
    """Gives a function that says what begins now; shown as a bar on a terminal, and not in a pipe.

    Draws only when it is called: a thread that draws would disturb what is measured meanwhile.
    """
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        disable=not (show and sys.stderr.isatty()),
    )
    task = bar.add_task(title, total=total)
    begun = 0

    def begin(what: str) -> None:
        nonlocal begun
        bar.update(task, description=f"{title}  {escape(what)}", completed=begun, refresh=True)
        begun += 1

    with bar:
        yield begin


def timings(seconds: Mapping[str, float]) -> None:
    """Where the time from the command to the first step went."""
    table = Table(box=None, pad_edge=False, header_style="bold", title="from the command to the first step")
    table.add_column("stage")
    table.add_column("seconds", justify="right")
    for name, value in seconds.items():
        table.add_row(name, f"{value:.2f}")
    err().print(table)


def runs(found: Iterable[Run]) -> None:
    """One line a run, newest first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "status", "verdict", "agents", "steps", "seed", "started (UTC)"):
        table.add_column(name)
    for run in found:
        row = run.row
        table.add_row(
            run.name,
            row["status"],
            Text(row["verdict"] or "–", style=COLOURS.get(row["verdict"] or "", "")),
            str(row["agents"]),
            str(row["steps"] if row["steps"] is not None else "–"),
            str(row["seed"]),
            f"{row['started']:%Y-%m-%d %H:%M:%S}" if row["started"] else "–",
        )
    out().print(table)


def pairs(lines: Mapping[str, str]) -> None:
    """A name and a text a line."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, text in lines.items():
        table.add_row(Text(name, style="bold"), text)
    out().print(table)


def arrow(table: pa.Table, limit: int = 1000) -> None:
    """A query's result, at most `limit` rows of it."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for field in table.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        shown.add_column(field.name, justify="right" if numeric else "left")
    for row in table.slice(0, limit).to_pylist():
        shown.add_row(*("null" if value is None else _cell(value) for value in row.values()))
    out().print(shown)
    if table.num_rows > limit:
        err().print(f"{limit} of {table.num_rows} rows are shown; --json gives all", style="dim")


def as_json(data: Any) -> None:
    """JSON on standard output, and nothing else there."""
    sys.stdout.write(json.dumps(_finite(data), indent=2, default=str, allow_nan=False) + "\n")


def number(value: float) -> str:
    """A number with as many digits as a reader wants.

    >>> number(0.0026108), number(20094.53), number(0.97), number(12.0)
    ('0.00261', '20,095', '0.97', '12')
    """
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 0.01 else f"{value:.3g}"


def size(count_of_bytes: float) -> str:
    """Bytes in the nearest unit.

    >>> size(39350240)
    '39.4 MB'
    """
    units = ("B", "kB", "MB", "GB", "TB")
    power = min(int(math.log10(max(count_of_bytes, 1)) // 3), len(units) - 1)
    return f"{count_of_bytes / 1000**power:.3g} {units[power]}"


def count(amount: int, noun: str) -> str:
    """The amount with its noun in the right number.

    >>> count(1, "agent"), count(2, "agent")
    ('1 agent', '2 agents')
    """
    return f"{amount} {noun}" + ("" if amount == 1 else "s")


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _finite(data: Any) -> Any:
    """JSON knows no NaN: the text stands for it."""
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return data
