"""Output of `d5ray bench`: a line for each problem and contender, and what is missing"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, final

import pyarrow as pa

from d5ray.dashboards.quantities import count, number, size, unit_of
from d5ray.display.console import ConsoleTable, Group, lines, out, styled
from d5ray.kits.laboratory.bench.deepbench import GROUPS
from d5ray.kits.laboratory.metrics import operator_calls
from d5ray.kits.laboratory.metrics.operator_calls import (
    PEAK_BYTE_RATE,
    PEAK_FLOP_RATE,
    missing,
    peak,
    timed_by,
)
from d5ray.kits.laboratory.metrics.side_by_side import time_of, time_ratio, times_by_pair
from d5ray.kits.laboratory.tables import contenders
from d5ray.metrics.record.reader import Run
from d5ray.metrics.statistics.intervals import Estimate

MOST_NAMES: Final = 4  # of what is missing for one reason
IN_CACHE, FEWER, BEYOND = "in cache", "fewer FLOP", "beyond the peak"  # why a share is above 100 %
OF_SAMPLES: Final = (operator_calls.NETWORK_TIME, operator_calls.LOADING_TIME)
REFUSED: Final = "not shown"  # a share that none of these explains
MOST_IN_CACHE, MOST_FEWER, MOST_BEYOND = 100.0, 6.0, 3.0  # shares that they explain
FEWER_IN: Final = (
    "conv",
    "convolutional network",
)  # groups and types whose algorithms may need fewer operations


@final
@dataclass(frozen=True)
class Measured:
    """One problem under one framework: the median time of a call, its 95 % interval, and what follows.

    n: fresh processes; share: of the roofline of this machine's measured peaks; bound: what limits it there;
    above: the kind of reason why the share is above 1, where it is. `explained` says it in full. A share that
    nothing explains is none.
    ratio: of the time to that of the first in the group, with its interval over pairs of processes; None of
    the first itself, and of a suite's problems, which are not compared with each other.
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
    samples_per_second: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None


def measured(run: Run) -> list[Measured]:
    """The measured problems: of a suite by group and rising operations, else in the order of the job."""
    tables = run.tables()
    job = json.loads(run.row["experiment"] or "{}")
    flops, moved = peak(tables, PEAK_FLOP_RATE), peak(tables, PEAK_BYTE_RATE)
    metric = timed_by(job)
    there = set(operator_calls.measured(tables, metric))
    cache = cache_bytes(tables, job)
    found, firsts = [], dict[str, str]()
    for name, known in sorted(job.get("problems", {}).items(), key=_place):
        for framework in job["frameworks"]:
            if (scope := f"{framework} {name}") not in there:
                continue
            time = time_of(tables, metric, scope)
            seconds = time.known
            share, bound, why = None, "", ""
            if flops is not None and moved is not None:
                share, bound = share_of_peak(known, flops[0], moved[0], seconds)
                why = above(share, bound, known, cache)
            beside, first = Estimate(None), firsts.setdefault(known["group"], scope)
            if first != scope and known["group"] not in GROUPS:
                beside = time_ratio(tables, metric, scope, first)
            found.append(
                Measured(
                    problem=name,
                    group=known["group"],
                    framework=framework,
                    seconds=seconds,
                    low=time.low,
                    high=time.high,
                    n=len(times_by_pair(tables, metric, scope)),
                    intensity=known["flops"] / known["bytes"] if known["bytes"] else 0.0,
                    flops_per_second=known["flops"] / seconds,
                    bytes_per_second=known["bytes"] / seconds,
                    share=None if why == REFUSED else share,
                    bound=bound,
                    above=why,
                    samples_per_second=known["batch"] / seconds if metric in OF_SAMPLES else None,
                    ratio=beside.value,
                    ratio_low=beside.low,
                    ratio_high=beside.high,
                )
            )
    return found


def _place(item: tuple[str, Mapping[str, Any]]) -> tuple[int, int, int, str]:
    name, known = item
    group = known["group"]
    if group in GROUPS:
        return GROUPS.index(group), 0, known["flops"], name
    return len(GROUPS), known["number"], 0, name


