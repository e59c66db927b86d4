"""The meters of a node: a tree of files as the kernel's, real processes, and a monitor that records them"""

import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from d5ray.errors import StorageError
from d5ray.metrics.definitions.resources import ABSENT
from d5ray.metrics.probes.node_meters import ControlGroup, Meter, Processes, Processors, Reading
from d5ray.metrics.probes.node_monitor import NodeMonitor
from d5ray.metrics.probes.nvml import Nvml
from d5ray.metrics.probes.rapl import Rapl
from tests.patience import patience

RANGE = 262_143_328_850  # µJ, as Intel's servers have it
NOBODY = 65534


def zone(root: Path, folder: str, name: str, joules: float, reach: int = RANGE) -> Path:
    """A counter as below /sys/class/powercap; the file to write to."""
    place = root / folder
    place.mkdir(parents=True, exist_ok=True)
    (place / "name").write_text(f"{name}\n")
    (place / "max_energy_range_uj").write_text(f"{reach}\n")
    return set_to(place / "energy_uj", joules)


def set_to(file: Path, joules: float) -> Path:
    file.write_text(f"{round(joules * 1e6)}\n")
    return file


def values(readings: list[Reading]) -> list[tuple[str, float | None]]:
    return [
        (reading.scope, None if reading.value is None else round(reading.value, 3)) for reading in readings
    ]


# -- processors' energy ------------------------------------------------------------------------------------


def test_packages_are_added_up_and_nothing_counts_twice(tmp_path: Path) -> None:
    """psys contains the packages, a package its cores, mmio shows it again; dram is counted apart."""
    psys = zone(tmp_path, "intel-rapl:2", "psys", 1000)
    first, second = (zone(tmp_path, f"intel-rapl:{n}", f"package-{n}", 100 * n) for n in (0, 1))
    cores = zone(tmp_path, "intel-rapl:0:0", "core", 50)
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 10)
    again = zone(tmp_path, "intel-rapl-mmio:0", "package-0", 0)
    (tmp_path / "intel-rapl").mkdir()
    meter = Rapl(tmp_path)
    assert meter.read(0.0) == [] and meter.counts_energy
    for file, joules in ((psys, 2000), (first, 30), (second, 150), (cores, 80), (memory, 12), (again, 30)):
        set_to(file, joules)
    found = meter.read(1.0)
    assert values(found) == [("package-0", 30), ("package-1", 50), ("package-0/dram", 2)]
    assert [r.metric for r in found] == ["processor_energy"] * 2 + ["memory_energy"]
    assert {r.source for r in found} == {"counter"}


def test_a_package_that_only_mmio_shows_counts(tmp_path: Path) -> None:
    file = zone(tmp_path, "intel-rapl-mmio:0", "package-0", 5)
    meter = Rapl(tmp_path)
    meter.read(0.0)
    set_to(file, 9)
    assert values(meter.read(1.0)) == [("package-0", 4)]


@pytest.mark.parametrize(("second", "counted"), [(5000.2, 1), (90.0, 2)])
def test_dies_that_mirror_one_counter_count_once(tmp_path: Path, second: float, counted: int) -> None:
    """Two dies within 10 J of each other are one package's counter seen twice; others are counters apart."""
    files = [
        zone(tmp_path, f"intel-rapl:{n}", f"package-0-die-{n}", j) for n, j in enumerate((5000.0, second))
    ]
    other = zone(tmp_path, "intel-rapl:2", "package-1-die-0", 5000.0)  # another package, by chance the same
    meter = Rapl(tmp_path)
    meter.read(0.0)
    for file, joules in zip(files, (5007.0, second + 7), strict=True):
        set_to(file, joules)
    set_to(other, 5001.0)
    assert values(meter.read(1.0)) == [
        *((f"package-0-die-{n}", 7) for n in range(counted)), ("package-1-die-0", 1),
    ]  # fmt: skip


