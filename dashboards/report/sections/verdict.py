"""The section of verdicts: which runs, every criterion with its interval, and the key figures"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from d5ray.dashboards.disturbances import NAMES, disturbances
from d5ray.dashboards.quantities import told, unit_of
from d5ray.dashboards.report.document import Block, Figure, Mark, Note, ReportTable, Section, TableCell
from d5ray.dashboards.report.formats import figure_style
from d5ray.dashboards.report.subject import Member, Setting, Subject, listed
from d5ray.dashboards.terminal.run_tables import notes
from d5ray.metrics.definitions.asynchrony import AsynchronousThroughput
from d5ray.metrics.definitions.catalogue import CATALOGUE, Throughput
from d5ray.metrics.judge.criteria import Criterion, Metric, Verdict
from d5ray.metrics.statistics.intervals import Estimate
from d5ray.metrics.views.run_labels import differences, in_words
from d5ray.metrics.views.verdicts import estimators, so_far

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

MARKS: Final[dict[str, Mark]] = {"PASS": "good", "FAIL": "bad", "INCONCLUSIVE": "open"}
COLOURS: Final = {"PASS": figure_style.GOOD, "FAIL": figure_style.BAD, "INCONCLUSIVE": figure_style.OPEN}
FORMS: Final = {"PASS": "o", "FAIL": "X", "INCONCLUSIVE": "D"}
MOST_DRAWN: Final = 30  # criteria in one picture
KEY_FIGURES: Final = (
    "test_accuracy", "test_loss", "validation_accuracy", "validation_loss", "loss", "step_time",
    "samples_per_second",
    "asynchronous_samples_per_second", "exchange_time", "predicted_exchange_time", "evaluation_time",
    "bytes_sent", "staleness", "clock_gap", "consensus_distance", "load_balance", "server_wait_time",
    "energy", "peak_memory",
)  # fmt: skip
NOTHING: Final = told(Estimate(None), "1")
MOST_COLUMNS: Final = 4
MOST_SHOWN: Final = 20  # rows that are shown unasked
Judged = tuple[str, Verdict]  # whose it is, and what it came to


def section(subject: Subject) -> Section:
    """The section that says what was run, and the verdict."""
    judged, single = verdicts_of(subject)
    told = _estimators(subject, [verdict.metric for _, verdict in (*judged, *single)])
    blocks: list[Block] = [_runs(subject)]
    if (differing := _settings(subject)).rows:
        blocks.append(differing)
    if judged:
        several = len({whose for whose, _ in judged}) > 1
        drawn = [each for each in judged if position(each[1]) is not None]
        if drawn:
            blocks.append(_figure(drawn, several))
        blocks.append(_criteria(judged, several, "Criteria", told))
        blocks += [Note(text, warning=True) for text in notes(verdict for _, verdict in judged)]
    if single:
        blocks.append(_criteria(single, True, "Criteria, run by run", told))
    if not judged:
        blocks.append(Note("No criterion was judged: " + _why_not(subject.members)))
    if (figures := _key_figures(subject)).rows:
        told = _estimators(subject, [name for name in KEY_FIGURES if name in _names(figures)])
        blocks += [figures, Note("; ".join(f"{name}: {text}" for name, text in told.items()))]
    blocks += [Note(text, warning=True) for text in _disturbances(subject.members)]
    return Section("verdict", "Verdict", tuple(blocks))


def verdicts_of(subject: Subject) -> tuple[list[Judged], list[Judged]]:
    """The verdicts on series and settings as a whole; and on their runs, where they have several.

    The joint verdicts of series are those that were kept. Runs of one setting that belong to no series are
    judged together here, criterion by criterion, by all their rows, as a series is.
    """
    found = [(kept.name, Verdict(**row)) for kept in subject.series for row in kept.verdicts.to_pylist()]
    joint = {kept.name for kept in subject.series if kept.verdicts.num_rows}
    single: list[Judged] = []
    for setting in subject.settings:
        others = [member for member in setting.members if member.row["series"] not in joint]
        rows = [(subject.label(m), Verdict(**row)) for m in others for row in so_far(m.view).to_pylist()]
        together = _together(setting, [verdict for _, verdict in rows]) if len(others) > 1 else None
        if together is None:
            found += rows
        else:
            found += [(setting.label, verdict) for verdict in together]
            single += rows
    return found, single


def _together(setting: Setting, verdicts: Sequence[Verdict]) -> list[Verdict] | None:
    """The criteria of a setting by the rows of all its runs; None where one of them cannot be made again."""
    asked = dict.fromkeys((each.metric, each.relation, each.target) for each in verdicts)
    if not asked or any(metric not in CATALOGUE for metric, _, _ in asked):
        return None
    criteria = [Criterion(CATALOGUE[metric](), relation, target) for metric, relation, target in asked]
    return [criterion.judge(setting.tables(criterion.metric.reads())) for criterion in criteria]


def words_of(subject: Subject) -> tuple[TableCell, ...]:
    """The verdict of every series and run, its status where it has none; equal ones once."""
    joint = {kept.name: kept.row for kept in subject.series}
    rows = [*joint.values(), *(m.row for m in subject.members if m.row["series"] not in joint)]
    words = [row["verdict"] or row["status"] for row in rows]
    return tuple(
        TableCell(word if words.count(word) == 1 else f"{words.count(word)} × {word}", MARKS.get(word, ""))
        for word in dict.fromkeys(words)
    )


def _runs(subject: Subject) -> ReportTable:
    """A line for each run."""
    rows = [_run(member, setting.label) for setting in subject.settings for member in setting.members]
    header = ("setting", "seed", "agents", "steps", "status", "verdict", "started (UTC)", "run", "what it is")
    return ReportTable("Runs", header, rows, frozenset({1, 2, 3}), len(rows) > MOST_SHOWN)


def _settings(subject: Subject) -> ReportTable:
    """A line for each value that differs between the settings, or for each setting where these are many."""
    found = differences([setting.one.row for setting in subject.settings])
    names = tuple(setting.label for setting in subject.settings)
    title = "In what the settings differ"
    if len(names) <= MOST_COLUMNS:
        rows = [(key, *values) for key, values in found.items()]
        return ReportTable(title, ("key", *names), rows, folded=len(rows) > MOST_SHOWN)
    columns = [(name, *values) for name, *values in zip(names, *found.values(), strict=True)] if found else []
    return ReportTable(title, ("setting", *found), columns, folded=len(found) > MOST_SHOWN)


def _estimators(subject: Subject, metrics: Sequence[str]) -> dict[str, str]:
    """How the value of each metric is made, by its name: of the users' own by what their runs say."""
    rows = [row for m in subject.members for row in m.view.ask("SELECT * FROM metrics").to_pylist()]
    return estimators(metrics, rows)


