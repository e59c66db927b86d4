"""Claims about pictures of topologies: SVG, with every agent and edge, and nothing covers another."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path

import networkx
import numpy as np
import pytest

import d5ray.topologies as to
from d5ray.distributed.topologies.curves import BezierCurve
from d5ray.distributed.topologies.topology import Topology

SVG = "{http://www.w3.org/2000/svg}"
EVERY: list[Topology] = [
    to.Complete(1), to.Complete(2), to.Complete(6), to.Ring(8), to.Ring(50), to.Torus(3, 4), to.Torus(1, 5),
    to.Torus(8, 8), to.Star(2), to.Star(9, center=3), to.Tree(12), to.Tree(33), to.Tree(6, branching=1),
    to.Hypercube(8), to.Hypercube(16), to.Bipartite(3, 4), to.RandomRegular(16, 3), to.DirectedRing(5),
    to.Exponential(8), to.Exponential(13), to.OnePeerExponential(8), to.OnePeerExponential(130),
    to.TimeVarying((to.Ring(6), to.Complete(6))), to.Custom(networkx.petersen_graph()),
    to.Custom(networkx.empty_graph(4)), to.Custom(networkx.gnp_random_graph(12, 0.2, seed=2, directed=True)),
]  # fmt: skip


class Picture:
    """What an SVG shows."""

    def __init__(self, text: str) -> None:
        self.root = ElementTree.fromstring(text)
        self.size = complex(float(self.root.attrib["width"]), float(self.root.attrib["height"]))
        circles = [circle.attrib for circle in self.root.iter(f"{SVG}circle")]
        self.places = np.array([complex(float(c["cx"]), float(c["cy"])) for c in circles])
        self.radius = float(circles[0]["r"])
        paths = [path.attrib["d"] for path in self.root.iter(f"{SVG}path")]
        self.curves = [BezierCurve(tuple(points_of(path))) for path in paths if "C" in path]  # type: ignore[arg-type]
        self.heads = [points_of(head.attrib["points"]) for head in self.root.iter(f"{SVG}polygon")]
        self.texts = [str(text.text) for text in self.root.iter(f"{SVG}text")]

    def nearest(self, point: complex) -> int:
        return int(np.abs(self.places - point).argmin())

    def pair(self, curve: BezierCurve) -> tuple[int, int]:
        return self.nearest(curve.points[0]), self.nearest(curve.points[3])


def points_of(text: str) -> list[complex]:
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", text)]
    return [complex(x, y) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]


@pytest.mark.parametrize("topology", EVERY, ids=repr)
def test_every_agent_and_edge_is_there_and_nothing_is_covered_or_cut_off(topology: Topology) -> None:
    """Circles by rank, apart and inside; a line per pair and round, around those in between; an arrow head
    where it is one way, which ends on its circle."""
    picture = Picture(topology.picture(label="{:.2f}".format))
    assert len(picture.places) == topology.agents
    edges = {
        (sender, receiver, round if topology.period < 8 else 0)  # more rounds are drawn as one
        for round in range(topology.period)
        for receiver, sender in np.argwhere(topology.adjacency(round)).tolist()
    }
    one_way = {(a, b, round) for a, b, round in edges if (b, a, round) not in edges}
    pairs = {(min(a, b), max(a, b), round) for a, b, round in edges}
    drawn = sorted(tuple(sorted(picture.pair(curve))) for curve in picture.curves)
    assert drawn == sorted(pair[:2] for pair in pairs)
    assert sorted(picture.nearest(head[0]) for head in picture.heads) == sorted(edge[1] for edge in one_way)
    for one, other in combinations(picture.places, 2):
        assert abs(one - other) > 2 * picture.radius + 0.5
    inside = [*picture.places, *(point for head in picture.heads for point in head)]
    inside += [curve.at(part) for curve in picture.curves for part in np.linspace(0, 1, 21)]
    assert all(0 < p.real < picture.size.real and 55 < p.imag < picture.size.imag for p in inside)
    for curve in picture.curves:
        ends = picture.pair(curve)
        on_the_way = np.array([curve.at(part) for part in np.linspace(0, 1, 41)])
        apart = np.abs(picture.places[:, None] - on_the_way).min(axis=1)
        assert (np.delete(apart, ends) > picture.radius - 0.5).all()
        assert (apart[list(ends)] > picture.radius - 0.5).all()
    for head in picture.heads:
        tip, *base = (abs(point - picture.places[picture.nearest(head[0])]) for point in head)
        assert tip == pytest.approx(picture.radius, abs=0.2) and min(base) > tip + 1


def test_the_header_has_agents_and_spectral_gap() -> None:
    """As text and as the title that programs read, with what SVG reserves escaped."""
    picture = Picture(to.Torus(3, 4).picture())
    assert picture.texts[:2] == ["Torus(rows=3, columns=4)", "12 agents · spectral gap 0.4"]
    title = picture.root.find(f"{SVG}title")
    assert title is not None and title.text == ": ".join(picture.texts[:2])
    rounds, own = to.OnePeerExponential(8), to.Custom(networkx.path_graph(3))
    assert Picture(rounds.picture()).texts[1] == "8 agents · spectral gap 1 · 3 rounds in turn"
    assert Picture(own.picture()).texts[0] == "Custom(<Graph of 3 nodes and 2 edges>)"
    long = Picture(to.TimeVarying((to.Ring(4),) * 20).picture()).texts[0]
    assert long.startswith("TimeVarying(topologies=(Ring") and long.endswith("…") and len(long) < 60


def test_ranks_stand_in_their_circles_by_rank() -> None:
    """0 on top of a ring, then clockwise; the root of a tree above its children, a center in the middle."""
    ring = Picture(to.Ring(4).picture())
    assert ring.texts[2:] == ["0", "1", "2", "3"]
    top, right, bottom, left = ring.places
    assert top.imag < right.imag == left.imag < bottom.imag and left.real < top.real < right.real
    tree = Picture(to.Tree(7).picture()).places
    assert tree[0].imag < tree[1].imag == tree[2].imag < tree[3].imag
    star = Picture(to.Star(5, center=2).picture()).places
    assert abs(np.delete(star, 2).mean() - star[2]) < 0.1


def test_labels_are_the_weights() -> None:
    """One per edge where both ways weigh the same, else each by the agent that gives it; none unasked."""
    label = "{:.2f}".format
    assert Picture(to.Ring(4).picture(label=label)).texts[2:6] == ["0.33"] * 4
    assert "0.33" not in Picture(to.Ring(4).picture()).texts
    text = to.Star(3, mixing=to.Uniform()).picture(label=lambda weight: f"<{weight:.2f}>")
    picture = Picture(text)
    assert sorted(picture.texts[2:6]) == ["<0.33>", "<0.33>", "<0.50>", "<0.50>"]
    for element in picture.root.iter(f"{SVG}text"):
        if str(element.text).startswith("<"):
            nearest = picture.nearest(complex(float(element.attrib["x"]), float(element.attrib["y"])))
            assert element.text == ("<0.33>" if nearest == 0 else "<0.50>")


def test_rounds_have_colours_and_a_legend() -> None:
    """As many as rounds, up to seven; more are drawn in one colour."""
    few, many = to.OnePeerExponential(8).picture(), to.OnePeerExponential(200).picture()
    assert Picture(few).texts[-3:] == ["round 0", "round 1", "round 2"]
    assert len(set(re.findall(r'fill="none" stroke="(#\w+)"', few))) == 3
    assert "round 0" not in many and len(set(re.findall(r'fill="none" stroke="(#\w+)"', many))) == 1


def test_the_picture_is_written_and_shown(tmp_path: Path) -> None:
    """The file has the text that is returned; a notebook shows the same, and of too many edges none."""
    path = tmp_path / "ring.svg"
    text = to.Ring(5).picture(path)
    assert path.read_text(encoding="utf-8") == text == to.Ring(5)._repr_svg_()
    assert to.Complete(72)._repr_svg_() is None
