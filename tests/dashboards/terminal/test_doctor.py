"""Claims about `d5ray doctor`: it tells which sensors a run could read here, and why it could not"""

from pathlib import Path

import pytest

from d5ray.dashboards.terminal.doctor import GOOD, PROGRAMS, WARN, _program, _sensors
from d5ray.metrics.probes.node_meters import ControlGroup
from d5ray.metrics.probes.nvml import Nvml
from d5ray.metrics.probes.rapl import Rapl


def test_a_sensor_that_cannot_be_read_is_named_with_the_reason() -> None:
    """As the meters themselves say; a missing sensor is a note, as runs do without it."""
    found = {finding.topic: finding for finding in _sensors()}
    meters = {"energy of processors": Rapl(), "use and energy of GPUs": Nvml()}
    for topic, meter in meters.items():
        assert found[topic].state == (GOOD if meter.counts_energy else WARN)
        assert meter.counts_energy or found[topic].text.startswith("unavailable")
    peak = [reading.value for reading in ControlGroup().read(0.0)]
    assert found["peak memory of the control group"].state == (WARN if None in peak else GOOD)


def test_programs_that_show_runs_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is there by its path; one that is missing is a note, as runs do without it."""
    program = tmp_path / "prometheus"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {name: _program(name, purpose) for name, purpose in PROGRAMS.items()}
    assert (found["prometheus"].state, found["grafana"].state) == (GOOD, WARN)
    assert str(program) in found["prometheus"].text
    assert found["grafana"].text.startswith("not installed")
