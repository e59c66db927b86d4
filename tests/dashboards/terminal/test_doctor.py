"""Claims about `d5ray doctor`: it tells which sensors a run could read here, and why it could not"""

from pathlib import Path

import pytest

from d5ray.dashboards.terminal.doctor import _machine, _sensors
from d5ray.dashboards.terminal.installed import GOOD, WARN
from d5ray.metrics.probes import environment
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


def test_a_gpu_is_told_with_what_has_been_tried_on_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the driver's files, by model; UUIDs, in the same order, tell which one an agent has."""
    for bus, model, uuid in (("0000:01:00.0", "H200", "GPU-b"), ("0000:02:00.0", "H100", "GPU-a")):
        card = tmp_path / "gpus" / bus
        card.mkdir(parents=True)
        (card / "information").write_text(f"Model: \t\t {model}\nGPU UUID:   {uuid}\n")
    monkeypatch.setattr(environment, "_NVIDIA", tmp_path)
    facts = environment.capture()
    assert (facts["gpus"], facts["gpu_uuids"]) == ("H200, H100", "GPU-b, GPU-a")
    (found,) = [finding for finding in _machine(facts) if finding.topic == "GPUs"]
    assert found.text == "H200, H100" and "no real GPU" in found.advice and "make test-gpu" in found.advice
