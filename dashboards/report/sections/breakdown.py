"""The section of step times: of what a step consists, setting by setting or agent by agent"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, final

import numpy as np

from d5ray.dashboards.quantities import Unit, number, unit_of
from d5ray.dashboards.report.document import Block, Figure, ReportTable, Section
from d5ray.dashboards.report.formats import figure_style
from d5ray.dashboards.report.subject import Setting, Subject
from d5ray.metrics.definitions.catalogue import StepTime
from d5ray.metrics.statistics.intervals import Estimate
from d5ray.metrics.views.steps import PARTS, parts_of_agents

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

OTHER_COLOUR: Final = "#b8c0c8"


@final
class StackedBar(NamedTuple):
    """The parts of a step, on average: seconds by part. whole: the time of a step as it is judged."""

    label: str
    parts: dict[str, float]
    whole: Estimate | None


def section(subject: Subject) -> Section | None:
    """A bar for each setting, or for each agent of a single run; None where no steps were timed."""
    settings = [s for s in subject.settings if any("step_time" in m.measured for m in s.members)]
    bars = [bar for bar in map(of_setting, settings) if bar.parts]
    if not bars:
        return None
    blocks: list[Block] = [_figure("step-time", "What a step consists of", bars), _table(bars)]
    if len(bars) == 1 and len(of := of_agents(settings[0])) > 1:
        blocks.insert(1, _figure("step-time-of-agents", "What a step of each agent consists of", of))
    return Section("step-time", "Time of a step", tuple(blocks))


def of_setting(setting: Setting) -> StackedBar:
    """The mean over the agents and their steps, and over runs; warm-up included."""
    found = [agent.parts for agent in of_agents(setting)]
    mean = {part: float(np.mean([parts[part] for parts in found])) for part in PARTS} if found else {}
    return StackedBar(setting.label, mean, setting.estimate(StepTime()))


def of_agents(setting: Setting) -> list[StackedBar]:
    """A bar for each agent, the mean over runs."""
    by_rank: dict[int, list[dict[str, float]]] = {}
    for member in setting.members:
        if "step_time" in member.measured:
            for row in parts_of_agents(member.view).to_pylist():
                by_rank.setdefault(row["rank"], []).append({part: row[part] for part in PARTS})
    return [
        StackedBar(f"agent {rank}", {part: float(np.mean([p[part] for p in of])) for part in PARTS}, None)
        for rank, of in sorted(by_rank.items())
    ]


def _worth_showing(bars: Sequence[StackedBar]) -> list[str]:
    """The parts that are more than a thousandth of a step somewhere."""
    return [part for part in PARTS if any(bar.parts[part] > 1e-3 * sum(bar.parts.values()) for bar in bars)]


def _figure(name: str, title: str, bars: Sequence[StackedBar]) -> Figure:
    judged = any(bar.whole is not None and bar.whole.value is not None for bar in bars)
    more = " The diamond is the median step of the slowest agent, with its 95 % interval." if judged else ""
    told = (
        "The mean time of a step by its parts; `wait` is the part of the exchange spent waiting for others."
    )
    return Figure(name, title, told + more, lambda: _drawn(bars))


def _drawn(bars: Sequence[StackedBar]) -> "Drawing":
    unit = unit_of("s", [sum(bar.parts.values()) for bar in bars])
    shown = _worth_showing(bars)
    with figure_style.drawing(1.25 + 0.5 * len(bars)) as (figure, axes):
        for row, bar in enumerate(reversed(bars)):
            begin = 0.0
            for part in shown:
                length, at = bar.parts[part] / unit.scale, PARTS.index(part)
                colour = (
                    OTHER_COLOUR if part == "other" else figure_style.COLOURS[at % len(figure_style.COLOURS)]
                )
                axes.barh(
                    row, length, left=begin, height=0.5, color=colour, hatch=figure_style.HATCHES[at],
                    edgecolor=figure_style.PAPER, linewidth=0.4, label=part if row == 0 else None,
                )  # fmt: skip
                begin += length
            _whole(axes, row, bar, unit)
            axes.annotate(
                figure_style.short(bar.label), (0, row + 0.29), fontsize=9, va="bottom", xytext=(1, 0),
                textcoords="offset points",
            )  # fmt: skip
        axes.set_ylim(-0.45, len(bars) - 0.25)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(f"time of a step{unit.axis}")
        figure.legend(loc="outside lower center", ncols=4, handlelength=1.6, columnspacing=1.2)
        return figure


def _whole(axes: object, row: int, bar: StackedBar, unit: Unit) -> None:
    """The judged time of a step with its interval."""
    if bar.whole is None or bar.whole.value is None:
        return
    value = bar.whole.value / unit.scale
    low, high = (value if bound is None else bound / unit.scale for bound in (bar.whole.low, bar.whole.high))
    axes.errorbar(  # type: ignore[attr-defined]
        value, row, xerr=[[value - low], [high - value]], fmt="D", color=figure_style.INK, markersize=4.5,
        markerfacecolor=figure_style.PAPER, zorder=5,
    )  # fmt: skip


def _table(bars: Sequence[StackedBar]) -> ReportTable:
    unit = unit_of("s", [sum(bar.parts.values()) for bar in bars])
    shown = _worth_showing(bars)
    rows = []
    for bar in bars:
        whole = sum(bar.parts.values())
        cells = (
            f"{number(bar.parts[part] / unit.scale)} ({bar.parts[part] / whole if whole else 0:.0%})"
            for part in shown
        )
        rows.append((bar.label, number(whole / unit.scale), *cells))
    header = ("setting", f"step{unit.axis}", *shown)
    return ReportTable("Mean time of a step by its parts", header, rows, frozenset(range(1, len(header))))
