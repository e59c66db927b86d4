"""Exchanges measured by their size: the times, and the latency and bandwidth that fit them best"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np

from d5ray.dashboards.quantities import number, size, spread, told
from d5ray.dashboards.report.document import Block, Figure, ReportTable
from d5ray.dashboards.report.formats import figure_style
from d5ray.dashboards.report.subject import Member, Subject
from d5ray.distributed.network_cost import fit
from d5ray.kits.laboratory.metrics.exchanges import ALLREDUCE_TIME
from d5ray.kits.laboratory.metrics.side_by_side import contenders, time_of
from d5ray.kits.laboratory.tables.studies import Scope
from d5ray.metrics.statistics.intervals import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

BYTES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}


@final
class BySize(NamedTuple):
    """A contender's times by bytes, and α (s) and β (s/B) of α + β·bytes through them."""

    name: str
    times: dict[float, Estimate]
    latency: float
    seconds_per_byte: float


def blocks_of(subject: Subject) -> list[Block]:
    """A figure and a table for each run that measured allreduces; none otherwise."""
    blocks: list[Block] = []
    for member in subject.members:
        if ALLREDUCE_TIME in member.measured and (found := found_by_size(member)):
            blocks += [_figure(member, found), _table(found)]
    return blocks


def found_by_size(member: Member) -> list[BySize]:
    """Every contender that was measured at two sizes or more."""
    tables = member.tables((ALLREDUCE_TIME,))
    times: dict[str, dict[float, Estimate]] = {}
    for scope in contenders(tables, ALLREDUCE_TIME):
        name, agents, at = Scope.of(scope)
        length = bytes_of(at)
        if length is not None:
            contender = f"{name}[{agents}]"
            times.setdefault(contender, {})[length] = time_of(tables, ALLREDUCE_TIME, contender, at)
    return [
        BySize(name, dict(sorted(of.items())), *fit(list(of), [each.value or np.nan for each in of.values()]))
        for name, of in times.items()
        if len(of) > 1
    ]


def bytes_of(text: str) -> float | None:
    """`64 kB` in bytes; None for what is no size.

    >>> bytes_of("64 kB"), bytes_of("4 B"), bytes_of("large")
    (64000.0, 4.0, None)
    """
    found = re.fullmatch(r"([\d.]+) ?([kMG]?B)", text)
    return float(found[1]) * BYTES[found[2]] if found else None


def _figure(member: Member, found: Sequence[BySize]) -> Figure:
    told = (
        "The time of an allreduce over its size, with 95 % intervals; the thin lines are the latency and the "
        "bandwidth that fit each best."
    )
    return Figure(
        f"allreduce-{member.name}", f"Allreduce by size: {member.name}", told, lambda: _drawn(found)
    )


def _drawn(found: Sequence[BySize]) -> "Drawing":
    names = [figure_style.short(each.name, 30) for each in found]
    with figure_style.drawing(3.5 + figure_style.legend_height(names)) as (figure, axes):
        for index, each in enumerate(found):
            style = figure_style.line_style(index)
            sizes = np.array(list(each.times))
            values, errors = spread(list(each.times.values()), 1e-3)
            axes.errorbar(sizes, values, errors, fmt=style.marker, color=style.colour, label=names[index])
            x = np.geomspace(sizes[0], sizes[-1], 60)
            axes.plot(x, (each.latency + each.seconds_per_byte * x) * 1e3, color=style.colour, linewidth=0.9,
                      linestyle=style.dashes)  # fmt: skip
        figure_style.logarithmic(axes, "x", *_ends(length for each in found for length in each.times))
        taken = (time.value for each in found for time in each.times.values())
        figure_style.logarithmic(axes, "y", *_ends(1e3 * value for value in taken if value))
        axes.xaxis.set_major_formatter(lambda value, _: size(value))
        axes.set_xlabel("size of the array (B)")
        axes.set_ylabel("time of an allreduce (ms)")
        figure_style.legend(figure, axes, names)
        return figure


def _ends(values: Iterable[float]) -> tuple[float, float]:
    kept = sorted(values)
    return kept[0], kept[-1]


def _table(found: Sequence[BySize]) -> ReportTable:
    rows = []
    for each in found:
        rate = "–" if not each.seconds_per_byte else f"{number(1e-9 / each.seconds_per_byte)} GB/s"
        rows.append((each.name, told(Estimate(each.latency), "s"), rate))
    return ReportTable(
        "Latency and bandwidth that fit best", ("contender", "latency", "bandwidth"), rows, frozenset({1, 2})
    )
