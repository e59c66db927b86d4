"""The charts of curves: loss, accuracy, throughput, the parts of a step, and any other metric"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from d5ray.dashboards.page.chart_style import (
    COLOURS,
    PART_COLOURS,
    axis,
    empty,
    figure,
    labelled,
    plain,
    rgba,
)
from d5ray.dashboards.page.runs import OpenRun
from d5ray.metrics.views import consensus as apart
from d5ray.metrics.views import key_figures, steps, time_series
from d5ray.metrics.views.time_series import Over

MOST_LINES = 12  # agents that get a line each; of more the mean is drawn, and where all of them lie
NO_STEPS = "no training steps are recorded so far"


@dataclass(frozen=True)
class ChartOptions:
    """The viewer's choices: the horizontal axis and the part of it, a metric, agents' colour."""

    over: Over = "step"
    low: float | None = None
    high: float | None = None
    metric: str = ""
    colour: str = ""
    others: tuple[OpenRun, ...] = ()  # runs beside the one that is shown

    @property
    def bounds(self) -> dict[str, Any]:
        """The choices in the form that the views take."""
        return {"over": self.over, "low": self.low, "high": self.high}

    @property
    def chosen(self) -> list[Any]:
        """The choices but for the part of the axis, as JSON has them."""
        return [self.over, self.metric, self.colour, [run.name for run in self.others]]

    def x(self, **more: Any) -> dict[str, Any]:
        """The horizontal axis of a chart, over steps or seconds, zoomed as the viewer chose."""
        title = "training so far [steps]" if self.over == "step" else "time since the start [s]"
        zoomed = {} if self.low is None or self.high is None else {"range": [self.low, self.high]}
        return axis(title, **zoomed, **more)


Draw = Callable[[OpenRun, ChartOptions], dict[str, Any]]


def loss(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """The training loss of every agent."""
    table = shown.ask(time_series.thinned, metric="loss", **look.bounds)
    if not table.num_rows:
        return empty("no training loss is recorded so far")
    return figure(_of_agents(table, 1.0), look.x(), axis("training loss [1]"))


def accuracy(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """The accuracy of every agent at its evaluations, of the split that it evaluates as it trains."""
    metric = shown.ask(key_figures.evaluated)
    table = shown.ask(time_series.thinned, metric=metric, **look.bounds)
    if not table.num_rows:
        return empty("no evaluation has been made so far")
    return figure(_of_agents(table, 100.0, marks=True), look.x(), axis(f"{metric.replace('_', ' ')} [%]"))


def throughput(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """Training samples a second of all agents together."""
    table = shown.ask(time_series.throughput, **look.bounds)
    if not table.num_rows:
        return empty(NO_STEPS)
    line = {
        "type": "scatter", "mode": "lines", "x": table["x"].to_pylist(), "y": table["rate"].to_pylist(),
        "line": {"color": COLOURS[2], "width": 1.6}, "name": "all agents", "showlegend": False,
        "hovertemplate": "%{y:,.0f} samples/s at %{x:,.6~g}<extra></extra>",
    }  # fmt: skip
    return figure([line], look.x(), axis("throughput [samples/s]", rangemode="tozero"))


def parts(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """The parts of a step, one upon the other: the mean over agents."""
    table = shown.ask(steps.parts, **look.bounds)
    if not table.num_rows:
        return empty(NO_STEPS)
    scale, unit = _time(max(sum(row) for row in zip(*_parts(table), strict=True)))
    x = table["x"].to_pylist()
    traces = [
        {
            "type": "scatter", "mode": "lines", "stackgroup": "parts", "x": x,
            "y": [value * scale for value in values], "name": name,
            "line": {"width": 0.5, "color": PART_COLOURS[name]}, "fillcolor": rgba(PART_COLOURS[name], 0.85),
            "hovertemplate": f"{name} %{{y:.4~g}} {unit}<extra></extra>",
        }
        for name, values in zip(steps.PARTS, _parts(table), strict=True)
        if any(values)
    ]  # fmt: skip
    y = axis(f"time of a step [{unit}]", rangemode="tozero")
    return figure(traces, look.x(), y, hovermode="x unified")


def parts_of_agents(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """The parts of a step, agent by agent: the mean over the steps that are looked at."""
    table = shown.ask(steps.parts_of_agents, **look.bounds)
    if not table.num_rows:
        return empty(NO_STEPS)
    scale, unit = _time(max(sum(row) for row in zip(*_parts(table), strict=True)))
    agents = [f"agent {rank}" for rank in table["rank"].to_pylist()]
    traces = [
        {
            "type": "bar", "orientation": "h", "y": agents, "x": [value * scale for value in values],
            "name": name, "marker": {"color": PART_COLOURS[name]},
            "hovertemplate": f"%{{y}}: {name} %{{x:.4~g}} {unit}<extra></extra>",
        }
        for name, values in zip(steps.PARTS, _parts(table), strict=True)
        if any(values)
    ]  # fmt: skip
    y = axis("agent", autorange="reversed", type="category", title_standoff=4)
    margin = {"l": 76, "r": 16, "t": 12, "b": 46}
    x = axis(f"time of a step [{unit}]")
    return figure(traces, x, y, barmode="stack", bargap=0.25, margin=margin, dragmode=False)


def consensus(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """The distance of the agents' parameters from their mean."""
    table = shown.ask(apart.consensus)
    if not table.num_rows:
        return empty("agents that have one model, or one agent: there is no distance between models")
    rows = [row for row in table.to_pylist() if row["rank"] is None]
    chosen = [r for r in rows if look.low is None or look.high is None or look.low <= r["step"] <= look.high]
    line = {
        "type": "scatter", "mode": "lines+markers", "x": [row["step"] for row in chosen],
        "y": [row["distance"] for row in chosen], "line": {"color": COLOURS[3], "width": 1.6},
        "marker": {"size": 4}, "showlegend": False, "name": "all agents",
        "hovertemplate": "%{y:.4~g} at step %{x}<extra></extra>",
    }  # fmt: skip
    return figure(
        [line], ChartOptions("step", look.low, look.high).x(), axis("distance from the mean / its norm [1]")
    )


