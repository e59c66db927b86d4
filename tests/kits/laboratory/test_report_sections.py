"""Claims about what the laboratory adds to a report: scaling, exchanges by size, rooflines"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from d5ray.dashboards.report.subject import Subject, subject_of
from d5ray.kits.laboratory.metrics.scaling import RunSteps
from d5ray.kits.laboratory.tables import by_size, in_reports, scaling
from d5ray.kits.laboratory.tables.operator_tables import Measured
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.store import RunWriter

LINKS = {"shared_memory[2]": (1e-5, 1e-10), "socket[2]": (3e-4, 6e-10)}  # α in s, β in s/B
SIZES = {"4 B": 4, "64 kB": 64e3, "1 MB": 1e6, "10 MB": 1e7}


@contextmanager
def allreduces(root: Path) -> Iterator[Subject]:
    """Two contenders, whose times follow a latency and a bandwidth exactly."""
    writer = RunWriter(root, "sizes")
    writer.open({"recipe": "allreduce_speed", "agents": 2, "started": datetime.now(UTC)})
    recorder = Recorder(run_id="sizes", agent="a", rank=0, node="n", send=writer.append)
    recorder.declare("allreduce_time", "s")
    for rep in range(6):
        for name, (latency, per_byte) in LINKS.items():
            for size, n in SIZES.items():
                seconds = latency + per_byte * n
                scope = f"{name} {size}"
                recorder.record("allreduce_time", seconds, step=0, rep=rep, phase="run", scope=scope)
    recorder.flush()
    writer.update_run(status="completed")
    writer.close()
    found = subject_of([str(root / "sizes")])
    yield found
    found.close()


def test_latency_and_bandwidth_are_those_of_the_links(tmp_path: Path) -> None:
    with allreduces(tmp_path) as subject:
        found = {each.name: each for each in by_size.found_by_size(subject.members[0])}
        for name, (latency, per_byte) in LINKS.items():
            assert found[name].latency == pytest.approx(latency, rel=1e-3)
            assert found[name].seconds_per_byte == pytest.approx(per_byte, rel=1e-3)
        figure, table = by_size.blocks_of(subject)
        assert table.rows[0] == ("shared_memory[2]", "10 µs", "10 GB/s")  # type: ignore[union-attr]
        (axes,) = figure.draw().axes  # type: ignore[union-attr]
    drawn = [line for line in axes.lines if np.size(line.get_xdata()) == 60]  # the fits
    for line, (latency, per_byte) in zip(drawn, LINKS.values(), strict=True):
        x, y = (np.asarray(data, float) for data in line.get_data())
        assert y == pytest.approx((latency + per_byte * x) * 1e3, rel=1e-3)


def test_marks_of_a_roofline_stand_at_their_rates_below_the_roof() -> None:
    """A roof of 100 GFLOP/s and 10 GB/s; an operator's interval is that of its time, turned round."""
    gemm = Measured("gemm", "gemm", "torch", 1e-4, 0.9e-4, 2e-4, 6, 8.0, 4e10, 5e9, 0.5, "B/s")
    conv = Measured("conv", "conv", "numpy", 1e-3, None, None, 1, 50.0, 9e10, 2e9, 0.9, "FLOP/s")
    (axes,) = in_reports._roofline([gemm, conv], 1e11, 1e10).axes
    (roof,) = [line for line in axes.lines if np.size(line.get_xdata()) == 3]
    assert np.asarray(roof.get_ydata())[1:] == pytest.approx([1e11, 1e11])
    assert np.asarray(roof.get_xdata())[1] == 10.0
    marks = {
        tuple(map(float, line.get_xydata()[0])) for container in axes.containers for line in container[:1]
    }
    assert marks == {(8.0, 4e10), (50.0, 9e10)}
    (bar,) = axes.containers[0][2]
    assert bar.get_segments()[0][:, 1] == pytest.approx([2e10, 4e10 / 0.9])


def test_scaling_of_the_same_work_is_strong_and_of_neither_says_so() -> None:
    strong = scaling.scaling({1: [RunSteps(0.4, 64)], 4: [RunSteps(0.125, 64)]})
    assert not isinstance(strong, str) and strong.kind == "strong"
    assert strong.points[1].efficiency.value == pytest.approx(0.8)
    assert strong.points[1].speedup.value == pytest.approx(3.2)
    neither = scaling.scaling({1: [RunSteps(0.4, 64)], 4: [RunSteps(0.1, 100)]})
    assert isinstance(neither, str) and "64 with 1, 100 with 4" in neither