def test_a_counter_that_begins_anew_goes_on_at_its_range(tmp_path: Path) -> None:
    """From 5 J before the end of a 1000 J range to 7 J: 12 J; near the end it is read ten times a second."""
    file = zone(tmp_path, "intel-rapl:0", "package-0", 900, reach=1_000_000_000)
    meter = Rapl(tmp_path)
    meter.read(0.0)
    set_to(file, 950)
    assert values(meter.read(1.0)) == [("package-0", 50)]
    assert meter.due(1.0) == 0.1  # 50 J are left, at 50 W, which another second may use up
    assert meter.due(0.05) == 0.05
    set_to(file, 995)
    meter.read(1.0)
    set_to(file, 7)
    assert values(meter.read(0.1)) == [("package-0", 12)]
    set_to(file, 8)
    meter.read(1.0)
    assert meter.due(1.0) == 1.0


@pytest.mark.parametrize("broken", ["gone", "garbage", "empty"])
def test_a_failed_reading_gives_null_and_never_a_jump(tmp_path: Path, broken: str) -> None:
    """The interval that failed and the one after it are unknown; then counting goes on from where it is."""
    file = zone(tmp_path, "intel-rapl:0", "package-0", 100)
    meter = Rapl(tmp_path)
    meter.read(0.0)
    if broken == "gone":
        file.unlink()
    else:
        file.write_text("x" if broken == "garbage" else "")
    for reading in meter.read(1.0):
        assert (reading.value, reading.source) == (None, "unavailable")
        assert "package-0 was not read" in reading.status
    set_to(file, 5000)
    assert values(meter.read(1.0)) == [("package-0", None)]
    set_to(file, 5010)
    assert values(meter.read(1.0)) == [("package-0", 10)]


def test_where_nothing_counts_energy_one_row_says_so(tmp_path: Path) -> None:
    for root in (tmp_path / "none", tmp_path):
        meter = Rapl(root)
        (reading,) = meter.read(0.0)
        assert reading.status.startswith(f"{ABSENT} energy counter") and reading.value is None
        assert meter.read(1.0) == [] and meter.due(1.0) == 1.0 and not meter.counts_energy


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything; so the test reads as somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_where_root_alone_may_read_the_reason_says_so(what: str) -> None:
    """As Linux has it since CVE-2020-8694: the folder may be read, the counter may not."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own lies where nobody else may look
        root = Path(folder)
        root.chmod(0o755)
        file = zone(root, "intel-rapl:0", "package-0", 100)
        zone(root, "intel-rapl:1", "package-1", 100)
        (file if what == "file" else file.parent).chmod(0)
        with as_nobody():
            meter = Rapl(root)
            (reading,) = meter.read(0.0)
        assert reading.value is None and "permission denied" in reading.status
        assert "energy_uj files readable" in reading.status
        assert meter.read(1.0) == [] and not meter.counts_energy


# -- processors, processes, control groups -----------------------------------------------------------------


def test_processors_and_processes_agree_with_the_kernels_own_counters() -> None:
    """A process that computes for a while: its seconds are those it counts itself, its peak what it took."""
    code = "import time; x = bytearray(60_000_000); t = time.process_time()\n"
    code += "while time.process_time() - t < 0.4: pass\nprint(time.process_time(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        both = Processes({"busy": process.pid, "self": os.getpid()}), Processors()
        begin = time.perf_counter()
        first = [reading.metric for meter in both for reading in meter.read(0.0)]
        assert first == ["peak_memory", "peak_memory"]
        used = float(process.stdout.readline())
        seconds = time.perf_counter() - begin
        found = {(r.scope, r.metric): r.value for meter in both for r in meter.read(seconds)}
        assert found["busy", "process_utilisation"] == pytest.approx(used / seconds, abs=0.1 / seconds)
        peak, share = found["busy", "peak_memory"], found["node", "processor_utilisation"]
        assert peak is not None and 60e6 < peak < 120e6
        assert share is not None and 0 < share <= 1
        process.stdin.close()
    gone = [r for r in both[0].read(1.0) if r.scope == "busy"]
    assert [r.value for r in gone] == [None, None] and "has ended" in gone[0].status
    assert not [r for r in both[0].read(1.0) if r.scope == "busy"]  # said once


def test_an_interval_too_short_to_count_in_hundredths_is_not_told() -> None:
    meters = Processes({"self": os.getpid()}), Processors()
    for meter in meters:
        meter.read(0.0)
    assert {r.metric for meter in meters for r in meter.read(0.01)} == {"peak_memory"}


@pytest.mark.parametrize(
    "file", ["own/memory.peak", "memory.peak", "memory/first/memory.max_usage_in_bytes",
             "memory/memory.max_usage_in_bytes"],
)  # fmt: skip
def test_the_control_groups_peak_is_found_in_both_versions(tmp_path: Path, file: str) -> None:
    """The process's own group, or what a container sees as the root."""
    own = tmp_path / "cgroup"
    own.write_text("4:cpu,memory:/first\n0::/own\n")
    place = tmp_path / "root" / file
    place.parent.mkdir(parents=True)
    place.write_text("123456\n")
    meter = ControlGroup(tmp_path / "root", own)
    assert values(meter.read(0.0)) == [("node", 123456)]
    place.unlink()
    assert values(meter.read(1.0)) == [("node", None)]