def _run(member: Member, label: str) -> tuple[str | TableCell, ...]:
    row = member.row
    word = row["verdict"] or NOTHING
    told = row["status"] + (f": {row['stop_reason']}" if row["stop_reason"] else "")
    steps = NOTHING if row["steps"] is None else f"{row['steps']:,}"
    started = f"{row['started']:%Y-%m-%d %H:%M}" if row["started"] else NOTHING
    return (
        label,
        str(row["seed"]),
        str(row["agents"]),
        steps,
        TableCell(told, "" if row["status"] in ("completed", "running") else "bad"),
        TableCell(word, MARKS.get(word, "")),
        started,
        member.name,
        in_words(row),
    )


def _criteria(
    judged: Sequence[Judged], several: bool, title: str, estimated: Mapping[str, str]
) -> ReportTable:
    rows = []
    for whose, verdict in judged:
        unit = unit_of(verdict.unit, [verdict.target])
        cells = (
            verdict.metric,
            ("≥ " if verdict.relation == ">=" else "≤ ") + unit.text(verdict.target),
            unit.text(verdict.value),
            unit.interval(verdict.low, verdict.high),
            unit.name,
            f"{verdict.n} {verdict.sample_unit}" if verdict.n else "",
            estimated.get(verdict.metric.partition("(")[0], ""),
            TableCell(verdict.verdict, MARKS[verdict.verdict]),
        )
        rows.append((whose, *cells) if several else cells)
    header = ("criterion", "target", "measured", "95 % interval", "unit", "n", "estimator", "verdict")
    numeric = frozenset({2, 3, 4} if several else {1, 2, 3})
    return ReportTable(title, (("of", *header) if several else header), rows, numeric, len(rows) > MOST_SHOWN)


def position(verdict: Verdict) -> tuple[float, float, float] | None:
    """Value, low and high over the target; None where no finite ratio says anything."""
    if verdict.value is None or verdict.target <= 0 or not math.isfinite(verdict.value) or verdict.value <= 0:
        return None
    bounds = [
        verdict.value if bound is None or not math.isfinite(bound) or bound <= 0 else bound
        for bound in (verdict.low, verdict.high)
    ]
    return verdict.value / verdict.target, bounds[0] / verdict.target, bounds[1] / verdict.target


def _figure(judged: Sequence[Judged], several: bool) -> Figure:
    left_out = len(judged) - MOST_DRAWN
    more = f" The first {MOST_DRAWN} of {len(judged)} are drawn." if left_out > 0 else ""
    return Figure(
        "verdict",
        "Criteria over their targets",
        "Every criterion as its value over its target, with the 95 % interval; 1 is the target. In brackets "
        "what is asked for." + more,
        lambda: _drawn(judged[:MOST_DRAWN], several),
    )


