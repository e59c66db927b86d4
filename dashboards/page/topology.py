"""The chart of who talks with whom: how far agents are apart, and what went over each link"""

import math
from collections.abc import Mapping
from typing import Any

from d5ray.dashboards.page.chart_style import COLOURS, SEQUENCE, empty, figure, plain
from d5ray.dashboards.page.charts import ChartOptions
from d5ray.dashboards.page.runs import OpenRun
from d5ray.dashboards.quantities import number, size
from d5ray.metrics.views import communication

SERVER = "ParameterServer"
MOST_IN_ROW = 12  # agents beside each other, with servers below them
LABELLED = 8  # links at most whose bytes stand on them
WIDTHS = (1.0, 2.0, 3.5, 5.0)  # px, of links by their share of the busiest one's bytes
HUES = {
    "consensus_distance": "distance from the mean [1]",
    "staleness": "staleness [updates]",
    "loss": "training loss [1]",
    "bytes_sent": "sent [B]",
}
Place = tuple[float, float]


def hues(shown: OpenRun) -> list[str]:
    """The choices of what the agents of a run are coloured by."""
    actors = shown.ask(communication.actors)
    return [name for name in HUES if actors[name].null_count < actors.num_rows]


def graph(shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """The topology with the traffic on its links."""
    actors = shown.ask(communication.actors).to_pylist()
    if not actors:
        return empty("no agent has recorded a step so far")
    places = _places(actors)
    edges = [edge for edge in shown.ask(communication.edges).to_pylist() if edge["sender"] in places]
    pairs: dict[tuple[str, str], dict[str, float]] = {}
    for edge in edges:
        if edge["receiver"] in places:
            ends = tuple(sorted((edge["sender"], edge["receiver"])))
            pairs.setdefault((ends[0], ends[1]), {})[edge["sender"]] = edge["bytes"]
    traces = [*_lines(pairs, places), *_middles(pairs, places), *_nodes(actors, places, look.colour)]
    hidden = {"visible": False, "fixedrange": True}
    x = {**hidden, "range": _range([x for x, _ in places.values()])}
    y = {**hidden, "range": _range([y for _, y in places.values()])[::-1]}
    labels = _amounts(pairs, places) if len(pairs) <= LABELLED else []
    margin = {"l": 10, "r": 10, "t": 10, "b": 10}
    return figure(traces, x, y, margin=margin, dragmode=False, showlegend=False, annotations=labels)


def _places(actors: list[dict[str, Any]]) -> dict[str, Place]:
    """The position of each actor: agents as their topology has them, or on a circle; servers below a row."""
    agents = [actor["actor"] for actor in actors if actor["rank"] is not None]
    servers = [actor["actor"] for actor in actors if actor["rank"] is None]
    if servers and len(agents) <= MOST_IN_ROW:
        return _row(agents, 0.0) | _row(servers, 1.0)
    known = {
        actor["actor"]: (actor["x"], actor["y"])
        for actor in actors
        if actor["x"] is not None and actor["y"] is not None
    }
    if len(known) < len(agents):
        angles = [2 * math.pi * at / len(agents) for at in range(len(agents))]
        known = {name: (math.sin(a), -math.cos(a)) for name, a in zip(agents, angles, strict=True)}
    middle = [sum(place[i] for place in known.values()) / len(known) for i in (0, 1)]
    row = _row(servers, middle[1], 0.5)
    return known | {name: (middle[0] + x, y) for name, (x, y) in row.items()}


def _row(names: list[str], y: float, apart: float = 1.0) -> dict[str, Place]:
    """Side by side, about 0."""
    return {name: (apart * (at - (len(names) - 1) / 2), y) for at, name in enumerate(names)}


def _lines(
    pairs: Mapping[tuple[str, str], Mapping[str, float]], places: Mapping[str, Place]
) -> list[dict[str, Any]]:
    most = max((sum(both.values()) for both in pairs.values()), default=0.0)
    drawn: dict[float, tuple[list[float | None], list[float | None]]] = {}
    for (first, second), both in pairs.items():
        share = sum(both.values()) / most if most else 0.0
        width = WIDTHS[min(len(WIDTHS) - 1, int(share * len(WIDTHS)))]
        x, y = drawn.setdefault(width, ([], []))
        x += [places[first][0], places[second][0], None]
        y += [places[first][1], places[second][1], None]
    return [
        {"type": "scatter", "mode": "lines", "x": x, "y": y, "hoverinfo": "skip",
         "line": {"width": width, "color": "rgba(128,140,155,0.75)"}}
        for width, (x, y) in sorted(drawn.items())
    ]  # fmt: skip


def _middles(
    pairs: Mapping[tuple[str, str], Mapping[str, float]], places: Mapping[str, Place]
) -> list[dict[str, Any]]:
    """A point in the middle of each link that says what went over it."""
    told, x, y = [], [], []
    for (first, second), both in pairs.items():
        x.append((places[first][0] + places[second][0]) / 2)
        y.append((places[first][1] + places[second][1]) / 2)
        other = {first: called(second), second: called(first)}
        amounts = [f"{called(end)} → {other[end]}: {size(amount)}" for end, amount in both.items()]
        told.append("<br>".join(map(plain, amounts)))
    return [
        {"type": "scatter", "mode": "markers", "x": x, "y": y, "customdata": told,
         "marker": {"size": 14, "color": "rgba(0,0,0,0)"}, "hovertemplate": "%{customdata}<extra></extra>"}
    ]  # fmt: skip


def _amounts(
    pairs: Mapping[tuple[str, str], Mapping[str, float]], places: Mapping[str, Place]
) -> list[dict[str, Any]]:
    """The bytes of each link in both directions, written nearer to the agent if the other end is a server."""
    labels = []
    for ends, both in pairs.items():
        agent, other = sorted(ends, key=lambda end: end.startswith(SERVER))
        share = 0.32 if other.startswith(SERVER) else 0.5
        x, y = ((1 - share) * places[agent][i] + share * places[other][i] for i in (0, 1))
        labels.append({"x": x, "y": y, "text": size(sum(both.values())), "showarrow": False,
                       "font": {"size": 11}, "bgcolor": "rgba(0,0,0,0)"})  # fmt: skip
    return labels


def _nodes(actors: list[dict[str, Any]], places: Mapping[str, Place], hue: str) -> list[dict[str, Any]]:
    traces = []
    for servers in (False, True):
        chosen = [actor for actor in actors if (actor["rank"] is None) == servers]
        if not chosen:
            continue
        values = [actor.get(hue) if hue else None for actor in chosen]
        coloured = not servers and any(value is not None for value in values)
        diameter = 46 if len(chosen) <= 16 else 28 if len(chosen) <= 64 else 14
        marker: dict[str, Any] = {
            "size": diameter, "symbol": "square" if servers else "circle",
            "color": COLOURS[2] if servers else COLOURS[5],
            "line": {"width": 2, "color": "rgba(255,255,255,0.9)"},
        }  # fmt: skip
        if coloured:
            marker |= {
                "color": values, "colorscale": SEQUENCE, "showscale": True,
                "colorbar": {"title": {"text": HUES[hue], "side": "right", "font": {"size": 12}},
                             "thickness": 12, "outlinewidth": 0, "tickfont": {"size": 11}, "len": 0.85},
            }  # fmt: skip
        traces.append(
            {
                "type": "scatter", "mode": "markers+text", "x": [places[a["actor"]][0] for a in chosen],
                "y": [places[a["actor"]][1] for a in chosen], "marker": marker,
                "text": [_mark(a["actor"]) if diameter > 20 else "" for a in chosen],
                "textfont": {"size": 12, "color": "#ffffff"}, "customdata": [_told(a) for a in chosen],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )  # fmt: skip
    return traces


def _mark(actor: str) -> str:
    return f"S{_short(actor)}" if actor.startswith(SERVER) else _short(actor)


def _told(actor: dict[str, Any]) -> str:
    lines = [f"<b>{plain(actor['actor'])}</b>"]
    if actor["steps"] is not None:
        lines.append(f"{actor['steps']:,} steps")
    for name in ("loss", "consensus_distance", "staleness"):
        if actor[name] is not None:
            lines.append(f"{name.replace('_', ' ')} {number(actor[name])}")
    for name in ("bytes_sent", "bytes_received"):
        if actor[name] is not None:
            lines.append(f"{name.replace('_', ' ')} {size(actor[name])}")
    return "<br>".join(lines)


def called(actor: str) -> str:
    """An actor as people call it: `TrainingAgent(rank=3)` is agent 3, `ParameterServer(shard=0)` server 0."""
    kind = "server" if actor.startswith(SERVER) else "agent"
    return f"{kind} {_short(actor)}"


def _short(actor: str) -> str:
    """The last number in its name."""
    return actor.rstrip(")").rpartition("=")[2] or actor


def _range(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    edge = max(0.25, 0.22 * (high - low))
    return [low - edge, high + edge]
