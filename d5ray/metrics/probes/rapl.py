"""The energy counters of processors (RAPL), as Linux shows them below /sys/class/powercap"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import final

from d5ray.errors import first_line
from d5ray.metrics.definitions.resources import ABSENT, UNAVAILABLE, MemoryEnergy, ProcessorEnergy
from d5ray.metrics.probes.node_meters import Meter, Reading

MICRO = 1e-6
MIRRORED_JOULES = 10.0  # within which the counters of two dies are two views of one
NEAR_SECONDS = 0.1  # between readings when a counter is about to begin anew
ZONE = re.compile(r"intel-rapl(-mmio)?:\d+(:\d+)?")
DIE = re.compile(r"(package-\d+)-die-\d+")


@dataclass
class _Zone:
    """One counter."""

    name: str  # package-0, or package-0/dram
    file: Path
    range_joules: float  # after which it begins at 0 again
    metric: str
    last: float | None = None  # J; None: the next reading only begins
    power: float = 0.0  # W, over the last interval

    def counter(self) -> float:
        """J; raises OSError or ValueError."""
        return int(self.file.read_text()) * MICRO


@final
class Rapl(Meter):
    """Joules of all packages, and of their memory where it is counted apart (`dram`).

    `psys` contains the packages and a package its cores, so that only packages are added up. The same package
    appears again below `intel-rapl-mmio`, and on some processors every die shows the counter of its whole
    package: both count once. A counter that begins at 0 again goes on at its `max_energy_range_uj`. A reading
    that fails gives null, and the next one only begins: what was used meanwhile is unknown, not guessed.
    AMD's processors are shown under the same names. The counters are for root alone on most systems
    (CVE-2020-8694), and virtual machines have none.
    """

    counts_energy = False

    def __init__(self, root: Path = Path("/sys/class/powercap")) -> None:
        self._why = ""
        self._zones: list[_Zone] = []
        try:
            self._zones = _found(root)
            if not any(zone.metric == ProcessorEnergy.name for zone in self._zones):
                self._why = f"{ABSENT} energy counter of the processor (RAPL) in {root}"
            for zone in self._zones:
                zone.counter()  # the folders may be open to all, and the counters to root alone
        except PermissionError as error:
            self._why = (
                f"{UNAVAILABLE}: RAPL permission denied ({error.filename}): run as root, or let an "
                "administrator make the energy_uj files readable"
            )
        except (OSError, ValueError) as error:
            self._why = f"{UNAVAILABLE}: RAPL cannot be read: {first_line(error)}"
        if self._why:
            self._zones = []
        self.counts_energy = bool(self._zones)

    def read(self, seconds: float) -> list[Reading]:
        if self._why:
            why, self._why = self._why, ""
            return [Reading.missing(ProcessorEnergy.name, why)]
        return [reading for zone in self._zones for reading in _read(zone, seconds)]

    def due(self, seconds: float) -> float:
        """Often near the end of a counter's range: there it could begin anew unnoticed."""
        for zone in self._zones:
            if zone.last is not None and zone.range_joules - zone.last < 2 * seconds * zone.power:
                return min(seconds, NEAR_SECONDS)
        return seconds


def _read(zone: _Zone, seconds: float) -> list[Reading]:
    try:
        now = zone.counter()
    except (OSError, ValueError) as error:
        zone.last = None
        why = f"{UNAVAILABLE}: {zone.name} was not read: {first_line(error)}"
        return [Reading.missing(zone.metric, why, zone.name)]
    last, zone.last = zone.last, now
    if seconds <= 0:
        return []
    if last is None:
        why = f"{UNAVAILABLE}: {zone.name} was not read at the beginning of the interval"
        return [Reading.missing(zone.metric, why, zone.name)]
    used = now - last if now >= last else now - last + zone.range_joules
    zone.power = used / seconds
    return [Reading(zone.metric, used, zone.name)]


def _found(root: Path) -> list[_Zone]:
    """The counters to add up."""
    folders = sorted(
        folder for folder in (root.iterdir() if root.is_dir() else ()) if ZONE.fullmatch(folder.name)
    )
    folders.sort(key=lambda folder: "mmio" in folder.name)  # those that show a package again come last
    named = {folder: (folder / "name").read_text().strip() for folder in folders}
    kept: dict[str, tuple[Path, _Zone]] = {}
    for folder, name in named.items():
        if folder.name.count(":") == 1 and name.startswith("package-") and name not in kept:
            zone = _zone(folder, name, ProcessorEnergy.name)
            if not any(_mirrors(zone, other) for _, other in kept.values()):
                kept[name] = (folder, zone)
    zones = [zone for _, zone in kept.values()]
    for package, (above, _) in kept.items():
        for folder, name in named.items():
            if name == "dram" and folder.name.startswith(f"{above.name}:"):
                zones.append(_zone(folder, f"{package}/dram", MemoryEnergy.name))
    return zones


def _zone(folder: Path, name: str, metric: str) -> _Zone:
    reach = int((folder / "max_energy_range_uj").read_text()) * MICRO
    return _Zone(name, folder / "energy_uj", reach, metric)


def _mirrors(zone: _Zone, other: _Zone) -> bool:
    """True if two dies of one package show one counter."""
    dies = DIE.fullmatch(zone.name), DIE.fullmatch(other.name)
    if dies[0] is None or dies[1] is None or dies[0][1] != dies[1][1]:
        return False
    return abs(zone.counter() - other.counter()) < MIRRORED_JOULES
