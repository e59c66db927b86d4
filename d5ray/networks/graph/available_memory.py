"""Memory that this process can still get: of the machine, of its container, of its own limit"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from d5ray.errors import ConfigurationError

GROUPS: Final = Path("/sys/fs/cgroup")
LIMITS: Final = (  # files of a control group: the limit, and what is used of it
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def check_room(size: int, what: str) -> None:
    """Raise `ConfigurationError` where that many bytes are more than this process can get."""
    room = free()
    if size > room:
        raise ConfigurationError(
            f"{what} needs about {size:,} bytes of memory, and {room:,} are free: use a machine with more"
        )


@contextmanager
def without_collection() -> Iterator[None]:
    """Do not look for garbage meanwhile: among a million new objects that all stay it takes half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def total(root: Path = GROUPS) -> int:
    """Bytes that this machine has, or that its container may have; root: as for `free`."""
    limits = [_number(root / limit) for limit, _ in LIMITS]
    machine: int = psutil.virtual_memory().total
    return min([machine, *(limit for limit in limits if limit is not None)])


def free(root: Path = GROUPS) -> int:
    """Bytes that can still be taken. root: where the control groups of a container are mounted."""
    process = psutil.Process()
    rooms: list[int] = [psutil.virtual_memory().available]
    if hasattr(psutil, "RLIMIT_AS"):
        limit = process.rlimit(psutil.RLIMIT_AS)[0]
        rooms += [limit - process.memory_info().vms] * (limit >= 0)
    for limit, usage in LIMITS:
        most, used = _number(root / limit), _number(root / usage)
        if most is not None and used is not None:
            rooms.append(most - used)
    return max(0, min(rooms))


def _number(file: Path) -> int | None:
    """The number in a file of the kernel; None if there is no file, or it says "max"."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
