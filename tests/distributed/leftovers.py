"""What a test must not leave behind: threads, sockets, shared memory and processes"""

import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import active_children
from pathlib import Path

import pytest

from tests.conftest import wait_until

PATIENCE_SECONDS = 10.0


@contextmanager
def nothing_left() -> Iterator[None]:
    """Fails unless this process is afterwards what it was before: within seconds, as threads take to end."""
    before = _everything()
    gc.freeze()  # what is there already need not be looked at, which is quicker

    def left() -> Counter[str]:
        found = _everything() - before
        if found:
            gc.collect()
        return found

    try:
        yield
        wait_until(lambda: not left(), PATIENCE_SECONDS, lambda: f"left behind: {dict(left())}")
    finally:
        gc.unfreeze()


@pytest.fixture
def leaves_nothing() -> Iterator[None]:
    """For tests after which nothing may be left."""
    with nothing_left():
        yield


def shared_memory() -> list[str]:
    """The shared memory that this process has mapped or open: names, as Linux shows them."""
    folder = Path("/proc/self")
    mapped = [line.split(maxsplit=5)[-1] for line in (folder / "maps").read_text().splitlines()]
    names = [*mapped, *_open_files(folder)]
    return [name for name in names if name.startswith(("/memfd:d5ray", "/dev/shm/"))]


def _everything() -> Counter[str]:
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("d5ray")]
    sockets = [name for name in _open_files(Path("/proc/self")) if name.startswith("socket:")]
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        sockets = []  # a driver of Ray connects to others of Ray whenever it likes
    named = [path.name for path in Path("/dev/shm").glob(f"d5ray-{os.getpid()}-*")]
    processes = [child.name for child in active_children()]
    return Counter([*threads, *sockets, *named, *processes, *shared_memory()])


def _open_files(folder: Path) -> list[str]:
    names = []
    for entry in (folder / "fd").iterdir():
        with suppress(OSError):
            names.append(str(entry.readlink()))
    return names