def share_of_peak(known: Mapping[str, Any], flops: float, moved: float, seconds: float) -> tuple[float, str]:
    """The least time that the peaks allow, over that of a call; and which of them limits it.

    known: of the problem, its "flops" and "bytes"; flops, moved: the peaks, operations and bytes a second.
    """
    computing, moving = known["flops"] / flops, known["bytes"] / moved
    return max(computing, moving) / seconds, "FLOP/s" if computing >= moving else "B/s"


def above(share: float, bound: str, known: Mapping[str, Any], cache: int) -> str:
    """The kind of reason why a share is above 1; empty where it is not, REFUSED where nothing explains it."""
    if share <= 1:
        return ""
    if bound == "B/s" and known["bytes"] <= cache:
        return IN_CACHE if share <= MOST_IN_CACHE else REFUSED
    if bound == "FLOP/s" and (known["group"] in FEWER_IN or known.get("type") in FEWER_IN):
        return FEWER if share <= MOST_FEWER else REFUSED
    return BEYOND if share <= MOST_BEYOND else REFUSED


def cache_bytes(tables: Mapping[str, pa.Table], job: Mapping[str, Any]) -> int:
    """The largest cache of a core; 0 where none is known, as on a GPU."""
    facts = {row["key"]: row["value"] for row in tables["environment"].to_pylist()}
    told = facts.get("cache_bytes", "")
    return int(told) if told.isdecimal() and job["device"] == "cpu" else 0


def explained(run: Run, found: Iterable[Measured]) -> list[str]:
    """A line for each kind of reason why shares of the peak are above 100 %."""
    tables = run.tables()
    cache = cache_bytes(tables, json.loads(run.row["experiment"] or "{}"))
    lines = {
        IN_CACHE: f"the operands fit in a cache of {size(cache)}, and 100 % is a copy past every cache",
        FEWER: "an algorithm such as Winograd's or a Fourier transform may need fewer operations than the "
        "definition, which are counted",
        BEYOND: "quicker than the square product or the copy that 100 % is: part of the operands stayed in a "
        "cache, the product has a better form, or the machine was slower when its peaks were measured",
        REFUSED: "no share is given where neither a cache nor a better algorithm explains it: the call does "
        "not do the work that is counted (it gives a view, or --flops has too many operations)",
    }
    kinds = {each.above for each in found}
    return [f"{kind}: {line}" for kind, line in lines.items() if kind in kinds]


def as_data(run: Run) -> dict[str, Any]:
    """The result as JSON data."""
    tables, row = run.tables(), run.row
    metric = timed_by(json.loads(row["experiment"] or "{}"))
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
        "missing": [{"scope": scope, "reason": reason} for scope, reason in missing(tables, metric).items()],
    }


def show(run: Run) -> None:
    """The table, the peaks that shares are of, and what is missing, on standard output."""
    row, console = run.row, out()
    job = json.loads(row["experiment"])
    title = job.get("title") or f"bench {job['suite']} {job['mode']}"
    told = [f"d5ray {title}", *(job[key] for key in ("dtype", "device") if key in job)]
    console.print(
        f"{'  '.join(told)}, {count(job['threads'], 'thread')}",
        styled(f"  {row['status']}", style="bold"),
        sep="",
    )
    if row["stop_reason"]:
        console.print(lines(row["stop_reason"], "yellow"))
    for part in body(run):
        console.print(part)
    console.print(f"data  {run.folder}", f'sql  d5ray sql {run.name} "select …"', sep="   ")


def tables_of(run: Run) -> list[Any]:
    """What a run of `d5ray bench`, or of contenders, came to; nothing for others."""
    return list(body(run)) or list(contenders.absolute(run.tables()))


