"""The charts of time: what agents and servers did when, and what happened"""

from typing import Any

from d5ray.dashboards.page.chart_style import COLOURS, KIND_COLOURS, axis, empty, figure, plain
from d5ray.dashboards.page.charts import ChartOptions
from d5ray.dashboards.page.runs import OpenRun
from d5ray.metrics.views import events

NAMES = {"compute": "compute", "communicate": "communicate", "wait": "wait for others", "rest": "rest",
         "serve": "serve requests"}  # fmt: skip
MOST_ACTORS = 40
MOST_BARS = 2400
HEIGHT = 34  # px of an actor's row


def timeline(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """A row of bars for each agent and server. look: over seconds, whatever it says."""
    rows = shown.ask(events.timeline, low=look.low, high=look.high, most=MOST_BARS).to_pylist()
    if not rows:
        return empty("no training steps are recorded in this time")
    actors = list(dict.fromkeys(row["actor"] for row in rows))[:MOST_ACTORS]
    labels = {actor: _label(actor) for actor in actors}
    traces = []
    for kind, colour in KIND_COLOURS.items():
        own = [row for row in rows if row["kind"] == kind and row["actor"] in labels]
        if own:
            traces.append(
                {
                    "type": "bar", "orientation": "h", "y": [labels[row["actor"]] for row in own],
                    "base": [row["begin"] for row in own], "x": [row["end"] - row["begin"] for row in own],
                    "customdata": [_several(kind, row["steps"]) for row in own], "name": NAMES[kind],
                    "marker": {"color": colour, "line": {"width": 0}}, "offsetgroup": "one", "width": 0.72,
                    "hovertemplate": f"%{{y}}: {NAMES[kind]} %{{x:.4~g}} s%{{customdata}}<extra></extra>",
                }
            )  # fmt: skip
    low, high = (min(row["begin"] for row in rows), max(row["end"] for row in rows))
    bounds = [low, high] if look.low is None or look.high is None else [look.low, look.high]
    x = axis("time since the start [s]", range=bounds)
    y = axis("", autorange="reversed", type="category", fixedrange=True, categoryorder="array",
             categoryarray=list(labels.values()))  # fmt: skip
    return figure(traces, x, y, barmode="overlay", margin={"l": 76, "r": 16, "t": 12, "b": 46})


def height(shown: OpenRun) -> int:
    """The height of the timeline in px: it does not change while the run goes on."""
    return 150 + HEIGHT * min(MOST_ACTORS, (shown.view.row["agents"] or 1) + 2)


def happened(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """Events over time, a line for each kind."""
    rows = shown.ask(events.events).to_pylist()
    if not rows:
        return empty("nothing has happened besides the steps")
    traces = []
    for failure, name, colour, symbol in (
        (False, "event", COLOURS[0], "circle"), (True, "failure", COLOURS[3], "x"),
    ):  # fmt: skip
        own = [row for row in rows if row["failure"] == failure]
        if own:
            traces.append(
                {
                    "type": "scatter", "mode": "markers", "name": name,
                    "x": [row["seconds"] for row in own], "y": [plain(row["name"]) for row in own],
                    "customdata": [plain(row["agent"]) for row in own],
                    "marker": {"size": 11, "color": colour, "symbol": symbol},
                    "hovertemplate": "%{y} of %{customdata} at %{x:.4~g} s<extra></extra>",
                }
            )  # fmt: skip
    y = axis("", type="category", automargin=True)
    zoomed = {} if look.low is None or look.high is None else {"range": [look.low, look.high]}
    return figure(traces, axis("time since the start [s]", **zoomed), y)


def _label(actor: str) -> str:
    last = plain(actor.partition("(")[2].rstrip(")").replace("rank=", ""))
    return f"server {last.replace('shard=', '')}" if actor.startswith("Param") else f"agent {last}"


def _several(kind: str, steps: int | None) -> str:
    if steps is None or steps == 1:
        return ""
    return f" in {steps:,} {'requests' if kind == 'serve' else 'steps'}"
