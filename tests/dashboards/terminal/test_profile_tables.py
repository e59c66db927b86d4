"""Claims about tables and pictures of performance profiles: their numbers, their lines, and that they fit"""

import io
import math
import re
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from rich.console import Console

from d5ray.dashboards.pictures.profile_picture import APART, HEIGHT, LEFT, TOP, WIDTH, picture
from d5ray.dashboards.terminal import contenders
from d5ray.metrics.record.recorder import Recorder

SVG = "{http://www.w3.org/2000/svg}"
INF = math.inf
STEPS = {  # by optimizer, on two workloads
    "Muon": (100.0, 150.0),
    "AdamW": (250.0, 100.0),
    "SGD & <co>": (INF, INF),
}


def planted() -> dict[str, pa.Table]:
    """The rows of a comparison; a step takes 10 ms, one of Muon 40 ms; tried were 600 steps in 6 s."""
    batches: list[pa.RecordBatch] = []
    recorder = Recorder(run_id="r", agent="a", rank=0, node="n", send=batches.append)
    for metric, unit in (("steps_to_target", "1"), ("time_to_target", "s"), ("trained_time", "s")):
        recorder.declare(metric, unit)
    recorder.declare("evaluated_step", "1")
    for name, times in STEPS.items():
        for workload, steps in zip(("lenet", "text"), times, strict=True):
            seconds = steps * (0.04 if name == "Muon" else 0.01)
            for metric, value in (
                ("steps_to_target", steps), ("time_to_target", seconds), ("evaluated_step", 600),
                ("trained_time", 6.0),
            ):  # fmt: skip
                recorder.record(metric, value, step=0, phase="run", scope=f"{name}, {workload}[1]")
    recorder.flush()
    return {"samples": pa.Table.from_batches(batches)}


def test_the_tables_say_what_was_needed_and_who_was_best() -> None:
    """By hand: ratios 1, 1.5 and 2.5, 1; misses say until when it was tried. They fit 80 columns."""
    console = Console(file=io.StringIO(), width=80)
    for table in contenders.absolute(planted()):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    found = console.file.getvalue().splitlines()
    assert max(map(len, found)) <= 80
    assert [" ".join(line.split()) for line in found] == [
        "steps to the target lenet text score",
        "Muon 100 150 0.917",
        "AdamW 250 100 0.750",
        "SGD & <co> > 600 > 600 0.000",
        "seconds to the target lenet text score",
        "AdamW 2.5 1 1.000",
        "Muon 4 6 0.400",
        "SGD & <co> > 6 > 6 0.000",
        "share within … × the fewest steps 1 1.25 1.5 2 3 4",
        "Muon 0.50 0.50 1.00 1.00 1.00 1.00",
        "AdamW 0.50 0.50 0.50 0.50 1.00 1.00",
        "SGD & <co> 0.00 0.00 0.00 0.00 0.00 0.00",
    ]


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def test_the_picture_has_a_line_of_every_optimizer_through_its_shares() -> None:
    """Muon's by steps: half until a ratio of 1.5, then all; the lines lie a little apart."""
    root = ElementTree.fromstring(picture(planted()))
    lines = [
        element.attrib["d"] for element in root.iter(f"{SVG}path") if element.attrib.get("fill") == "none"
    ]
    assert len(lines) == 2 * len(STEPS)
    muon = [tuple(map(float, pair)) for pair in re.findall(r"M([\d.]+) ([\d.]+)", lines[0])]
    half, whole = TOP + HEIGHT - 0.5 * (HEIGHT - 20), TOP + 20
    assert muon == [pytest.approx((LEFT, half), abs=0.1)]
    rest = [(kind, float(value)) for kind, value in re.findall(r"([HV])([\d.]+)", lines[0])]
    at, end = LEFT + 0.5 / 3 * WIDTH, LEFT + WIDTH
    expected = [("H", at), ("V", whole), ("H", end), ("V", whole)]
    assert [kind for kind, _ in rest] == [kind for kind, _ in expected]
    assert [value for _, value in rest] == pytest.approx([value for _, value in expected], abs=0.1)
    third = float(lines[2].split()[1])
    assert third == pytest.approx(TOP + HEIGHT - 2 * APART, abs=0.1)  # SGD's, at 0


def test_the_legend_names_everyone_with_both_scores() -> None:
    """Whatever the name is made of; the file is nothing but XML."""
    found = texts(ElementTree.fromstring(picture(planted())))
    begin = found.index("Muon")
    assert found[begin : begin + 9] == [
        "Muon", "0.92", "0.40", "AdamW", "0.75", "1.00", "SGD & <co>", "0.00", "0.00",
    ]  # fmt: skip
    assert any("share of 2 workloads" in text for text in found)


def test_nothing_measured_is_an_empty_picture() -> None:
    """Of a run that was interrupted at its beginning."""
    run = {"samples": planted()["samples"].slice(0, 0)}
    root = ElementTree.fromstring(picture(run))
    assert "Performance profile" in texts(root)
    assert contenders.absolute(run) == []
