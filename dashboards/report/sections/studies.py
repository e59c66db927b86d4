"""The section of contenders side by side: the tables that a terminal shows, and optimizers' profiles"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from d5ray.dashboards.report.document import Block, Figure, ReportTable, Section
from d5ray.dashboards.report.formats import figure_style
from d5ray.dashboards.report.subject import Subject
from d5ray.display.console import ConsoleTable as RichTable
from d5ray.display.console import Group, Text
from d5ray.kits.laboratory.metrics.performance_profiles import (
    MEASURES,
    WORST_RATIO,
    medians_of,
    ratios_of,
    score,
    share,
)
from d5ray.kits.laboratory.tables import contenders, profile_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Ratios = Mapping[str, Mapping[str, float]]
APART = 0.006  # between lines of equal value, so that none hides another


def section(subject: Subject) -> Section | None:
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
