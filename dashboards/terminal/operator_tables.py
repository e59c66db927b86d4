"""Output of a measurement of operators: a line for each problem and framework, and what is missing"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, final

import pyarrow as pa

from d5ray.dashboards.numbers import count, number, size
from d5ray.display.console import ConsoleTable, Group, lines, out, styled
from d5ray.metrics.definitions import operator_calls
from d5ray.metrics.definitions.operator_calls import (
    OPERATOR_TIME,
    PEAK_BYTE_RATE,
    PEAK_FLOP_RATE,
    missing,
    peak,
)
from d5ray.metrics.definitions.side_by_side import time_of, times_by_pair
from d5ray.metrics.record.reader import Run
from d5ray.ops.deepbench.problems import GROUPS

MOST_NAMES: Final = 4  # of what is missing for one reason
IN_CACHE, FEWER, BEYOND = "in cache", "fewer FLOP", "beyond the peak"  # why a share is above 100 %
SCALES: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@final
@dataclass(frozen=True)
class Measured:
    """One problem under one framework: the median time of a call, its 95 % interval, and what follows.

    n: fresh processes; share: of the roofline of this machine's measured peaks; bound: what limits it there;
    above: the kind of reason why the share is above 1, where it is. `explained` says it in full.
    """

    problem: str
    group: str
    framework: str
    seconds: float
    low: float | None
    high: float | None
    n: int
    intensity: float
    flops_per_second: float
    bytes_per_second: float
    share: float | None
    bound: str
    above: str = ""


def measured(run: Run) -> list[Measured]:
    """The measured problems: products, convolutions, recurrent layers, each by rising operations."""
    tables = run.tables()
    job = json.loads(run.row["experiment"] or "{}")
    flops, moved = peak(tables, PEAK_FLOP_RATE), peak(tables, PEAK_BYTE_RATE)
    there = set(operator_calls.measured(tables))
    cache = _cache_bytes(tables, job)
    return [
        _measured(tables, name, framework, known, flops, moved, cache)
        for name, known in sorted(job.get("problems", {}).items(), key=_place)
        for framework in job["frameworks"]
        if f"{framework} {name}" in there
    ]


def _place(item: tuple[str, Mapping[str, Any]]) -> tuple[int, int, str]:
    name, known = item
    return GROUPS.index(known["group"]), known["flops"], name


def _measured(
    tables: Mapping[str, pa.Table],
    problem: str,
    framework: str,
    known: Mapping[str, Any],
    flops: tuple[float, str] | None,
    moved: tuple[float, str] | None,
    cache: int,
) -> Measured:
    scope = f"{framework} {problem}"
    found = time_of(tables, OPERATOR_TIME, scope)
    seconds = found.known
    share, bound = None, ""
    if flops is not None and moved is not None:
        computing, moving = known["flops"] / flops[0], known["bytes"] / moved[0]
        share = max(computing, moving) / seconds
        bound = "FLOP/s" if computing >= moving else "B/s"
    return Measured(
        problem=problem,
        group=known["group"],
        framework=framework,
        seconds=seconds,
        low=found.low,
        high=found.high,
        n=len(times_by_pair(tables, OPERATOR_TIME, scope)),
        intensity=known["flops"] / known["bytes"],
        flops_per_second=known["flops"] / seconds,
        bytes_per_second=known["bytes"] / seconds,
        share=share,
        bound=bound,
        above=_above(share or 0.0, bound, known, cache),
    )


def _above(share: float, bound: str, known: Mapping[str, Any], cache: int) -> str:
    if share <= 1:
        return ""
    if bound == "B/s" and known["bytes"] <= cache:
        return IN_CACHE
    return FEWER if bound == "FLOP/s" and known["group"] == "conv" else BEYOND


def _cache_bytes(tables: Mapping[str, pa.Table], job: Mapping[str, Any]) -> int:
    """The largest cache of a core; 0 where none is known, as on a GPU."""
    facts = {row["key"]: row["value"] for row in tables["environment"].to_pylist()}
    told = facts.get("cache_bytes", "")
    return int(told) if told.isdecimal() and job["device"] == "cpu" else 0


def explained(run: Run, found: Iterable[Measured]) -> list[str]:
    """A line for each kind of reason why shares of the peak are above 100 %."""
    tables = run.tables()
    cache = _cache_bytes(tables, json.loads(run.row["experiment"] or "{}"))
    lines = {
        IN_CACHE: f"the operands fit in a cache of {size(cache)}, and 100 % is a copy past every cache",
        FEWER: "an algorithm such as Winograd's or a Fourier transform may need fewer operations than the "
        "definition, which are counted",
        BEYOND: "quicker than the square product or the copy that 100 % is: part of the operands stayed in a "
        "cache, the product has a better form, or the machine was slower when its peaks were measured",
    }
    kinds = {each.above for each in found}
    return [f"{kind}: {line}" for kind, line in lines.items() if kind in kinds]


def as_data(run: Run) -> dict[str, Any]:
    """The result as JSON data."""
    tables, row = run.tables(), run.row
    peaks = {name: peak(tables, name) for name in (PEAK_FLOP_RATE, PEAK_BYTE_RATE)}
    return {
        "run": run.name,
        "folder": str(run.folder),
        "status": row["status"],
        "reason": row["stop_reason"],
        "peaks": {
            name: None if found is None else {"value": found[0], "framework": found[1]}
            for name, found in peaks.items()
        },
        "operators": [asdict(each) for each in measured(run)],
        "missing": [{"scope": scope, "reason": reason} for scope, reason in missing(tables).items()],
    }


def show(run: Run) -> None:
    """The table, the peaks that shares are of, and what is missing, on standard output."""
    row, tables, console = run.row, run.tables(), out()
    job = json.loads(row["experiment"])
    console.print(
        f"d5ray bench operators  {job['suite']} {job['mode']}  {job['dtype']}  {job['device']}, "
        f"{count(job['threads'], 'thread')}",
        styled(f"  {row['status']}", style="bold"),
        sep="",
    )
    if row["stop_reason"]:
        console.print(lines(row["stop_reason"], "yellow"))
    found = measured(run)
    for section in sections(found, job["frameworks"]):
        console.print(section)
    flops, moved = peak(tables, PEAK_FLOP_RATE), peak(tables, PEAK_BYTE_RATE)
    if flops is not None and moved is not None:
        console.print(
            f"peaks measured here: {number(flops[0] / 1e9)} GFLOP/s ({flops[1]}, a square product), "
            f"{number(moved[0] / 1e9)} GB/s ({moved[1]}, copying)"
        )
    for line in explained(run, found):
        console.print(f"above 100 %, {line}")
    for line in left_out(tables):
        console.print(f"! {line}", style="yellow")
    console.print(f"data  {run.folder}", f'sql  d5ray sql {run.name} "select …"', sep="   ")


def sections(found: list[Measured], frameworks: list[str]) -> Iterator[Group]:
    """A table for each group of problems: times with intervals by framework, rates and shares."""
    groups: dict[str, list[Measured]] = defaultdict(list)
    for each in found:
        groups[each.group].append(each)
    for group, members in groups.items():
        measured = ("time", "95% interval", "n", "GFLOP/s", "GB/s", "FLOP/B", "of peak")
        table = ConsoleTable("problem", "framework", numbers=measured)
        last = ""
        for each in members:
            table.add_row(*_cells(each, each.problem == last))
            last = each.problem
        yield Group(styled(group, style="bold"), table)


def left_out(tables: Mapping[str, pa.Table]) -> list[str]:
    """The problems that were not measured, by the kind of reason, with some names; the tables have all."""
    kinds: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for scope, reason in missing(tables).items():
        told = reason.removeprefix("unavailable: ")
        kind = told.partition(":")[0]
        kinds[kind if kind in ("time", "memory", "budget") else told].append((scope, told))
    lines = []
    for kind, members in kinds.items():
        named = "; ".join(scope for scope, _ in members[:MOST_NAMES])
        more = f"; and {len(members) - MOST_NAMES} more" if len(members) > MOST_NAMES else ""
        what = {
            "time": "too long for the budget",
            "memory": "too large for this machine",
            "budget": members[0][1].removeprefix("budget: "),
        }.get(kind, kind)
        lines.append(f"{len(members)} {what}: {named}{more}")
    if lines:
        lines.append(
            'all, with the reasons: d5ray sql last "select scope, status from samples where value is null"'
        )
    return lines


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> duration(0.00123), duration(2.5e-7)
    ('1.23 ms', '250 ns')
    """
    scale, unit = _scale(seconds)
    return f"{_three(seconds / scale)} {unit}"


def _cells(each: Measured, same: bool) -> tuple[str, ...]:
    scale, unit = _scale(each.seconds)
    known = each.low is not None and each.high is not None
    interval = f"[{_three(each.low / scale)}, {_three(each.high / scale)}]" if known else "–"  # type: ignore[operator]
    share = "–" if each.share is None else f"{each.share:.0%} of {each.bound}"
    if each.above:
        share += f", {each.above}"
    return (
        "" if same else each.problem,
        each.framework,
        f"{_three(each.seconds / scale)} {unit}",
        interval,
        str(each.n),
        _three(each.flops_per_second / 1e9),
        _three(each.bytes_per_second / 1e9),
        _three(each.intensity),
        share,
    )


def _scale(seconds: float) -> tuple[float, str]:
    return next((pair for pair in SCALES if seconds >= pair[0]), SCALES[-1])


def _three(value: float) -> str:
    """Three significant digits, without an exponent.

    >>> _three(1234.5), _three(0.012345)
    ('1234', '0.0123')
    """
    if not value or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
