"""A topology as a picture: an SVG that needs nothing else; and beside it, in a notebook, its numbers"""

import html
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from d5ray.display import notebook_html
from d5ray.distributed.topologies.curves import BezierCurve, Places, curve_between, text_of
from d5ray.distributed.topologies.graph import CommunicationGraph, Matrix, Table
from d5ray.distributed.topologies.layout import Point
from d5ray.errors import D5Error

Label = Callable[[float], str]

MOST_EDGES = 5000  # more of them nobody can tell apart
MOST_AGENTS = 512  # whose eigenvalues and edges are a matter of a moment
SIDE = 420.0  # of the drawing, at most, in pixels; so are all lengths
NARROWEST = 340.0
HEADER = 58.0
LEGEND = 28.0
NODE, INK, FAINT, EDGE = "#1f4e79", "#1a202c", "#52606d", "#7b8794"
ROUNDS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d")  # Okabe and Ito


@dataclass(frozen=True)
class Drawing:
    """The drawn part of a topology: where its agents are, and of each round who gets from whom how much."""

    name: str
    positions: Sequence[Point]
    rounds: Sequence[tuple[Table, Matrix]]
    spectral_gap: float

    @property
    def period(self) -> int:
        """The rounds after which the graph repeats."""
        return len(self.rounds)


def picture(drawing: Drawing, path: str | PathLike[str] | None = None, label: Label | None = None) -> str:
    """The graph with its agents and spectral gap as an SVG, which is also written to `path`.

    Lines go both ways, arrows one; those of a time-varying topology are coloured by round, up to seven
    rounds. label: makes the text of an edge from its weight, for example "{:.2f}".format; where the two
    directions differ, each weight stands by the agent that gives it.
    """
    frame = _frame(drawing)
    size = f"{frame.width:.0f}", f"{frame.height:.0f}"
    edges = _edges(drawing)
    width = min(1.5, max(0.4, 12 / math.sqrt(len(edges) + 1)))  # many lines are thin ones
    text = "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{size[0]}" height="{size[1]}" '
            f'viewBox="0 0 {size[0]} {size[1]}" font-family="system-ui, Helvetica, Arial, sans-serif">',
            *_header(drawing, frame),
            *(line for edge in edges for line in edge.drawn(frame, width)),
            *(line for edge in edges if label is not None for line in edge.labelled(frame, label)),
            *_nodes(frame),
            *(_legend(drawing, frame) if 1 < drawing.period <= len(ROUNDS) else []),
            "</svg>\n",
        ]
    )
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


@dataclass(frozen=True)
class _Frame:
    """The positions of everything in the picture."""

    places: Places
    radius: float
    width: float
    height: float


@dataclass(frozen=True)
class _Edge:
    """Between two ranks; forth: the weight that `second` gives to `first`'s, None where it gets nothing."""

    first: int
    second: int
    forth: float | None
    back: float | None
    colour: str
    lane: int  # how many other rounds have this edge already

    def drawn(self, frame: _Frame, width: float) -> Iterator[str]:
        curve = self._curve(frame)
        yield f'<path d="{curve.path}" fill="none" stroke="{self.colour}" stroke-width="{width:.2g}"/>'
        if self.forth is None or self.back is None:
            arrow = curve if self.back is None else curve.backwards()
            size = min(9.0, max(3.0, 0.6 * frame.radius))
            yield f'<polygon points="{arrow.head(size)}" fill="{self.colour}"/>'

    def labelled(self, frame: _Frame, label: Label) -> Iterator[str]:
        curve = self._curve(frame)
        marks = [(self.forth, 0.68), (self.back, 0.32)]
        for weight, part in marks[1:] if self.forth == self.back else marks:
            if weight is not None:
                at = curve.at(part)
                yield (
                    f'<text x="{at.real:.1f}" y="{at.imag + 3.5:.1f}" font-size="10" text-anchor="middle" '
                    f'fill="{INK}" stroke="white" stroke-width="3" paint-order="stroke">'
                    f"{html.escape(label(weight))}</text>"
                )

    def _curve(self, frame: _Frame) -> BezierCurve:
        return curve_between(
            frame.places, self.first, self.second, frame.radius, 0.8 * frame.radius * self.lane
        )


def _frame(drawing: Drawing) -> _Frame:
    given = np.array([complex(x, y) for x, y in drawing.positions])
    given -= complex(given.real.min(), given.imag.min())
    extent = complex(given.real.max(), given.imag.max())
    apart = np.abs(given[:, None] - given)[~np.eye(len(given), dtype=np.bool_)]
    nearest = max(1e-9, float(apart.min(initial=math.inf if apart.size else 1.0)))
    scale = min(SIDE / max(extent.real, extent.imag, 1e-9), 110.0 / nearest)
    spacing = scale * nearest
    radius = min(16.0, max(2.5, 0.28 * spacing))
    margin = radius + max(14.0, 0.42 * min(spacing, 110.0))
    size = extent * scale + 2 * margin * (1 + 1j)
    width = max(NARROWEST, size.real, 76.0 * drawing.period * (drawing.period <= len(ROUNDS)))
    corner = complex((width - extent.real * scale) / 2, HEADER + margin)
    legend = LEGEND if 1 < drawing.period <= len(ROUNDS) else 0.0
    places = np.asarray(corner + scale * given, dtype=np.complex128)
    return _Frame(places, radius, width, HEADER + size.imag + legend)


