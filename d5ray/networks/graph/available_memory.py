"""Memory that this process can still get: of the machine, of its container, of its own limit"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from d5ray.errors import ConfigurationError


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


def free(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can still be taken. root: where the control groups of a container are mounted."""
    process = psutil.Process()
    rooms: list[int] = [psutil.virtual_memory().available]
    if hasattr(psutil, "RLIMIT_AS"):
        limit = process.rlimit(psutil.RLIMIT_AS)[0]
        rooms += [limit - process.memory_info().vms] * (limit >= 0)
    for limit_file, used_file in (
        (root / "memory.max", root / "memory.current"),
        (root / "memory" / "memory.limit_in_bytes", root / "memory" / "memory.usage_in_bytes"),
    ):
        most, used = _number(limit_file), _number(used_file)
        if most is not None and used is not None:
            rooms.append(most - used)
    return max(0, min(rooms))


def _number(file: Path) -> int | None:
    """The number in a file of the kernel; None if there is no file, or it says "max"."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