def test_without_a_control_group_one_row_says_so(tmp_path: Path) -> None:
    meter = ControlGroup(tmp_path, tmp_path / "none")
    (reading,) = meter.read(0.0)
    assert reading.status.startswith(ABSENT) and meter.read(1.0) == []


# -- GPUs --------------------------------------------------------------------------------------------------


class Library:
    """NVML's binding over two devices, the second of which is too old for a counter of energy."""

    def __init__(self) -> None:
        self.millijoules: float | None = 5000.0
        self.milliwatts = 100_000.0

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, at: int) -> int:
        return at

    def nvmlDeviceGetUtilizationRates(self, device: int) -> Any:
        return SimpleNamespace(gpu=25 * (device + 1))

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:
        return SimpleNamespace(used=1000 + device)

    def nvmlDeviceGetTotalEnergyConsumption(self, device: int) -> float:
        if device or self.millijoules is None:
            raise RuntimeError("Not Supported")
        return self.millijoules

    def nvmlDeviceGetPowerUsage(self, device: int) -> float:
        if math.isnan(self.milliwatts):
            raise RuntimeError("GPU is lost")
        return self.milliwatts


def energies(meter: Nvml, seconds: float) -> list[tuple[str, float | None]]:
    return [(r.source, r.value) for r in meter.read(seconds) if r.metric == "device_energy"]


def test_gpus_count_energy_or_integrate_their_power() -> None:
    """7 J of the counter; of 100 and 200 W in 2 s the trapezoid, 300 J, called integrated."""
    library = Library()
    meter = Nvml(library)
    first = meter.read(0.0)
    assert [(r.metric, r.scope, r.value) for r in first] == [
        ("device_utilisation", "gpu 0", 0.25), ("device_peak_memory", "gpu 0", 1000),
        ("device_utilisation", "gpu 1", 0.5), ("device_peak_memory", "gpu 1", 1001),
    ]  # fmt: skip
    library.millijoules, library.milliwatts = 12_000.0, 200_000.0
    assert energies(meter, 2.0) == [("counter", 7.0), ("integrated", 300.0)]


def test_a_gpu_that_fails_gives_null_and_never_a_jump() -> None:
    """Lost power readings, a counter that goes back, and one that turns into power: unknown, each once."""
    library = Library()
    meter = Nvml(library)
    meter.read(0.0)
    library.milliwatts = math.nan
    assert energies(meter, 1.0)[1] == ("unavailable", None)
    library.milliwatts, library.millijoules = 1000.0, 100.0
    assert energies(meter, 1.0) == [("unavailable", None), ("unavailable", None)]
    library.millijoules = None
    assert energies(meter, 1.0) == [("unavailable", None), ("integrated", 1.0)]


