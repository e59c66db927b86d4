"""Building blocks of the views: panels with a chart, all charts by name, and choices"""

from typing import Any, Literal

from dash import dcc, html

from d5ray.dashboards.page import beside, charts, timeline, topology
from d5ray.dashboards.page.chart_style import CONFIG, empty
from d5ray.dashboards.page.charts import ChartOptions
from d5ray.dashboards.page.runs import OpenRun
from d5ray.errors import D5Error

Component = Any
OVER = "over"
CHARTS: dict[str, charts.Draw] = charts.CHARTS | {
    "graph": topology.graph, "timeline": timeline.timeline, "happened": timeline.happened,
    "beside_loss": beside.loss, "beside_accuracy": beside.accuracy, "beside_step_time": beside.step_time,
    "beside_throughput": beside.throughput,
}  # fmt: skip
STILL = ("parts_of_agents", "staleness", "graph")  # charts that are not zoomed


def panel(
    title: str,
    name: str,
    shown: OpenRun,
    about: str,
    *,
    look: ChartOptions | None = None,
    control: Component = None,
    tall: bool = False,
    height: int | None = None,
) -> Component:
    """A chart with its title. look: what the choices of its view say at first."""
    look = look or ChartOptions()
    graph = dcc.Graph(
        id={"type": "chart", "name": name},
        figure=drawn(name, shown, look),
        config=CONFIG,
        style={"height": f"{height}px" if height else "var(--tall)" if tall else "var(--chart)"},
    )
    store = dcc.Store(id={"type": "drawn", "name": name}, data={"bounds": None, "chosen": look.chosen})
    marked: dict[str, Any] = {"data-chart": name}
    head = html.Div([html.H2(title), html.Span(about, className="faint")], className="head")
    return html.Section([head, control, graph, store], className="panel", **marked)  # fmt: skip


def drawn(name: str, shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """A chart, or why there is none."""
    try:
        return CHARTS[name](shown, look)
    except D5Error as error:
        return empty(str(error))


def over() -> Component:
    """The choice of the horizontal axis."""
    return radio(OVER, "Over", {"step": "steps", "seconds": "time"}, "step")


def radio(name: str, title: str, options: dict[str, str], value: str) -> Component:
    """A choice among a few."""
    given = [{"label": label, "value": key} for key, label in options.items()]
    return html.Div(
        [html.Span(title, className="faint"), dcc.RadioItems(given, value, id=choice(name), inline=True)],
        className="choice",
    )


def select(name: str, title: str, options: list[str], value: str) -> Component:
    """A choice among many."""
    return html.Label(
        [
            html.Span(title, className="faint"),
            dcc.Dropdown(options, value, id=choice(name), clearable=False),
        ],
        className="choice wide",
    )


def choice(name: str) -> dict[str, str]:
    """The id of a choice: with another key than charts have, or it would be taken for one chart's own."""
    return {"choice": name}


def dropdown(name: str, title: str, options: list[Any]) -> Component:
    """A filter by one of some values."""
    return html.Label(
        [html.Span(title, className="faint"), dcc.Dropdown(options, id=name, placeholder="all")]
    )


def field(name: str, title: str, kind: Literal["number", "text"]) -> Component:
    """A filter that is typed."""
    return html.Label([html.Span(title, className="faint"), dcc.Input(id=name, type=kind, debounce=True)])
