"""The section of convergence: loss and accuracy over steps and over time, agents and seeds as a range"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, final

import numpy as np
import numpy.typing as npt

from d5ray.dashboards.report.document import Block, Figure, Section
from d5ray.dashboards.report.formats import figure_style
from d5ray.dashboards.report.quantities import unit_of
from d5ray.dashboards.report.subject import Member, Setting, Subject
from d5ray.metrics.views.time_series import Over, thinned

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Floats = npt.NDArray[np.float64]
POINTS: Final = 240  # of a curve
MOST_AGENTS: Final = 8  # drawn one by one; of more the range is enough
SHOWN: Final = {
    "loss": "Training loss", "test_accuracy": "Test accuracy", "test_loss": "Test loss",
}  # fmt: skip
OVER: Final[dict[Over, str]] = {"step": "steps", "seconds": "time"}
LARGE_RANGE: Final = 50.0  # over which losses are drawn on a logarithmic axis


@final
class MetricCurve(NamedTuple):
    """The learning curve of one agent: its positions, and the mean of the values there."""

    rank: int
    x: Floats
    y: Floats


MetricCurves = Mapping[str, Sequence[MetricCurve]]  # by setting


@final
class CurveRange(NamedTuple):
    """The range of several curves at the same places: the median, and from the least to the greatest."""

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
    begin, end = max(curve.x[0] for curve in kept), max(curve.x[-1] for curve in kept)
    if all(np.array_equal(curve.x, kept[0].x) for curve in kept):
        places = kept[0].x
    else:
        places = np.linspace(min(begin, end), end, POINTS)
    values = np.array([np.interp(places, c.x, c.y, left=np.nan, right=np.nan) for c in kept])
    there = 2 * np.count_nonzero(~np.isnan(values), axis=0) >= len(kept)  # values: (curves, places)
    places, values = places[there], values[:, there]
    if not len(places):
        return CurveRange(places, places, places, places)
    return CurveRange(
        places, np.nanmedian(values, axis=0), np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    )


def _figure(found: MetricCurves, metric: str, over: Over) -> Figure:
    by, many = OVER[over], max(len(of) for of in found.values())
    of = "the median over agents and runs, and the range from the least to the greatest"
    told = f"{SHOWN[metric]} over {by}: {of}." if many > 1 else f"{SHOWN[metric]} over {by}."
    name = f"{metric}-over-{by}"
    return Figure(name, f"{SHOWN[metric]} over {by}", told, lambda: _drawn(found, metric, over))


def _drawn(found: MetricCurves, metric: str, over: Over) -> "Drawing":
    names = [figure_style.short(label) for label in found]
    with figure_style.drawing(3.1 + figure_style.legend_height(names)) as (figure, axes):
        latest = max(float(curve.x[-1]) for of in found.values() for curve in of if len(curve.x))
        unit = unit_of("s", [latest / 2]) if over == "seconds" else unit_of("1", [])
        for index, (name, of) in enumerate(zip(names, found.values(), strict=True)):
            style, whole = figure_style.line_style(index), together(of)
            x = whole.x / unit.scale
            if len(of) > 1:
                axes.fill_between(x, whole.low, whole.high, color=style.colour, alpha=0.18, linewidth=0)
            if len(found) == 1 and 1 < len(of) <= MOST_AGENTS:
                for curve in of:
                    axes.plot(curve.x / unit.scale, curve.y, color=style.colour, alpha=0.35, linewidth=0.7)
            axes.plot(
                x, whole.median, color=style.colour, linestyle=style.dashes, marker=style.marker,
                markevery=max(1, len(x) // 12) if len(x) > 15 else 1, label=name,
            )  # fmt: skip
        low, high = _extremes(found.values())
        if metric != "test_accuracy" and 0 < low < high / LARGE_RANGE:
            figure_style.logarithmic(axes, "y", low, high)
        axes.set_xlabel("step" if over == "step" else f"time since the first row{unit.axis}")
        axes.set_ylabel(f"{SHOWN[metric].lower()} (1)")
        figure_style.legend(figure, axes, names)
        return figure


def _extremes(found: Iterable[Sequence[MetricCurve]]) -> tuple[float, float]:
    values = np.concatenate([curve.y for of in found for curve in of])
    values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
