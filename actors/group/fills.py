"""Faults that fill a file system: which one may be, since nobody else needs it, and the file that does it"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, final

import psutil

from d5ray.distributed.communicators.shared_memory import segments
from d5ray.distributed.faults.fault import Fault
from d5ray.distributed.faults.plan import Faults
from d5ray.errors import ConfigurationError

LARGEST_DISK: Final = 2**30  # bytes of a file system that may be filled
LARGEST_MEMORY: Final = 2**31
SIZES: Final = (2**20, 2**12, 1)  # bytes that are written at a time, until no more go in
OWN: Final = "unshare -m sh -c 'mount -t tmpfs -o size=1g tmpfs /dev/shm && d5ray run …'"


@final
class Fill:
    """A file that takes all room of a file system, as long as it is there."""

    def __init__(self, fault: Fault, root: Path) -> None:
        """root: the folder of the runs."""
        of_disk = fault.kind == "fill_disk"
        self._path = root / f".d5ray-fills-{os.getpid()}" if of_disk else segments.fresh_path()

    def fill(self, over: Callable[[], bool]) -> None:
        """Write until nothing goes in, or it is over."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(self._path, flags, segments.MODE), "ab", buffering=0) as file:
            for size in SIZES:
                block = bytes(size)
                with suppress(OSError):
                    while not over() and file.write(block) == size:
                        pass

    def end(self) -> None:
        """Give the room back."""
        self._path.unlink(missing_ok=True)


def check_disk(faults: Faults, root: Path) -> None:
    """Raise `ConfigurationError` unless the runs' file system may be filled, where that is planned."""
    planned = [fault for fault in faults if fault.kind == "fill_disk"]
    if not planned:
        return
    place = next(folder for folder in (root, *root.absolute().parents) if folder.exists())
    total, device = shutil.disk_usage(place).total, place.stat().st_dev
    others = [path for path in (Path("/"), Path("/tmp"), Path("/dev/shm"), Path.home()) if path.exists()]
    shared = next((path for path in others if path.stat().st_dev == device), None)
    if shared is not None or total > LARGEST_DISK:
        why = f"that of {shared}, which others need" if shared else f"one of {total >> 20} MB"
        raise ConfigurationError(
            f"{planned[0]}: the runs' folder {root} is on a file system that is {why}: mount a small one of "
            f"{LARGEST_DISK >> 20} MB at most (mount -t tmpfs -o size=64m tmpfs FOLDER), and set D5RAY_HOME"
        )


def check_shared_memory(faults: Faults, *, embedded: bool) -> None:
    """Raise `ConfigurationError` unless /dev/shm may be filled, where that is planned.

    embedded: whether the run has a Ray of its own, whose agents see the same /dev/shm.
    """
    planned = [fault for fault in faults if fault.kind == "fill_shared_memory"]
    if not planned:
        return
    folder = segments.FOLDER
    if not embedded:
        raise ConfigurationError(
            f"{planned[0]}: the agents of a cluster have another {folder} than this process: leave the "
            "address out, so that the run has a Ray of its own"
        )
    if why := f"no folder of {sys.platform}" if not folder.is_dir() else _shared_with(folder):
        raise ConfigurationError(
            f"{planned[0]}: {folder} is {why}: give the run one of its own, of {LARGEST_MEMORY >> 30} GB at "
            f"most ({OWN})"
        )


def _shared_with(folder: Path) -> str:
    """The reason why this file system is not to be filled; empty if there is none."""
    device = folder.stat().st_dev
    if device == Path("/").stat().st_dev:
        return "on the machine's own file system, which others need"
    if (total := shutil.disk_usage(folder).total) > LARGEST_MEMORY:
        return f"a file system of {total >> 20:,} MB"
    if (other := next(_strangers(folder, device), None)) is not None:
        return f"seen by process {other.pid} ({_name(other)}), which may need it"
    return ""


def _strangers(folder: Path, device: int) -> Iterator[psutil.Process]:
    """Processes that see the same file system, and neither started this process nor are started with it."""
    first = psutil.Process()
    while (parent := first.parent()) is not None and _sees(parent, folder, device):
        first = parent
    own = {first.pid, *(child.pid for child in first.children(recursive=True))}
    for process in psutil.process_iter():
        if process.pid not in own and _sees(process, folder, device):
            yield process


def _sees(process: psutil.Process, folder: Path, device: int) -> bool:
    with suppress(OSError):  # it has ended, or is another user's
        return Path(f"/proc/{process.pid}/root{folder}").stat().st_dev == device
    return False


def _name(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return str(process.name())
    return "gone"
