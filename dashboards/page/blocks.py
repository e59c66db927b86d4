"""Building blocks of the views: panels with a chart, and choices"""

from typing import Any, Literal

from dash import dcc, html

from d5ray.dashboards.page import drawings
from d5ray.dashboards.page.chart_style import CONFIG
from d5ray.dashboards.page.charts import ChartOptions
from d5ray.dashboards.page.runs import OpenRun

Component = Any
OVER = "over"


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
        figure=drawings.drawn(name, shown, look),
        config=CONFIG,
        style={"height": f"{height}px" if height else "var(--tall)" if tall else "var(--chart)"},
    )
    drawn = dcc.Store(id={"type": "drawn", "name": name}, data={"bounds": None, "chosen": look.chosen})
    marked: dict[str, Any] = {"data-chart": name}
    head = html.Div([html.H2(title), html.Span(about, className="faint")], className="head")
    return html.Section([head, control, graph, drawn], className="panel", **marked)  # fmt: skip


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