def staleness(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """A histogram of pushed gradients by the updates that they lacked."""
    table = shown.ask(apart.staleness)
    if not table.num_rows:
        return empty("no gradient was pushed to a parameter server")
    totals: dict[int, int] = {}
    for row in table.to_pylist():
        totals[row["staleness"]] = totals.get(row["staleness"], 0) + row["pushes"]
    pushes = sum(totals.values())
    bars = {
        "type": "bar", "x": list(totals), "y": [100 * n / pushes for n in totals.values()],
        "customdata": list(totals.values()), "marker": {"color": COLOURS[0]}, "showlegend": False,
        "hovertemplate": "%{customdata:,} pushes (%{y:.3~g} %) lacked %{x} updates<extra></extra>",
    }  # fmt: skip
    x = axis("staleness [updates that a gradient lacked]", dtick=1 if len(totals) < 15 else None)
    return figure([bars], x, axis("share of pushes [%]"), bargap=0.1, dragmode=False)


def any_metric(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """A chart of any metric of the run; over time where it has no steps."""
    known = {row["metric"]: row for row in shown.ask(time_series.metrics).to_pylist()}
    if look.metric not in known:
        return empty("choose a metric")
    own = (
        look if known[look.metric]["stepwise"] else ChartOptions("seconds", look.low, look.high, look.metric)
    )
    table = shown.ask(time_series.thinned, metric=look.metric, **own.bounds)
    if not table.num_rows:
        return empty(f"there are no values of {look.metric}")
    unit = known[look.metric]["unit"]
    return figure(_of_agents(table, 1.0), own.x(), axis(labelled(look.metric, unit)))


CHARTS: dict[str, Draw] = {
    "loss": loss, "accuracy": accuracy, "throughput": throughput, "parts": parts,
    "parts_of_agents": parts_of_agents, "consensus": consensus, "staleness": staleness,
    "any_metric": any_metric,
}  # fmt: skip


def _of_agents(table: pa.Table, scale: float, *, marks: bool = False) -> list[dict[str, Any]]:
    """A line for each agent (and scope), and behind them where their values lie within each stretch."""
    series: dict[tuple[int, str], dict[str, list[Any]]] = {}
    for row in table.to_pylist():
        own = series.setdefault(
            (row["rank"], row["scope"]), {"x": [], "mean": [], "least": [], "greatest": []}
        )
        for name in own:
            value = row[name]
            own[name].append(value if value is None or name == "x" else value * scale)
    traces = _band(series.values()) if max(table["n"].to_pylist()) > 1 or len(series) > MOST_LINES else []
    if len(series) > MOST_LINES:
        x, means = _mean(series.values())
        return [*traces, _line(x, means, f"mean of {len(series)}", COLOURS[0], marks)]
    return [
        *traces,
        *(
            _line(own["x"], own["mean"], _name(rank, scope), COLOURS[number % len(COLOURS)], marks)
            for number, ((rank, scope), own) in enumerate(series.items())
        ),
    ]


def _line(x: list[Any], y: list[Any], name: str, colour: str, marks: bool) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines+markers" if marks else "lines", "x": x, "y": y,
        "name": plain(name), "line": {"color": colour, "width": 1.5}, "marker": {"size": 5},
        "hovertemplate": "%{y:.5~g} at %{x:,.6~g}<extra>%{fullData.name}</extra>",
    }  # fmt: skip


def _name(rank: int, scope: str) -> str:
    if scope == "agent":
        return f"agent {rank}"
    return scope if rank < 0 else f"{scope} ({rank})"


def _band(series: Iterable[dict[str, list[Any]]]) -> list[dict[str, Any]]:
    """The band from the least to the greatest value of all agents, stretch by stretch."""
    least: dict[float, float] = {}
    greatest: dict[float, float] = {}
    for own in series:
        for x, low, high in zip(own["x"], own["least"], own["greatest"], strict=True):
            if low is not None:
                least[x] = min(low, least.get(x, low))
                greatest[x] = max(high, greatest.get(x, high))
    x = sorted(least)
    line = {"type": "scatter", "mode": "lines", "x": x, "line": {"width": 0}, "hoverinfo": "skip"}
    return [
        {**line, "y": [least[at] for at in x], "showlegend": False},
        {**line, "y": [greatest[at] for at in x], "fill": "tonexty", "fillcolor": "rgba(140,140,140,0.28)",
         "name": "least to greatest"},
    ]  # fmt: skip


def _mean(series: Iterable[dict[str, list[Any]]]) -> tuple[list[float], list[float]]:
    sums: dict[float, tuple[float, int]] = {}
    for own in series:
        for x, value in zip(own["x"], own["mean"], strict=True):
            if value is not None:
                total, n = sums.get(x, (0.0, 0))
                sums[x] = total + value, n + 1
    x = sorted(sums)
    return x, [sums[at][0] / sums[at][1] for at in x]


def _parts(table: pa.Table) -> list[list[float]]:
    return [[value or 0.0 for value in table[name].to_pylist()] for name in steps.PARTS]


def _time(seconds: float) -> tuple[float, str]:
    """The factor for times of this size, and their unit then."""
    return (1.0, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
