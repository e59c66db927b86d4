"""The section of comparison: every setting against the first, metric by metric, as ratios with intervals"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from d5ray.dashboards.quantities import count, unit_of
from d5ray.dashboards.report.document import Block, Figure, Mark, Note, ReportTable, Section, TableCell
from d5ray.dashboards.report.formats import figure_style
from d5ray.dashboards.report.sections.verdict import other_rate
from d5ray.dashboards.report.subject import Setting, Subject
from d5ray.metrics.judge.comparison import METRICS, RunComparison, compare
from d5ray.metrics.judge.differences import BAD, DECIDED, GOOD, TOLERANCE, MetricDifference

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

COLOURS: Final = dict.fromkeys(GOOD, figure_style.GOOD) | dict.fromkeys(BAD, figure_style.BAD)
FORMS: Final = dict.fromkeys(GOOD, "o") | dict.fromkeys(BAD, "X") | {"inconclusive": "D"}
MOST_COMPARED: Final = 6  # settings
MOST_NAMED: Final = 6  # keys of FIXED
COMPLETED: Final = "completed"
CLEAR: Final = (*DECIDED, "different", *BAD)


def section(subject: Subject) -> Section | None:
    """The section that holds the others against the first setting; None if there is one setting alone."""
    if len(subject.settings) < 2:
        return None
    first, *others = subject.settings
    blocks: list[Block] = [Note(f"What the others are held against: {first.label}.")]
    for place, other in enumerate(others[:MOST_COMPARED], 1):
        blocks += _against(first, other, place, other_rate(subject).name)
    if len(others) > MOST_COMPARED:
        left = count(len(others) - MOST_COMPARED, "more setting")
        blocks.append(Note(f"{left} not compared: name fewer runs."))
    return Section("comparison", "Comparison", tuple(blocks))


def _against(first: Setting, other: Setting, place: int, without: str) -> list[Block]:
    sides = [[m for m in setting.members if m.row["status"] == COMPLETED] for setting in (first, other)]
    for setting, side in zip((first, other), sides, strict=True):
        if not side:
            return [Note(f"{other.label}: not compared, no run of {setting.label} is completed.")]
    known = {
        member.name: {name: value for name, value in member.values.items() if name != without}
        for side in sides
        for member in side
    }
    below, above = ([member.run for member in side] for side in sides)
    found = compare(below, above, TOLERANCE, METRICS, known)
    if found.incomparable:
        named = [line.partition(":")[0] for line in found.incomparable]
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        told = f"{', '.join(named[:MOST_NAMED])}{more}"
        return [
            Note(f"{other.label}: not comparable, what is FIXED or the data differ: {told}", warning=True)
        ]
    drawn = [
        each for each in found.differences if each.ratio is not None and each.ratio > 0 and each.ratio != 1
    ]
    blocks: list[Block] = []
    if any(each.low is not None for each in drawn):
        blocks.append(
            Figure(
                f"comparison-{place}",
                f"{other.label} over {first.label}",
                "Ratios of the medians over pairs of runs with 95 % intervals; 1 is no difference, and the "
                f"grey band what counts as none ({TOLERANCE:.0%}).",
                lambda: _drawn(drawn),
            )
        )
    blocks.append(_table(first, other, found))
    reasons = sorted({each.reason for each in found.differences if each.reason})
    blocks += [Note(line) for line in found.conclusion]
    return [*blocks, *(Note(text, warning=True) for text in (*reasons, *found.notes[:8]))]


def _table(first: Setting, other: Setting, found: RunComparison) -> ReportTable:
    rows = []
    for each in found.differences:
        if not each.first and not each.second:
            continue
        unit = unit_of(each.unit, [each.first, each.second])
        ratio = "–" if each.ratio is None else f"{each.ratio:.3f}"
        interval = "" if each.low is None or each.high is None else f"[{each.low:.3f}, {each.high:.3f}]"
        values = (unit.text(each.first), unit.text(each.second), unit.name)
        word = TableCell(each.verdict, _mark(each))
        rows.append((each.metric, *values, ratio, interval, str(each.n), word, each.estimator))
    header = (
        "metric",
        "first",
        "second",
        "unit",
        "second / first",
        "95 % interval",
        "pairs",
        "the second is",
        "estimator of a run",
    )
    return ReportTable(
        f"{other.label} (second) and {first.label} (first)", header, rows, frozenset({1, 2, 4, 5, 6})
    )


def _mark(found: MetricDifference) -> Mark:
    if found.verdict in GOOD:
        return "good"
    return "bad" if found.verdict in BAD else "" if found.verdict in CLEAR else "open"


def _drawn(found: Sequence[MetricDifference]) -> "Drawing":
    with figure_style.drawing(0.8 + 0.3 * len(found)) as (figure, axes):
        axes.axvspan(1 / (1 + TOLERANCE), 1 + TOLERANCE, color=figure_style.GRID, zorder=0)
        axes.axvline(1, color=figure_style.INK, linewidth=1, linestyle=(0, (4, 2)))
        for row, each in enumerate(reversed(found)):
            assert each.ratio is not None
            low, high = (each.ratio if bound is None else bound for bound in (each.low, each.high))
            axes.errorbar(
                each.ratio, row, xerr=[[each.ratio - low], [high - each.ratio]],
                fmt=FORMS.get(each.verdict, "s"), color=COLOURS.get(each.verdict, figure_style.FAINT),
            )  # fmt: skip
        axes.set_yticks(range(len(found)), [figure_style.short(each.metric, 30) for each in reversed(found)])
        axes.set_ylim(-0.6, len(found) - 0.4)
        bounds = [b for e in found for b in (e.ratio, e.low, e.high) if b is not None and math.isfinite(b)]
        if max(bounds) / min(bounds) > 5:
            figure_style.logarithmic(axes, "x", min(bounds), max(bounds))
        axes.set_xlabel("second / first (1)")
        return figure
