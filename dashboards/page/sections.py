"""The views of the page: what stands on each of them"""

from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import quote

from dash import dcc, html

from d5ray.dashboards.numbers import number, size
from d5ray.dashboards.page import beside, charts, tables, timeline, topology
from d5ray.dashboards.page.charts import Look
from d5ray.dashboards.page.looks import CONFIG, empty
from d5ray.dashboards.page.runs import Runs, Shown
from d5ray.errors import D5Error
from d5ray.metrics.views import courses, figures, happenings, links, rows

Component = Any
View = Callable[[Runs, Shown], list[Component]]
MOST_EVENTS = 200

CHARTS: dict[str, charts.Draw] = charts.CHARTS | {
    "graph": topology.graph, "timeline": timeline.timeline, "happened": timeline.happened,
    "beside_loss": beside.loss, "beside_accuracy": beside.accuracy, "beside_step_time": beside.step_time,
    "beside_throughput": beside.throughput,
}  # fmt: skip
STILL = ("parts_of_agents", "staleness", "graph")  # charts that are not zoomed
OVER = "over"


def overview(runs: Runs, shown: Shown) -> list[Component]:
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


def step(runs: Runs, shown: Shown) -> list[Component]:
    """The parts of a step, agent by agent, and any other metric."""
    known = [row["metric"] for row in shown.ask(courses.metrics).to_pylist()]
    first = "step_time" if "step_time" in known else known[0] if known else ""
    return [
        over(),
        html.Div(
            [
                panel("What a step consists of", "parts", shown, "mean over agents"),
                panel("Agent by agent", "parts_of_agents", shown, "mean over steps"),
            ],
            className="grid",
        ),
        panel(
            "Any metric", "any_metric", shown, "", look=Look(metric=first),
            control=select("metric", "Metric", known, first),
        ),
    ]  # fmt: skip


def links_of(runs: Runs, shown: Shown) -> list[Component]:
    """Who talks with whom, and how far the agents are apart."""
    hues = topology.hues(shown)
    first = hues[0] if hues else ""
    chosen = radio("colour", "Colour", {name: name.replace("_", " ") for name in hues}, first)
    return [
        html.Div(
            [
                panel(
                    "Topology",
                    "graph",
                    shown,
                    _about(shown),
                    look=Look(colour=first),
                    control=chosen,
                    tall=True,
                ),
                html.Div(
                    [
                        panel("Consensus distance", "consensus", shown, "root mean square over the agents"),
                        panel("Staleness", "staleness", shown, "of all pushed gradients"),
                    ],
                    className="column",
                ),
            ],
            className="grid",
        ),
        html.Section([html.H2("Traffic of the links"), live("traffic", shown)], className="panel"),
    ]


def time(runs: Runs, shown: Shown) -> list[Component]:
    """What agents and servers did when."""
    return [
        panel(
            "Agents and servers", "timeline", shown,
            "drag over a part of it to see single steps; double-click for the whole",
            height=timeline.height(shown),
        ),
    ]  # fmt: skip


def events(runs: Runs, shown: Shown) -> list[Component]:
    """What happened."""
    return [
        panel("Events", "happened", shown, "failures are crosses"),
        html.Section(
            [html.H2("Failures and events, the last ones first"), live("events", shown)], className="panel"
        ),
    ]


def compare(runs: Runs, shown: Shown) -> list[Component]:
    """Several runs side by side."""
    names = [row["run_id"] for row in runs.rows() if row["run_id"] != shown.name]
    chosen = html.Label(
        [
            html.Span("Beside it", className="faint"),
            dcc.Dropdown(names, names[:1], multi=True, id=_choice("others"), placeholder="other runs"),
        ],
        className="choice wide",
    )
    look = Look(others=tuple(runs.get(name) for name in names[:1]))
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


