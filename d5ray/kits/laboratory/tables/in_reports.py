"""Sections of a report: contenders side by side with optimizers' profiles, and benches below their roofline

Williams, Waterman and Patterson, doi 10.1145/1498765.1498785.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from d5ray.dashboards.report.document import Block, Figure, Note, ReportTable, Section
from d5ray.dashboards.report.formats import figure_style
from d5ray.dashboards.report.subject import Member, Subject
from d5ray.display.console import ConsoleTable as RichTable
from d5ray.display.console import Group, Text
from d5ray.kits.laboratory.metrics.operator_calls import (
    OPERATOR_TIME,
    PEAK_BYTE_RATE,
    PEAK_FLOP_RATE,
    peak,
    timed_by,
)
from d5ray.kits.laboratory.metrics.performance_profiles import (
    MEASURES,
    WORST_RATIO,
    medians_of,
    ratios_of,
    score,
    share,
)
from d5ray.kits.laboratory.tables import contenders, profile_tables
from d5ray.kits.laboratory.tables.operator_tables import Measured, explained, left_out, measured, sections

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Ratios = Mapping[str, Mapping[str, float]]
APART = 0.006  # between lines of equal value, so that none hides another


def of_contenders(subject: Subject) -> Section | None:
    """The numbers behind the ratios of runs that measured baselines; None for runs of agents."""
    blocks: list[Block] = []
    for member in subject.members:
        if "problems" in member.described:  # of a bench, which has a section of its own
            continue
        scopes = member.view.ask("SELECT DISTINCT scope FROM samples")["scope"].to_pylist()
        if any("[" in scope for scope in scopes):
            prefix = f"{member.name}: " if len(subject.members) > 1 else ""
            tables = member.run.tables()
            for by in profile_tables.SHOWN:
                if any((ratios := ratios_of(medians_of(tables, MEASURES[by]))).values()):
                    blocks.append(_profile(ratios, by, member.name))
            blocks += [converted(table, prefix) for table in contenders.absolute(tables)]
    return Section("contenders", "Contenders", tuple(blocks)) if blocks else None


def converted(shown: RichTable | Group, prefix: str = "") -> ReportTable:
    """A table of the terminal, with the title that stands above it, or that its first column has."""
    title = ""
    if isinstance(shown, Group):
        title = str(shown.renderables[0])
        shown = next(each for each in shown.renderables if isinstance(each, RichTable))
    header = tuple(str(column.header) for column in shown.columns)
    cells = [[_plain(cell) for cell in column.cells] for column in shown.columns]
    numeric = frozenset(at for at, column in enumerate(shown.columns) if column.justify == "right")
    return ReportTable(prefix + (title or header[0]), header, list(zip(*cells, strict=True)), numeric)


def _profile(ratios: Ratios, by: str, run: str) -> Figure:
    told = (
        f"The share of workloads whose target an optimizer reached within τ times the fewest {by} of all "
        "(Dolan and Moré, arXiv:cs/0102001); behind each name AlgoPerf's score."
    )
    name = f"performance-profile-by-{by}-{run}"
    return Figure(name, f"Performance profile by {by}: {run}", told, lambda: _drawn(ratios, by))


def _drawn(ratios: Ratios, by: str) -> "Drawing":
    names = profile_tables.best_first(ratios)
    labels = [f"{figure_style.short(name)}  {score(ratios[name]):.2f}" for name in names]
    taus = sorted(
        {1.0, WORST_RATIO, *(r for own in ratios.values() for r in own.values() if r <= WORST_RATIO)}
    )
    with figure_style.drawing(2.9 + figure_style.legend_height(labels)) as (figure, axes):
        for index, (name, label) in enumerate(zip(names, labels, strict=True)):
            style = figure_style.line_style(index)
            shares = [share(ratios[name], tau) + index * APART for tau in taus]
            axes.step(taus, shares, where="post", color=style.colour, linestyle=style.dashes, label=label)
        axes.set_xlim(1.0, WORST_RATIO)
        axes.set_ylim(0.0, 1.06)
        axes.set_xlabel(f"τ: {by} to the target over the fewest")
        axes.set_ylabel("share of workloads")
        figure_style.legend(figure, axes, labels)
        return figure


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


# -- benches ----------------------------------------------------------------------------------------------

OPERATORS: Final = "Operators"


def of_benches(subject: Subject) -> Section | None:
    """A table, and where peaks are known a roofline, for each run of a bench; None where there is none."""
    blocks: list[Block] = []
    kinds = set()
    for member in subject.members:
        if "problems" in member.described and timed_by(member.described) in member.measured:
            blocks += _bench(member)
            kinds.add(timed_by(member.described))
    title = OPERATORS if kinds == {OPERATOR_TIME} else "Bench"
    return Section("operators", title, tuple(blocks)) if blocks else None


def _bench(member: Member) -> list[Block]:
    tables, found = member.run.tables(), measured(member.run)
    flops, moved = peak(tables, PEAK_FLOP_RATE), peak(tables, PEAK_BYTE_RATE)
    blocks: list[Block] = []
    drawn = [each for each in found if each.intensity]  # of which the operations are known
    if drawn and flops is not None and moved is not None:
        told = (
            "Operations a second over operations a byte that must be moved, with 95 % intervals. The roof is "
            f"what was measured in this run: {flops[0] / 1e9:.4g} GFLOP/s ({flops[1]}, a square product) and "
            f"{moved[0] / 1e9:.4g} GB/s ({moved[1]}, copying)."
        )
        roof = flops[0], moved[0]
        blocks.append(
            Figure(
                f"roofline-{member.name}", f"Roofline: {member.name}", told, lambda: _roofline(drawn, *roof)
            )
        )
    elif drawn:
        blocks.append(Note(f"{member.name} measured no peaks, so there is no roof to draw."))
    for group in sections(found, member.described["frameworks"]):
        what = OPERATORS if timed_by(member.described) == OPERATOR_TIME else member.described["title"]
        blocks.append(converted(group, f"{what}: "))
    blocks += [Note(f"Above 100 %, {text}.") for text in explained(member.run, found)]
    blocks += [Note(text) for text in left_out(tables, timed_by(member.described))]
    return blocks


def _roofline(found: Sequence[Measured], flops: float, moved: float) -> "Drawing":
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415

    frameworks = list(dict.fromkeys(each.framework for each in found))
    groups = list(dict.fromkeys(each.group for each in found))
    names = [f"{each.framework}, {each.group}" for each in found]
    with figure_style.drawing(3.6 + figure_style.legend_height(list(dict.fromkeys(names)))) as (figure, axes):
        for framework in frameworks:
            for group in groups:
                own = [each for each in found if (each.framework, each.group) == (framework, group)]
                if own:
                    _marks(axes, own, frameworks.index(framework), groups.index(group))
        low = min(each.intensity for each in found) / 2
        high = max(*(each.intensity for each in found), flops / moved) * 3
        x = np.array([low, flops / moved, high])
        axes.plot(x, np.minimum(flops, x * moved), color=figure_style.INK, linewidth=1.6, zorder=1)
        figure_style.logarithmic(axes, "x", low, high)
        slowest = min(each.flops_per_second for each in found)
        figure_style.logarithmic(axes, "y", slowest, flops)
        axes.set_ylim(slowest / 2, flops * 2.2)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e9:,.6g}"))
        axes.set_xlabel("operations a byte that must be moved (FLOP/B)")
        axes.set_ylabel("operations a second (GFLOP/s)")
        figure_style.legend(figure, axes, list(dict.fromkeys(names)))
        return figure


def _marks(axes: object, own: Sequence[Measured], framework: int, group: int) -> None:
    rates = np.array([each.flops_per_second for each in own])
    work = rates * np.array([each.seconds for each in own])
    slow = np.array([each.seconds if each.high is None else each.high for each in own])
    quick = np.array([each.seconds if each.low is None else each.low for each in own])
    axes.errorbar(  # type: ignore[attr-defined]
        [each.intensity for each in own], rates, yerr=[rates - work / slow, work / quick - rates],
        fmt=figure_style.MARKERS[group % len(figure_style.MARKERS)], color=figure_style.COLOURS[framework %
        len(figure_style.COLOURS)], markersize=5, alpha=0.85, elinewidth=0.9, capsize=2,
        label=f"{own[0].framework}, {own[0].group}",
    )  # fmt: skip