def test_without_a_gpu_one_row_of_each_metric_says_so() -> None:
    meter = Nvml()
    readings = meter.read(0.0)
    if meter.counts_energy:
        pytest.skip("this machine has a GPU")
    assert [r.value for r in readings] == [None] * 3 and meter.read(1.0) == []
    assert all(r.status.startswith("unavailable") for r in readings)


# -- the monitor -------------------------------------------------------------------------------------------


class Kept:
    """A sink that keeps the rows, or has nowhere to put them."""

    def __init__(self, broken: bool = False) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.broken = broken
        self.drained = 0

    def samples(self, batch: pa.RecordBatch) -> None:
        if self.broken:
            raise StorageError("the disk is full")
        self.batches.append(batch)

    def drain(self) -> None:
        self.drained += 1

    def rows(self, metric: str) -> list[dict[str, Any]]:
        every = pa.Table.from_batches(self.batches).to_pylist()
        return [each for each in every if each["metric"] == metric]


class Steady(Meter):
    """Gives the interval itself, and notes when it was read."""

    def __init__(self, soon: float = math.inf) -> None:
        self.soon, self.read_at = soon, threading.Semaphore(0)

    def read(self, seconds: float) -> list[Reading]:
        self.read_at.release()
        return [Reading("processor_energy", seconds)] if seconds else []

    def due(self, seconds: float) -> float:
        return min(seconds, self.soon)


def test_every_interval_belongs_to_its_phase_and_none_is_lost() -> None:
    """idle, run, train, run: the intervals follow one another without a gap, and their sum is the time."""
    sink, meter = Kept(), Steady()
    monitor = NodeMonitor("r", "n", sink, 60.0, {}, [meter])
    begin = time.perf_counter()
    assert not monitor.start()
    monitor.phase("train")
    monitor.phase("run")
    rows = monitor.stop()
    seconds = time.perf_counter() - begin
    energy, times = sink.rows("processor_energy"), sink.rows("node_time")
    assert [r["phase"] for r in energy] == [r["phase"] for r in times] == ["idle", "run", "train", "run"]
    assert [r["value"] for r in energy] == [r["value"] for r in times]
    assert 0 < sum(r["value"] for r in times) <= seconds
    assert rows == len(energy) + len(times) and sink.drained == 1
    assert {(r["scope"], r["rank"], r["run_id"]) for r in energy} == {("node", -1, "r")}
    assert monitor.stop() == rows


def test_it_looks_as_often_as_the_hastiest_meter_asks() -> None:
    """Planned is once a minute; a meter near the end of its range is read five times well before that."""
    meter = Steady(soon=0.001)
    monitor = NodeMonitor("r", "n", Kept(), 60.0, {}, [meter, Steady()])
    monitor.start()
    assert all(meter.read_at.acquire(timeout=patience(20)) for _ in range(8))
    monitor.stop()


def test_it_ends_by_itself_where_its_rows_have_nowhere_to_go() -> None:
    """No exception in a thread that nobody sees, and stop returns the rows that there were."""
    monitor = NodeMonitor("r", "n", Kept(broken=True), 60.0, {}, [Steady()])
    monitor.start()
    assert monitor.stop() >= 2
    assert NodeMonitor("r", "n", Kept(), 60.0, {}, [Steady()]).stop() == 0  # which never began


def test_all_meters_of_this_machine_give_rows_that_fit_their_table() -> None:
    """Processors, this process, the control group, energy and GPUs: a value, or null with the reason."""
    sink = Kept()
    monitor = NodeMonitor("r", "n", sink, 0.15, {"self": os.getpid()})
    monitor.start()
    monitor.phase("train")
    wait = threading.Event()
    wait.wait(0.5)
    monitor.stop()
    for metric in ("processor_utilisation", "process_utilisation", "peak_memory", "node_time"):
        found = [r["value"] for r in sink.rows(metric)]
        assert found and np.isfinite(found).all(), metric
    for metric in ("processor_energy", "device_energy", "device_utilisation"):
        assert all((r["value"] is None) == (r["source"] == "unavailable") for r in sink.rows(metric)), metric