def data(runs: Runs, shown: Shown) -> list[Component]:
    """The rows themselves: filtered, and by SQL."""
    words = {name: shown.ask(rows.distinct, column=name) for name in ("metric", "rank", "phase")}
    return [
        html.Section(
            [
                html.H2("Samples"),
                html.Div(
                    [
                        _dropdown("filter-metric", "Metric", words["metric"]),
                        _dropdown("filter-rank", "Rank", words["rank"]),
                        _dropdown("filter-phase", "Phase", words["phase"]),
                        _field("filter-first", "From step", "number"),
                        _field("filter-last", "To step", "number"),
                        _field("filter-text", "Scope, node or status has", "text"),
                    ],
                    className="filters",
                ),
                html.Div(id="samples", className="rows"),
                html.Div(
                    [
                        html.Button("← newer", id="newer", n_clicks=0),
                        html.Span(id="place", className="faint"),
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


# -- what changes while a run goes on ------------------------------------------------------------------------


def _stats(shown: Shown, look: Look) -> Component:
    return tables.stats(shown.ask(figures.figures))


def _verdict(shown: Shown, look: Look) -> Component:
    found = shown.verdict()
    if not found.num_rows:
        return html.P(
            "This run has no criteria: it comes from no recipe, or from an older version.", className="faint"
        )
    title = "Verdict" if shown.view.row["verdict"] else "Verdict so far"
    word = shown.view.row["verdict"] or ""
    return html.Section(
        [html.H2([title, " ", *([tables.badge(word)] if word else [])]), tables.verdicts(found)]
    )


def _traffic(shown: Shown, look: Look) -> Component:
    found = shown.ask(links.edges).to_pylist()
    if not found:
        return html.P("Nothing is known of this run's links.", className="faint")
    rows = sorted(found, key=lambda row: -row["bytes"])[:MOST_EVENTS]
    for row in rows:
        row["sender"], row["receiver"] = topology.called(row["sender"]), topology.called(row["receiver"])
        row["amount"], row["how"] = (
            size(row["bytes"]),
            "counted" if row["counted"] else "equal parts of what was sent",
        )
    return tables.table(rows, {"sender": "from", "receiver": "to", "amount": "amount", "how": "known by"})


def _events(shown: Shown, look: Look) -> Component:
    rows = shown.ask(happenings.events).to_pylist()[::-1][:MOST_EVENTS]
    if not rows:
        return html.P("Nothing has happened besides the steps.", className="faint")
    for row in rows:
        row["at"] = f"{row['seconds']:.3f}"
        row["class"] = "failure" if row["failure"] else ""
        row["kind"] = f"✕ {row['name']}" if row["failure"] else row["name"]
        row["took"] = None if row["duration"] is None else f"{row['duration']:.4g}"
    columns = {"at": "time [s]", "kind": "event", "agent": "of", "rank": "rank", "step": "step",
               "took": "took [s]", "detail": "detail"}  # fmt: skip
    return tables.table(rows, columns)


def _beside(shown: Shown, look: Look) -> Component:
    rows = beside.rows(shown, look.others)
    for at, row in enumerate(rows):
        row["name"] = html.Span([html.I(className=f"dot c{at % 7}"), row["run"]])
        row["accuracy"] = None if row["test_accuracy"] is None else f"{100 * row['test_accuracy']:.2f}"
        row["ms"] = None if row["step_time"] is None else f"{1e3 * row['step_time']:.3g}"
        row["rate"] = None if row["samples_per_second"] is None else number(row["samples_per_second"])
        row["sent"] = None if row["bytes_sent"] is None else size(row["bytes_sent"])
        row["took"] = None if row["seconds"] is None else tables.duration(row["seconds"])
    columns = {
        "name": "run", "status": "status", "verdict": "verdict", "agents": "agents", "steps": "steps",
        "took": "time",
        "loss": "loss", "accuracy": "accuracy [%]", "ms": "step [ms]", "rate": "samples/s", "sent": "sent",
    }  # fmt: skip
    hashes = {row["recipe_hash"] or "" for row in rows}
    note = (
        "What is FIXED in their recipes is the same: they can be compared, see d5ray compare for a verdict."
        if len(hashes) == 1 and hashes != {""}
        else "What is FIXED in them differs, or they come from no recipe: causes may be several."
    )
    return html.Section([tables.table(rows, columns), html.P(note, className="faint")], className="panel")


LIVE: dict[str, Callable[[Shown, Look], Component]] = {
    "stats": _stats, "verdict": _verdict, "traffic": _traffic, "events": _events, "beside": _beside,
}  # fmt: skip


# -- building blocks -----------------------------------------------------------------------------------------


def drawn(name: str, shown: Shown, look: Look) -> dict[str, Any]:
    """A chart, or why there is none."""
    try:
        return CHARTS[name](shown, look)
    except D5Error as error:
        return empty(str(error))


def live(name: str, shown: Shown, look: Look | None = None) -> Component:
    """A part that is made anew when something has come."""
    return html.Div(LIVE[name](shown, look or Look()), id={"type": "live", "name": name}, className="live")


def panel(
    title: str,
    name: str,
    shown: Shown,
    about: str,
    *,
    look: Look | None = None,
    control: Component = None,
    tall: bool = False,
    height: int | None = None,
) -> Component:
    """A chart with its title."""
    graph = dcc.Graph(
        id={"type": "chart", "name": name},
        figure=drawn(name, shown, look or Look()),
        config=CONFIG,
        style={"height": f"{height}px" if height else "var(--tall)" if tall else "var(--chart)"},
    )
    zoom = dcc.Store(id={"type": "range", "name": name})
    marked: dict[str, Any] = {"data-chart": name}
    head = html.Div([html.H2(title), html.Span(about, className="faint")], className="head")
    return html.Section([head, control, graph, zoom], className="panel", **marked)  # fmt: skip


def over() -> Component:
    """The choice of the horizontal axis."""
    return radio(OVER, "Over", {"step": "steps", "seconds": "time"}, "step")


def radio(name: str, title: str, options: dict[str, str], value: str) -> Component:
    """A choice among a few."""
    given = [{"label": label, "value": key} for key, label in options.items()]
    return html.Div(
        [html.Span(title, className="faint"), dcc.RadioItems(given, value, id=_choice(name), inline=True)],
        className="choice",
    )


def select(name: str, title: str, options: list[str], value: str) -> Component:
    """A choice among many."""
    return html.Label(
        [
            html.Span(title, className="faint"),
            dcc.Dropdown(options, value, id=_choice(name), clearable=False),
        ],
        className="choice wide",
    )


def _choice(name: str) -> dict[str, str]:
    """Its id has another key than charts have: who has a key in common is taken to belong together."""
    return {"choice": name}


def _dropdown(name: str, title: str, options: list[Any]) -> Component:
    return html.Label(
        [html.Span(title, className="faint"), dcc.Dropdown(options, id=name, placeholder="all")]
    )


def _field(name: str, title: str, kind: Literal["number", "text"]) -> Component:
    return html.Label([html.Span(title, className="faint"), dcc.Input(id=name, type=kind, debounce=True)])


def _about(shown: Shown) -> str:
    found = shown.ask(links.graph)
    name = str(found.get("name", "the topology was not recorded"))
    return f"{name}, too many links to draw" if found and found.get("edges") is None else name