def _drawn(judged: Sequence[Judged], several: bool) -> "Drawing":
    """A line for each criterion: its name above, the interval below it, the target at 1."""
    with figure_style.drawing(0.85 + 0.44 * len(judged)) as (figure, axes):
        for row, (whose, verdict) in enumerate(judged):
            found = position(verdict)
            assert found is not None
            value, low, high = found
            colour, y = COLOURS[verdict.verdict], len(judged) - 1 - row
            axes.plot([low, high], [y, y], color=colour, linewidth=2.6, solid_capstyle="butt")
            axes.plot([low, low, high, high], [y] * 4, "|", color=colour, markersize=8, markeredgewidth=1.6)
            axes.plot(
                value,
                y,
                FORMS[verdict.verdict],
                color=colour,
                markersize=7,
                markeredgecolor=figure_style.PAPER,
            )
            name = figure_style.short(f"{whose}: {verdict.metric}" if several else verdict.metric, 40)
            _above(axes, y, 0.0, name, figure_style.INK)
            _above(axes, y, 1.0, _in_short(verdict), figure_style.FAINT)
        rows = np.arange(len(judged))
        axes.vlines(
            np.ones(len(judged)), rows - 0.24, rows + 0.17, color=figure_style.INK, linewidth=1.3, zorder=1
        )
        _around_one(axes, [ratio for _, verdict in judged for ratio in position(verdict) or ()])
        axes.set_ylim(-0.55, len(judged) - 0.3)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("value over target (1)")
        return figure


def _above(axes: "Axes", y: float, x: float, text: str, colour: str) -> None:
    """A text above an interval, on paper of its own: the lines behind it do not cross it."""
    axes.annotate(
        figure_style.plain(text), (x, y + 0.33), xycoords=("axes fraction", "data"), fontsize=9, va="center",
        ha="right" if x else "left", color=colour,
        bbox={"facecolor": figure_style.PAPER, "edgecolor": "none", "pad": 0.8},
    )  # fmt: skip


def _in_short(verdict: Verdict) -> str:
    """`0.978 ≥ 0.97`."""
    unit = unit_of(verdict.unit, [verdict.target])
    sign = "≥" if verdict.relation == ">=" else "≤"
    return f"{unit.text(verdict.value)} ({sign} {unit.text(verdict.target)}) {unit.name}".rstrip()


def _around_one(axes: "Axes", ratios: Sequence[float]) -> None:
    """A logarithmic axis around 1; of a small range with ticks at even distances."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    low, high = min(1.0, *ratios), max(1.0, *ratios)
    margin = max((high / low) ** 0.06, 1.02)
    figure_style.logarithmic(axes, "x", low, high)
    if high / low < 5:
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.set_xlim(low / margin, high * margin)


def _key_figures(subject: Subject) -> ReportTable:
    """A table of what was measured, setting by setting, with intervals."""
    metrics = [CATALOGUE[name]() for name in KEY_FIGURES if CATALOGUE[name] is not other_rate(subject)]
    columns = [
        (setting.label, [told(setting.estimate(metric), metric.unit) for metric in metrics])
        for setting in subject.settings
    ]
    kept = [at for at in range(len(metrics)) if any(cells[at] != NOTHING for _, cells in columns)]
    title = "Key figures, with 95 % intervals" + (
        " (medians over runs)" if any(len(setting.members) > 1 for setting in subject.settings) else ""
    )
    names = tuple(metrics[at].name for at in kept)
    if len(columns) <= MOST_COLUMNS:
        rows = [(name, *(cells[at] for _, cells in columns)) for name, at in zip(names, kept, strict=True)]
        header = ("metric", *(label for label, _ in columns))
    else:
        rows = [(label, *(cells[at] for at in kept)) for label, cells in columns]
        header = ("setting", *names)
    return ReportTable(title, header, rows if kept else [], frozenset(range(1, len(header))))


def _names(figures: ReportTable) -> set[str]:
    """The metrics in a table of key figures, which has them in its rows or in its columns."""
    return {*figures.header, *(str(row[0]) for row in figures.rows)}


def other_rate(subject: Subject) -> type[Metric]:
    """The rate of samples that says nothing here: agents wait for each other at every step, or never."""
    alone = all("staleness" in m.measured or "window_wait_time" in m.measured for m in subject.members)
    return Throughput if alone else AsynchronousThroughput


def _why_not(members: Sequence[Member]) -> str:
    running = [member.name for member in members if member.row["status"] == "running"]
    if running:
        return f"{', '.join(running)} {'is' if len(running) == 1 else 'are'} still running."
    if any(member.row["recipe_hash"] for member in members):
        return "the runs ended before their verdict."
    return "the runs come from no recipe, and so have no METRICS."


def _disturbances(members: Sequence[Member]) -> list[str]:
    """What disturbed the runs, a sentence each."""
    asked = f"SELECT name, rank, step, detail, t_wall FROM events WHERE name IN ({listed(NAMES)})"
    return [f"{member.name}: {text}" for member in members for text in disturbances(member.view.ask(asked))]
