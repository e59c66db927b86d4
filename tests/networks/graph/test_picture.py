"""Pictures of networks: every node is in them once, nothing overlaps, nothing sticks out"""

import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.picture_layout import BOX_HEIGHT, BOX_WIDTH, layout
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

SVG = "{http://www.w3.org/2000/svg}"


def deep(blocks: int) -> Network:
    """Blocks of two nodes with a way around them."""
    network = Network("deep <&>")
    last = network.add_input("x", TensorDescriptor("float32", ("batch", 8)))
    for block in range(blocks):
        network.add_parameter(f"w{block}", np.ones((8, 8), np.float32))
        network.add_node(Node("MatMul", (last, f"w{block}"), (f"a{block}",), name=f"block{block}.product"))
        network.add_node(Node("Relu", (f"a{block}",), (f"b{block}",), name=f"block{block}.relu"))
        network.add_node(Node("Add", (f"b{block}", last), (f"c{block}",), name=f"block{block}.sum"))
        last = f"c{block}"
    network.add_output(last)
    return network


def boxes(picture: str) -> list[tuple[float, float]]:
    """The upper left corners of the boxes."""
    rectangles = ET.fromstring(picture).iter(f"{SVG}rect")
    return [(float(each.get("x", 0)), float(each.get("y", 0))) for each in rectangles if each.get("rx")]


@pytest.mark.parametrize("blocks", [1, 6, 30])
def test_every_node_is_drawn_once_apart_from_the_others_and_within_the_picture(blocks: int) -> None:
    picture = deep(blocks).draw()
    corners = boxes(picture)
    assert len(corners) == 3 * blocks + 2  # with the input and the output
    for (x, y), (u, v) in itertools.combinations(corners, 2):
        assert abs(x - u) >= BOX_WIDTH or abs(y - v) >= BOX_HEIGHT
    root = ET.fromstring(picture)
    shift = re.search(r"translate\(([\d.]+) ([\d.]+)\)", picture)
    assert shift is not None
    right = float(root.get("width", 0)) - float(shift.group(1)) - BOX_WIDTH
    bottom = float(root.get("height", 0)) - float(shift.group(2)) - BOX_HEIGHT
    assert all(0 <= x <= right and 0 <= y <= bottom for x, y in corners)


def test_a_long_network_is_folded_into_columns_that_fit_a_page() -> None:
    root = ET.fromstring(deep(30).draw())
    assert 0.7 < float(root.get("width", 0)) / float(root.get("height", 0)) < 3


def test_a_box_says_what_the_node_is_and_makes(tmp_path: Path) -> None:
    picture = deep(2).draw(tmp_path / "deep.svg")
    assert (tmp_path / "deep.svg").read_text() == picture
    texts = ["".join(each.itertext()) for each in ET.fromstring(picture).iter(f"{SVG}text")]
    assert texts[:2] == ["deep <&>", "6 nodes · 128 parameters"]
    assert {"MatMul", "block1.product", "8×8 → (batch, 8)"} <= set(texts)
    titles = ["".join(each.itertext()) for each in ET.fromstring(picture).iter(f"{SVG}title")]
    assert any("reads w1: float32 (8, 8)" in title for title in titles)


def test_a_picture_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be written to .*No such file"):
        deep(1).draw(tmp_path / "none" / "deep.svg")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30))
def test_lines_lead_downwards_from_layer_to_layer_in_any_graph(pairs: list[tuple[int, int]]) -> None:
    names = [str(number) for number in range(12)]
    edges = [(names[min(pair)], names[max(pair)], names[min(pair)]) for pair in pairs if pair[0] != pair[1]]
    placed = layout(names, edges)
    reached = {(lower, tensor) for _, lower, tensor in placed.lines}
    assert all((target, tensor) in reached for _, target, tensor in edges)
    for upper, lower, _ in placed.lines:
        if placed.column[upper] == placed.column[lower]:
            assert placed.places[upper][1] < placed.places[lower][1]
        else:
            assert placed.column[upper] + 1 == placed.column[lower]
    for first, second in itertools.combinations(names, 2):
        (x, y), (u, v) = placed.places[first], placed.places[second]
        assert abs(x - u) >= BOX_WIDTH or abs(y - v) >= BOX_HEIGHT