def body(run: Run) -> Iterator[Any]:
    """The tables of a run of `d5ray bench`, its peaks, and what is to be said of them; nothing for others."""
    row, tables = run.row, run.tables()
    job = json.loads(row["experiment"] or "{}")
    if "problems" not in job:
        return
    found = measured(run)
    yield from sections(found, job["frameworks"])
    flops, moved = peak(tables, PEAK_FLOP_RATE), peak(tables, PEAK_BYTE_RATE)
    if flops is not None and moved is not None:
        yield (
            f"peaks measured here: {number(flops[0] / 1e9)} GFLOP/s ({flops[1]}, a square product), "
            f"{number(moved[0] / 1e9)} GB/s ({moved[1]}, copying)"
        )
    yield from (f"above 100 %, {line}" for line in explained(run, found))
    yield from (styled(f"! {line}", style="yellow") for line in left_out(tables, timed_by(job)))


def sections(found: list[Measured], frameworks: list[str]) -> Iterator[Group]:
    """A table for each group of a suite, or one for all: times with intervals, rates, shares and ratios."""
    groups: dict[str, list[Measured]] = defaultdict(list)
    own = [each for each in found if each.group not in GROUPS]
    if own:
        yield Group(styled("measured in turn", style="bold"), _beside_each_other(own))
    for each in found:
        if each.group in GROUPS:
            groups[each.group].append(each)
    for group, members in groups.items():
        measured = ("time", "95% interval", "n", "GFLOP/s", "GB/s", "FLOP/B", "of peak")
        table = ConsoleTable("problem", "framework", numbers=measured)
        last = ""
        for each in members:
            rates = (each.flops_per_second / 1e9, each.bytes_per_second / 1e9, each.intensity)
            table.add_row(*_cells(each, last), *map(_three, rates), _share(each) or "–")
            last = each.problem
        yield Group(styled(group, style="bold"), table)


def _beside_each_other(found: list[Measured]) -> ConsoleTable:
    """A table of what is compared within its groups; columns that nobody has a number for are left out."""
    columns = {
        "samples/s": [_rate(each.samples_per_second) for each in found],
        "GFLOP/s": [_rate(each.flops_per_second / 1e9) for each in found],
        "GB/s": [_rate(each.bytes_per_second / 1e9) for each in found],
        "of peak": [_share(each) for each in found],
        "times the first's": [_ratio(each) for each in found],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    table = ConsoleTable("problem", "by", numbers=("time", "95% interval", "n", *shown))
    last = ""
    for place, each in enumerate(found):
        table.add_row(*_cells(each, last), *(cells[place] or "–" for cells in shown.values()))
        last = each.problem
    return table


def _rate(value: float | None) -> str:
    return _three(value) if value else ""


def _share(each: Measured) -> str:
    if each.share is None:
        return each.above
    return f"{each.share:.0%} of {each.bound}" + (f", {each.above}" if each.above else "")


def _ratio(each: Measured) -> str:
    if each.ratio is None:
        return ""
    within = _interval(each.ratio_low, each.ratio_high, 1.0)
    return f"{_three(each.ratio)} {within}".removesuffix(" –")


def _interval(low: float | None, high: float | None, scale: float) -> str:
    return "–" if low is None or high is None else f"[{_three(low / scale)}, {_three(high / scale)}]"


def left_out(tables: Mapping[str, pa.Table], metric: str = operator_calls.OPERATOR_TIME) -> list[str]:
    """The problems that were not measured, by the kind of reason, with some names; the tables have all."""
    kinds: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for scope, reason in missing(tables, metric).items():
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
    unit = unit_of("s", [seconds])
    return f"{_three(seconds / unit.scale)} {unit.name}"


def _cells(each: Measured, last: str) -> tuple[str, ...]:
    """What, unless that is the last row's, by whom, in what time, of how many processes."""
    within = _interval(each.low, each.high, unit_of("s", [each.seconds]).scale)
    problem = "" if each.problem == last else each.problem
    return problem, each.framework, duration(each.seconds), within, str(each.n)


def _three(value: float) -> str:
    """Three significant digits, without an exponent.

    >>> _three(1234.5), _three(0.012345)
    ('1234', '0.0123')
    """
    if not value or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
