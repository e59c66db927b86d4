"""Claims about the pictures and tables of measured operators"""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from d5ray.dashboards.operators import Measured, duration
from d5ray.dashboards.roofline_picture import Axes, picture

GEMM = Measured("gemm 512×16×512 NN", "gemm", "torch", 1e-4, None, None, 1, 8.0, 8e10, 1e10, 0.8, "FLOP/s")
SVG = "{http://www.w3.org/2000/svg}"


def drawn(*found: Measured) -> ElementTree.Element:
    """With peaks of 100 GFLOP/s and 10 GB/s."""
    return ElementTree.fromstring(picture(found, 1e11, 1e10, "a <title> & more"))


def test_every_problem_is_a_mark_that_says_what_it_is() -> None:
    """Forms by the group, colours by the framework."""
    conv = replace(GEMM, problem="conv 1×1 → 2", group="conv")
    rnn = replace(GEMM, problem="gru", group="rnn", framework="numpy")
    svg = drawn(GEMM, conv, rnn)
    marks = {mark[0].text: mark for mark in svg if len(mark) and mark[0].tag == f"{SVG}title"}
    kinds = {name: marks[name].tag.removeprefix(SVG) for name in marks if ", " in str(name)}
    assert kinds == {
        "torch, gemm 512×16×512 NN": "circle",
        "torch, conv 1×1 → 2": "rect",
        "numpy, gru": "polygon",
    }
    colours = {name: mark.get("fill") for name, mark in marks.items()}
    assert colours["torch, gemm 512×16×512 NN"] == colours["torch, conv 1×1 → 2"] != colours["numpy, gru"]


def test_the_roof_rises_with_the_bandwidth_to_the_ridge() -> None:
    """At 10 FLOP a byte, where 10 GB/s give the peak of 100 GFLOP/s; from there on it is level."""
    low = replace(GEMM, intensity=0.2, flops_per_second=2e9)
    svg = drawn(low, replace(GEMM, intensity=900.0))
    (roof,) = svg.findall(f"{SVG}polyline")
    points = [tuple(map(float, pair.split(","))) for pair in str(roof.get("points")).split()]
    axes = Axes((-1, 9), (4, 12))
    expected = [(0.1, 1e9), (10.0, 1e11), (1e4, 1e11)]
    for (x, y), (intensity, rate) in zip(points, expected, strict=True):
        assert [x, y] == pytest.approx([axes.x(intensity), axes.y(rate)], abs=0.1)


def test_a_mark_below_the_roof_is_drawn_below_it() -> None:
    """Of two calls the quicker one stands higher."""
    slow = replace(GEMM, problem="slow", flops_per_second=1e9)
    svg = drawn(GEMM, slow)
    heights = {
        mark[0].text: float(mark.get("cy", "nan")) for mark in svg.findall(f"{SVG}circle") if len(mark)
    }
    assert heights["torch, slow"] > heights["torch, gemm 512×16×512 NN"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.50 s"), (0.0123, "12.3 ms"), (4.5678e-5, "45.7 µs"), (5e-10, "0.500 ns"), (123.4, "123 s")],
)
def test_durations_have_three_digits_in_a_unit_that_suits_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
