"""Claims about tables and figures of performance profiles: their numbers, their lines, and that they fit"""

import io
import math

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from d5ray.dashboards.report.sections import studies
from d5ray.dashboards.terminal import contenders
from d5ray.metrics.judge.performance_profiles import medians_of, ratios_of
from d5ray.metrics.record.recorder import Recorder

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


def test_the_figure_has_a_line_of_every_optimizer_through_its_shares() -> None:
    """By steps: Muon is within a ratio of 1 on half of all workloads, from 1.5 on on all; best first."""
    ratios = ratios_of(medians_of(planted(), "steps_to_target"))
    (axes,) = studies._drawn(ratios, "steps").axes
    muon, adamw, sgd = axes.lines
    assert [line.get_label() for line in axes.lines] == ["Muon  0.92", "AdamW  0.75", "SGD & <co>  0.00"]
    assert np.asarray(muon.get_xydata()).tolist() == [[1.0, 0.5], [1.5, 1.0], [2.5, 1.0], [4.0, 1.0]]
    assert adamw.get_ydata() == pytest.approx([0.5, 0.5, 1.0, 1.0], abs=0.02)
    assert sgd.get_ydata() == pytest.approx(np.zeros(4), abs=0.02)


def test_nothing_measured_is_no_table() -> None:
    """Of a run that was interrupted at its beginning."""
    assert contenders.absolute({"samples": planted()["samples"].slice(0, 0)}) == []
