"""Meters of a node: its processors, the processes of the agents, and the memory of the control group"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from d5ray.metrics.definitions.resources import (
    ABSENT,
    UNAVAILABLE,
    ControlGroupPeakMemory,
    ProcessorUtilisation,
    ProcessPeakMemory,
    ProcessUtilisation,
)

SHORTEST_SECONDS = 0.1  # of an interval whose use of processors is told: the kernel counts hundredths


@final
@dataclass(frozen=True)
class Reading:
    """One value of a sample. source: counter, integrated, model or unavailable; status: why it is None."""

    metric: str
    value: float | None
    scope: str = "node"
    source: str = "counter"
    status: str = "ok"

    @classmethod
    def missing(cls, metric: str, why: str, scope: str = "node") -> "Reading":
        """A reading that could not be made, with the reason; never a guess, nor a number that jumps later."""
        return cls(metric, None, scope, UNAVAILABLE, why)


class Meter(ABC):
    """Something of a node that can be read again and again."""

    counts_energy = False  # whether it gives joules, so that idle power is worth a moment before a training

    @abstractmethod
    def read(self, seconds: float) -> list[Reading]:
        """The readings since the last call, `seconds` ago; 0 at the first, which only begins."""

    def due(self, seconds: float) -> float:
        """The latest time for the next reading; `seconds` as planned, or sooner."""
        return seconds


@final
class Processors(Meter):
    """The meter of the node's processors, by the kernel's counters of busy and idle time."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None  # s: busy, all

    def read(self, seconds: float) -> list[Reading]:
        import psutil  # noqa: PLC0415 (46 µs a call; only monitors need it)

        times = psutil.cpu_times()
        resting = times.idle + getattr(times, "iowait", 0.0)
        # the time of guests is counted as that of users already
        whole = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        last, self._last = self._last, (whole - resting, whole)
        if last is None or seconds < SHORTEST_SECONDS or whole <= last[1]:
            return []
        share = (whole - resting - last[0]) / (whole - last[1])
        return [Reading(ProcessorUtilisation.name, min(1.0, max(0.0, share)))]


@final
class Processes(Meter):
    """Processor time and peak memory of processes. pids: by the name that becomes the rows' scope."""

    def __init__(self, pids: Mapping[str, int], proc: Path = Path("/proc")) -> None:
        self._pids, self._proc = dict(pids), proc
        self._last: dict[str, float] = {}

    def read(self, seconds: float) -> list[Reading]:
        readings = []
        for name, pid in list(self._pids.items()):
            try:
                readings += self._of(name, pid, seconds)
            except ProcessLookupError:
                del self._pids[name]  # its number may belong to another one soon
                gone = f"{UNAVAILABLE}: its process has ended"
                readings += [
                    Reading.missing(kind.name, gone, name) for kind in (ProcessUtilisation, ProcessPeakMemory)
                ]
        return readings

    def _of(self, name: str, pid: int, seconds: float) -> list[Reading]:
        import psutil  # noqa: PLC0415

        try:
            process = psutil.Process(pid)
            times = process.cpu_times()
            peak, source = self._peak(pid), "counter"
            if peak is None:
                peak, source = float(process.memory_info().rss), "integrated"
        except (psutil.NoSuchProcess, psutil.ZombieProcess, OSError) as error:
            raise ProcessLookupError from error
        used = times.user + times.system
        last = self._last.get(name)
        self._last[name] = used
        memory = Reading(ProcessPeakMemory.name, peak, name, source)
        if last is None or seconds < SHORTEST_SECONDS:
            return [memory]
        return [Reading(ProcessUtilisation.name, max(0.0, used - last) / seconds, name), memory]

    def _peak(self, pid: int) -> float | None:
        """The kernel's own maximum; `ru_maxrss` would be that of the process that started this one."""
        try:
            lines = (self._proc / str(pid) / "status").read_text().splitlines()
        except FileNotFoundError:
            return None
        for line in lines:
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) * 1024
        return None


@final
class ControlGroup(Meter):
    """The most memory of this process's control group, as the kernel keeps it, in version 2 or 1.

    root: where control groups are mounted; own: the file that says which one is this process's.
    """

    def __init__(self, root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> None:
        self._file = next((file for file in _peak_files(root, own) if file.is_file()), None)
        self._told = False

    def read(self, seconds: float) -> list[Reading]:
        metric = ControlGroupPeakMemory.name
        if self._file is None:
            told, self._told = self._told, True
            why = f"{ABSENT} control group that keeps its peak memory"
            return [] if told else [Reading.missing(metric, why)]
        try:
            return [Reading(metric, float(self._file.read_text()))]
        except (OSError, ValueError) as error:
            return [Reading.missing(metric, f"{UNAVAILABLE}: {error}")]


def _peak_files(root: Path, own: Path) -> list[Path]:
    """The files that may have the peak: of the process's own group first, then of a container's root."""
    try:
        groups = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        groups = []
    second = next((path for number, _, path in groups if number == "0"), "/").lstrip("/")
    first = next((path for _, kinds, path in groups if "memory" in kinds.split(",")), "/").lstrip("/")
    return [
        root / second / "memory.peak",
        root / "memory.peak",
        root / "memory" / first / "memory.max_usage_in_bytes",
        root / "memory" / "memory.max_usage_in_bytes",
    ]
