"""The section of convergence: loss and accuracy over steps and over time, agents and seeds as a range"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, final

import numpy as np
import numpy.typing as npt

from d5ray.dashboards.quantities import unit_of
from d5ray.dashboards.report.document import Block, Figure, Section
from d5ray.dashboards.report.formats import figure_style
from d5ray.dashboards.report.subject import Member, Setting, Subject
from d5ray.metrics.views.time_series import Over, evaluations, thinned

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
POINTS: Final = 240  # of a curve
MOST_AGENTS: Final = 8  # drawn one by one; of more the range is enough
MOST_LARGE: Final = 40  # marks of a curve that are large
SHOWN: Final = {
    "loss": "Training loss", "test_accuracy": "Test accuracy", "test_loss": "Test loss",
    "validation_accuracy": "Validation accuracy", "validation_loss": "Validation loss",
    "training_accuracy": "Accuracy on training samples", "training_loss": "Loss on training samples",
}  # fmt: skip
PERCENT: Final = ("test_accuracy", "validation_accuracy", "training_accuracy")
EVALUATED: Final = (*PERCENT, "test_loss", "validation_loss", "training_loss")  # not at every step
OVER: Final[dict[Over, str]] = {"step": "steps", "seconds": "time"}
LARGE_RANGE: Final = 50.0  # over which losses are drawn on a logarithmic axis


@final
class MetricCurve(NamedTuple):
    """The learning curve of one agent: its positions, and the mean of the values there.

    steps: after which the values were evaluated; empty where a value stands for all steps.
    """

    rank: int
    x: Floats
    y: Floats
    steps: tuple[int, ...] = ()


MetricCurves = Mapping[str, Sequence[MetricCurve]]  # by setting


@final
class CurveRange(NamedTuple):
    """The range of several curves at the same places: the median, and from the least to the greatest.

    Where a curve begins or ends, and the median would jump by that, it is NaN in between: no line goes there.
    """

    x: Floats
    median: Floats
    low: Floats
    high: Floats


def section(subject: Subject) -> Section | None:
    """A figure for each metric over steps and over time; None for runs that trained nothing."""
    blocks: list[Block] = []
    for metric in SHOWN:
        settings = [s for s in subject.settings if any(metric in m.measured for m in s.members)]
        for over in OVER:
            found = {setting.label: curves(setting, metric, over) for setting in settings}
            if any(len(curve.x) > 1 for of in found.values() for curve in of):
                blocks.append(_figure(found, metric, over))
    return Section("convergence", "Convergence", tuple(blocks)) if blocks else None


def curves(setting: Setting, metric: str, over: Over) -> list[MetricCurve]:
    """The curves, one for each agent of each run, thinned."""
    return [curve for member in setting.members for curve in _of(member, metric, over)]


def _of(member: Member, metric: str, over: Over) -> list[MetricCurve]:
    if metric in EVALUATED:
        return _evaluated(member, metric, over)
    rows = thinned(member.view, metric, over=over, points=POINTS)
    keep = [scope == "agent" for scope in rows["scope"].to_pylist()]
    rows = rows.filter(keep)
    ranks = rows["rank"].to_numpy()
    x = rows["x"].to_numpy() + (1.0 if over == "step" else 0.0)  # after that many steps
    y = rows["mean"].to_numpy(zero_copy_only=False)
    return [
        MetricCurve(int(rank), x[ranks == rank], y[ranks == rank].astype(np.float64))
        for rank in np.unique(ranks)
    ]


def together(found: Sequence[MetricCurve]) -> CurveRange:
    """The curves at common places, from where all have begun to where half of them have ended."""
    kept = [curve for curve in found if len(curve.x)]
    if (evaluations := _at_evaluations(kept)) is not None:
        return evaluations
    begin, end = max(curve.x[0] for curve in kept), max(curve.x[-1] for curve in kept)
    if all(np.array_equal(curve.x, kept[0].x) for curve in kept):
        places = kept[0].x
    else:
        places = np.linspace(min(begin, end), end, POINTS)
    values = np.array([np.interp(places, c.x, c.y, left=np.nan, right=np.nan) for c in kept])
    there = 2 * np.count_nonzero(~np.isnan(values), axis=0) >= len(kept)  # values: (curves, places)
    return _ranged(places[there], values[:, there])


def _evaluated(member: Member, metric: str, over: Over) -> list[MetricCurve]:
    """The evaluations of each agent as they were, not thinned to stretches."""
    rows = evaluations(member.view, metric, points=POINTS)
    ranks, steps = rows["rank"].to_numpy(), rows["step"].to_numpy()
    x = steps + 1.0 if over == "step" else rows["seconds"].to_numpy()
    y = rows["value"].to_numpy()
    return [
        MetricCurve(int(rank), x[own], y[own], tuple(steps[own].tolist()))
        for rank in np.unique(ranks)
        if len(own := np.flatnonzero(ranks == rank))
    ]


def _at_evaluations(found: Sequence[MetricCurve]) -> CurveRange | None:
    """The curves at the evaluations that half of them have; None where most values have none beside them.

    Agents evaluate after the same steps, each at a time of its own: the median of these is the place.
    """
    steps = Counter(step for curve in found for step in curve.steps)
    common = sorted(step for step, curves in steps.items() if 2 * curves >= len(found))
    shared = sum(curves for curves in steps.values() if 2 * curves > len(found))
    if 2 * shared <= steps.total() or any(not curve.steps for curve in found):
        return None
    places, values = np.full((2, len(found), len(common)), np.nan)
    for row, curve in enumerate(found):
        at = {step: (x, y) for step, x, y in zip(curve.steps, curve.x, curve.y, strict=True)}
        for column, step in enumerate(common):
            places[row, column], values[row, column] = at.get(step, (np.nan, np.nan))
    return _ranged(np.nanmedian(places, axis=0), values)


def _ranged(places: Floats, values: Floats) -> CurveRange:
    """The range of values (curves, places), with gaps where the median would jump as a curve ends."""
    if not len(places):
        return CurveRange(places, places, places, places)
    there = ~np.isnan(values)
    gaps = [
        at for at in range(1, len(places)) if _jumps(values[:, at - 1 : at + 1], there[:, at - 1 : at + 1])
    ]
    middles = [(places[at - 1] + places[at]) / 2 for at in gaps]
    found = (np.nanmedian(values, axis=0), np.nanmin(values, axis=0), np.nanmax(values, axis=0))
    return CurveRange(
        np.insert(places, gaps, middles),
        *(np.insert(each, gaps, np.full(len(gaps), np.nan)) for each in found),
    )


def _jumps(values: Floats, there: Bools) -> bool:
    """True if the median of values (curves, 2) is another one for those curves that have both of them."""
    both = there.all(axis=1)
    if (both == there.any(axis=1)).all():
        return False
    return not both.any() or not np.array_equal(np.nanmedian(values, axis=0), np.median(values[both], axis=0))


def _figure(found: MetricCurves, metric: str, over: Over) -> Figure:
    by, many = OVER[over], max(len(of) for of in found.values())
    of = "the median over agents and runs, and the range from the least to the greatest"
    told = f"{SHOWN[metric]} over {by}: {of}." if many > 1 else f"{SHOWN[metric]} over {by}."
    told += (
        " A mark is an evaluation." if metric in EVALUATED else " Values are means over stretches of steps."
    )
    told += " The line breaks where an agent or run ends and the median of the others is not the same." * (
        many > 1
    )
    name = f"{metric}-over-{by}"
    return Figure(name, f"{SHOWN[metric]} over {by}", told, lambda: _drawn(found, metric, over))


def _drawn(found: MetricCurves, metric: str, over: Over) -> "Drawing":
    names = [figure_style.short(label, 56) for label in found]
    with figure_style.drawing(3.1 + figure_style.legend_height(names)) as (figure, axes):
        latest = max(float(curve.x[-1]) for of in found.values() for curve in of if len(curve.x))
        unit = unit_of("s", [latest / 2]) if over == "seconds" else unit_of("1", [])
        scale = 100.0 if metric in PERCENT else 1.0
        for index, (name, of) in enumerate(zip(names, found.values(), strict=True)):
            style, whole = figure_style.line_style(index), together(of)
            x = whole.x / unit.scale
            apart = metric in EVALUATED and _at_evaluations(of) is None  # each agent at steps of its own
            if len(of) > 1:
                axes.fill_between(
                    x, whole.low * scale, whole.high * scale, color=style.colour, alpha=0.18, linewidth=0
                )
            if (len(found) == 1 and 1 < len(of) <= MOST_AGENTS) or apart:
                for curve in of[:MOST_AGENTS]:
                    axes.plot(
                        curve.x / unit.scale, curve.y * scale, color=style.colour, alpha=0.35, linewidth=0.7,
                        marker=style.marker if metric in EVALUATED else "", markersize=4.5 if apart else 2.5,
                    )  # fmt: skip
            axes.plot(
                x, whole.median * scale, color=style.colour, linestyle=style.dashes, label=name,
                marker=style.marker if metric in EVALUATED and not apart else "",
                markersize=4.5 if len(x) <= MOST_LARGE else 2.5,
            )  # fmt: skip
        low, high = _extremes(found.values())
        if metric not in PERCENT and 0 < low < high / LARGE_RANGE:
            figure_style.logarithmic(axes, "y", low, high)
        axes.set_xlabel("step" if over == "step" else f"time since the first row{unit.axis}")
        axes.set_ylabel(f"{SHOWN[metric].lower()} ({'%' if metric in PERCENT else '1'})")
        figure_style.legend(figure, axes, names)
        return figure


def _extremes(found: Iterable[Sequence[MetricCurve]]) -> tuple[float, float]:
    values = np.concatenate([curve.y for of in found for curve in of])
    values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
