"""The charts of several runs side by side"""

from typing import Any

from d5ray.dashboards.page.chart_style import COLOURS, axis, empty, figure, plain
from d5ray.dashboards.page.charts import ChartOptions
from d5ray.dashboards.page.runs import OpenRun
from d5ray.metrics.views import key_figures, time_series


def loss(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """The mean training loss of each run's agents."""
    return _curves(shown, look, "loss", 1.0, "training loss, mean of agents [1]")


def accuracy(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """The mean accuracy of each run's agents, of the split that the first one evaluates as it trains."""
    metric = shown.ask(key_figures.evaluated)
    return _curves(shown, look, metric, 100.0, f"{metric.replace('_', ' ')}, mean of agents [%]")


def step_time(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """The mean step time of each run's agents."""
    return _curves(shown, look, "step_time", 1e3, "time of a step, mean of agents [ms]")


def throughput(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """Samples a second of each run."""
    traces = []
    for number, run in enumerate((shown, *look.others)):
        table = run.ask(time_series.throughput, **look.bounds)
        traces.append(_line(run.name, number, table["x"].to_pylist(), table["rate"].to_pylist()))
    return _figure(traces, look, "throughput [samples/s]")


def _curves(shown: OpenRun, look: ChartOptions, metric: str, scale: float, title: str) -> dict[str, Any]:
    traces = []
    for number, run in enumerate((shown, *look.others)):
        table = run.ask(time_series.thinned, metric=metric, together=True, **look.bounds)
        y = [None if value is None else value * scale for value in table["mean"].to_pylist()]
        marks = metric.endswith("_accuracy")  # where an evaluation was; the others are means over steps
        traces.append(_line(run.name, number, table["x"].to_pylist(), y, marks))
    return _figure(traces, look, title)


def _line(name: str, number: int, x: list[Any], y: list[Any], marks: bool = False) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines+markers" if marks or len(x) == 1 else "lines", "x": x, "y": y,
        "name": plain(name), "line": {"color": COLOURS[number % len(COLOURS)], "width": 1.8},
        "marker": {"size": 5}, "showlegend": True,
        "hovertemplate": "%{y:.5~g} at %{x:,.6~g}<extra>%{fullData.name}</extra>",
    }  # fmt: skip


def _figure(traces: list[dict[str, Any]], look: ChartOptions, title: str) -> dict[str, Any]:
    if not any(trace["x"] for trace in traces):
        return empty("none of these runs has recorded it")
    return figure(traces, look.x(), axis(title), showlegend=False)