def _edges(drawing: Drawing) -> list[_Edge]:
    coloured = drawing.period <= len(ROUNDS)
    found: dict[tuple[int, int, int], dict[bool, float]] = defaultdict(dict)  # by (i, j, round): forth, back
    for round, (table, weights) in enumerate(drawing.rounds):
        for receiver, sender in np.argwhere(table).tolist():
            pair = (min(receiver, sender), max(receiver, sender), round if coloured else 0)
            found[pair].setdefault(sender < receiver, float(weights[receiver, sender]))
    lanes: dict[tuple[int, int], int] = defaultdict(int)
    edges = []
    for (first, second, round), ways in sorted(found.items(), key=lambda item: item[0][2]):
        colour = ROUNDS[round] if drawing.period > 1 and coloured else EDGE
        lane = lanes[first, second]
        edges.append(_Edge(first, second, ways.get(True), ways.get(False), colour, lane))
        lanes[first, second] += 1
    return edges


def _header(drawing: Drawing, frame: _Frame) -> Iterator[str]:
    title = drawing.name
    agents = len(drawing.positions)
    facts = f"{agents} agent{'s' * (agents > 1)} · spectral gap {drawing.spectral_gap:.3g}"
    if drawing.period > 1:
        facts += f" · {drawing.period} rounds in turn"
    room = (frame.width - 24) / 0.63  # bold characters are 0.63 of their height wide, on average
    size = min(15.0, max(10.0, room / len(title)))
    fitting = int(room / size)
    shown = title if len(title) <= fitting else title[: fitting - 1] + "…"
    yield f"<title>{html.escape(f'{title}: {facts}')}</title>"
    yield '<rect width="100%" height="100%" fill="white"/>'
    middle = f'x="{frame.width / 2:.1f}" text-anchor="middle"'
    yield (
        f'<text {middle} y="26" font-size="{size:.1f}" font-weight="600" fill="{INK}">'
        f"{html.escape(shown)}</text>"
    )
    yield f'<text {middle} y="46" font-size="12.5" fill="{FAINT}">{facts}</text>'


def _nodes(frame: _Frame) -> Iterator[str]:
    for rank, place in enumerate(frame.places):
        yield f'<circle cx="{place.real:.1f}" cy="{place.imag:.1f}" r="{frame.radius:.1f}" fill="{NODE}"/>'
        size = frame.radius * (0.95 if rank < 100 else 0.75)
        if size >= 6:
            yield (
                f'<text x="{place.real:.1f}" y="{place.imag + 0.36 * size:.1f}" font-size="{size:.1f}" '
                f'text-anchor="middle" fill="white">{rank}</text>'
            )


def _legend(drawing: Drawing, frame: _Frame) -> Iterator[str]:
    begin = complex((frame.width - 76.0 * drawing.period) / 2, frame.height - 18)
    for round in range(drawing.period):
        at = begin + 76.0 * round
        line = f"M{text_of(at + 6)} L{text_of(at + 24)}"
        yield f'<path d="{line}" stroke="{ROUNDS[round]}" stroke-width="3"/>'
        place = f'x="{at.real + 29:.1f}" y="{at.imag + 4:.1f}"'
        yield f'<text {place} font-size="11" fill="{FAINT}">round {round}</text>'


def described(topology: CommunicationGraph, spectral_gap: Callable[[], float], picture: str | None) -> str:
    """The picture, if there is one, and beside it size, degree, direction, rounds and spectral gap."""
    few = topology.agents <= MOST_AGENTS
    ranks = range(topology.agents if few else 1)
    turns = range(topology.period if few else 1)
    degrees = [len(topology.out_neighbors(rank, turn)) for rank in ranks for turn in turns]
    facts: list[tuple[str, object]] = [
        ("agents", topology.agents),
        ("degree", _between(degrees) if few else f"{degrees[0]} of agent 0"),
        ("edges", "directed" if few and topology.directed else "undirected" if few else "not looked at"),
        ("rounds in turn", topology.period),
        ("spectral gap", _gap(spectral_gap) if few else f"not computed beyond {MOST_AGENTS} agents"),
    ]
    drawn = f'<div style="max-width:480px;border-radius:6px;overflow:auto">{picture}</div>' if picture else ""
    return notebook_html.block(
        notebook_html.title(repr(topology)), notebook_html.Html(drawn), notebook_html.table(("", ""), facts)
    )


def _between(degrees: list[int]) -> str:
    low, high = min(degrees), max(degrees)
    return str(low) if low == high else f"{low} to {high}"


def _gap(spectral_gap: Callable[[], float]) -> str:
    try:
        return f"{spectral_gap():.3g}"
    except D5Error as error:
        return str(error)
