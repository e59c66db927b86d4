"""Claims about `d5ray doctor`: it tells which sensors a run could read here, and why it could not"""

import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from d5ray.dashboards.terminal.doctor import _machine, _sensors
from d5ray.dashboards.terminal.installed import (
    BAD,
    EXTRAS,
    GOOD,
    SMALL_TORCH,
    WARN,
    cuda_build,
    packages,
    system,
)
from d5ray.metrics.probes import environment
from d5ray.metrics.probes.node_meters import ControlGroup
from d5ray.metrics.probes.nvml import Nvml
from d5ray.metrics.probes.rapl import Rapl
from tests.conftest import REPOSITORY


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


def test_cuda_without_a_gpu_is_told_with_the_command_that_is_small() -> None:
    """Where the libraries are installed and no GPU uses them; elsewhere nothing is said."""
    names = ["torch", "nvidia-cublas-cu12", "nvidia-ml-py", "numpy"]
    found = cuda_build(gpus=False, names=names)
    assert found is not None and found.state == WARN
    assert found.advice == f"pip uninstall -y torch nvidia-cublas-cu12; {SMALL_TORCH}"
    assert cuda_build(gpus=True, names=names) is None
    assert cuda_build(gpus=False, names=["torch", "nvidia-ml-py"]) is None


def test_a_missing_torch_comes_with_the_command_for_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    known = metadata.version

    def version(name: str) -> str:
        if name == "torch":
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(metadata, "version", version)
    found = {finding.topic: finding for finding in packages(gpus=False)}
    assert found["torch"].state == BAD and found["torch"].advice.startswith(SMALL_TORCH)
    assert found["numpy"].state == GOOD


def test_the_extras_are_those_of_the_project() -> None:
    """Of `docs`, which builds this site, nobody else has a use; `workloads` is two others."""
    text = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(EXTRAS) == set(text["project"]["optional-dependencies"]) - {"docs", "workloads"}


@pytest.mark.parametrize(("platform", "state"), [("linux", GOOD), ("darwin", WARN), ("win32", BAD)])
def test_the_system_is_told_with_what_runs_on_it(platform: str, state: str) -> None:
    assert system(platform).state == state
