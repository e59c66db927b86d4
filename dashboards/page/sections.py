"""The views of the page: what stands on each of them"""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from dash import dcc, html

from d5ray.dashboards.page import tables, timeline, topology
from d5ray.dashboards.page.blocks import choice, dropdown, field, over, panel, radio, select
from d5ray.dashboards.page.charts import ChartOptions
from d5ray.dashboards.page.live import live
from d5ray.dashboards.page.runs import OpenRun, Runs
from d5ray.metrics.views import communication, samples, time_series
from d5ray.metrics.views.run_labels import in_words

Component = Any
View = Callable[[Runs, OpenRun], list[Component]]
MOST_BESIDE = 5  # runs of the same series that are compared before others are chosen


def overview(runs: Runs, shown: OpenRun) -> list[Component]:
    """The verdict so far, the run in figures, and how it goes."""
    return [
        live("stats", shown),
        live("verdict", shown),
        over(),
        html.Div(
            [
                panel(
                    "Training loss", "loss", shown, "each agent; grey: from the least to the greatest value"
                ),
                panel("Test accuracy", "accuracy", shown, "each agent, at its evaluations"),
                panel("What a step consists of", "parts", shown, "mean over agents"),
                panel("Throughput", "throughput", shown, "all agents together, by the clock on the wall"),
            ],
            className="grid",
        ),
    ]


def step(runs: Runs, shown: OpenRun) -> list[Component]:
    """The parts of a step, agent by agent, and any other metric."""
    known = [row["metric"] for row in shown.ask(time_series.metrics).to_pylist()]
    first = "step_time" if "step_time" in known else known[0] if known else ""
    look = ChartOptions(metric=first)
    return [
        over(),
        html.Div(
            [
                panel("What a step consists of", "parts", shown, "mean over agents", look=look),
                panel("Agent by agent", "parts_of_agents", shown, "mean over steps", look=look),
            ],
            className="grid",
        ),
        panel(
            "Any metric", "any_metric", shown, "", look=look,
            control=select("metric", "Metric", known, first),
        ),
    ]  # fmt: skip


def links_of(runs: Runs, shown: OpenRun) -> list[Component]:
    """The section of links: who talks with whom, and how far the agents are apart."""
    hues = topology.hues(shown)
    first = hues[0] if hues else ""
    look = ChartOptions(colour=first)
    chosen = radio("colour", "Colour", {name: name.replace("_", " ") for name in hues}, first)
    return [
        html.Div(
            [
                panel(
                    "Topology",
                    "graph",
                    shown,
                    _about(shown),
                    look=look,
                    control=chosen,
                    tall=True,
                ),
                html.Div(
                    [
                        panel(
                            "Consensus distance",
                            "consensus",
                            shown,
                            "root mean square over the agents",
                            look=look,
                        ),
                        panel("Staleness", "staleness", shown, "of all pushed gradients", look=look),
                    ],
                    className="column",
                ),
            ],
            className="grid",
        ),
        html.Section([html.H2("Traffic of the links"), live("traffic", shown)], className="panel"),
    ]


def time(runs: Runs, shown: OpenRun) -> list[Component]:
    """The section of the timeline: when agents and servers did what."""
    return [
        panel(
            "Agents and servers", "timeline", shown,
            "drag over a part of it to see single steps; double-click for the whole",
            height=timeline.height(shown),
        ),
    ]  # fmt: skip


def events(runs: Runs, shown: OpenRun) -> list[Component]:
    """The section of the run's events."""
    return [
        panel("Events", "happened", shown, "failures are crosses"),
        html.Section(
            [html.H2("Failures and events, the last ones first"), live("events", shown)], className="panel"
        ),
    ]


def compare(runs: Runs, shown: OpenRun) -> list[Component]:
    """The section that shows several runs side by side."""
    known = {row["run_id"]: row for row in runs.rows() if row["run_id"] != shown.name}
    series = shown.view.row["series"]
    first = [name for name, row in known.items() if series and row["series"] == series][:MOST_BESIDE]
    first = first or runs.partners(shown) or list(known)[:1]
    names = [
        {"label": " · ".join(filter(None, (name, in_words(row)))), "value": name, "search": name}
        for name, row in known.items()
    ]
    chosen = html.Label(
        [
            html.Span("Beside it", className="faint"),
            dcc.Dropdown(names, first, multi=True, id=choice("others"), placeholder="other runs"),
        ],
        className="choice wide",
    )
    look = ChartOptions(others=tuple(runs.get(name) for name in first))
    return [
        html.Div([chosen, over()], className="bar"),
        live("beside", shown, look),
        html.Div(
            [
                panel("Training loss", "beside_loss", shown, "mean over agents", look=look),
                panel("Test accuracy", "beside_accuracy", shown, "mean over agents", look=look),
                panel("Time of a step", "beside_step_time", shown, "mean over agents", look=look),
                panel("Throughput", "beside_throughput", shown, "all agents together", look=look),
            ],
            className="grid",
        ),
    ]


def data(runs: Runs, shown: OpenRun) -> list[Component]:
    """The rows themselves: filtered, and by SQL."""
    words = {name: shown.ask(samples.distinct, column=name) for name in ("metric", "rank", "phase")}
    first, told = tables.of_samples(shown, samples.Filter(), 0) or (None, "")
    return [
        html.Section(
            [
                html.H2("Samples"),
                html.Div(
                    [
                        dropdown("filter-metric", "Metric", words["metric"]),
                        dropdown("filter-rank", "Rank", words["rank"]),
                        dropdown("filter-phase", "Phase", words["phase"]),
                        field("filter-first", "From step", "number"),
                        field("filter-last", "To step", "number"),
                        field("filter-text", "Scope, node or status has", "text"),
                    ],
                    className="filters",
                ),
                html.Div(first, id="samples", className="rows"),
                html.Div(
                    [
                        html.Button("← newer", id="newer", n_clicks=0),
                        html.Span(told, id="place", className="faint"),
                        html.Button("older →", id="older", n_clicks=0),
                    ],
                    className="pager",
                ),
                dcc.Store(id="page-number", data=0),
            ],
            className="panel",
        ),
        html.Section(
            [
                html.H2("SQL"),
                html.P(
                    "DuckDB on samples, events, runs, metrics, environment, verdicts and summary; read-only, "
                    "without other files",
                    className="faint",
                ),
                dcc.Textarea(
                    id="query", spellCheck=False,
                    value="select metric, count(*) as n, median(value) as median\n"
                    "from samples where phase = 'train'\ngroup by metric order by metric",
                ),
                html.Div([html.Button("Run", id="ask", n_clicks=0, className="primary"),
                          html.Span(id="told", className="faint", role="status")], className="pager"),
                html.Div(id="answer"),
            ],
            className="panel",
        ),
    ]  # fmt: skip


VIEWS: dict[str, tuple[str, View]] = {
    "overview": ("Overview", overview),
    "steps": ("Steps", step),
    "topology": ("Topology", links_of),
    "timeline": ("Timeline", time),
    "events": ("Events", events),
    "compare": ("Compare", compare),
    "data": ("Data", data),
}


def navigation(name: str, view: str) -> list[Component]:
    """Links to the views of a run."""
    return [
        dcc.Link(
            title, href=f"/?run={quote(name)}&view={key}", className="current" if key == view else "",
        )
        for key, (title, _) in VIEWS.items()
    ]  # fmt: skip


def _about(shown: OpenRun) -> str:
    found = shown.ask(communication.graph)
    name = str(found.get("name", "the topology was not recorded"))
    return f"{name}, too many links to draw" if found and found.get("edges") is None else name
