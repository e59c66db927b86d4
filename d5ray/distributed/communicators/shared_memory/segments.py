"""Memory that processes of one node share: made, reserved, unlinked at once, cleaned up, found by address"""

import contextlib
import errno
import mmap
import os
import platform
import re
import secrets
import stat
import sys
import threading
import time
import weakref
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, final

import numpy as np

from d5ray.distributed.group.membership import Membership
from d5ray.distributed.rpc.shared_region import pages
from d5ray.errors import ConfigurationError
from d5ray.metrics.record.liveness import start_of

FOLDER = Path("/dev/shm")
NAME = re.compile(r"d5ray-(?P<pid>\d+)-(?P<start>\d+)-[0-9a-f]{16}")  # of a file there
MODE = 0o600
REFUSAL = "refused: "  # instead of a path
ROOM_SECONDS = 3.0  # for a full folder to have room again
LOOK_SECONDS = 0.05  # between two looks whether it has
Place = tuple[int, int]  # where an array lies: the allocation, the same on all members, and bytes into it
NOWHERE = (0, 0)


def supported() -> str | None:
    """The reason why this machine has no shared memory of this kind; None if it has."""
    if sys.platform != "linux":
        return f"shared memory between agents needs Linux, this is {sys.platform}"
    if platform.machine() not in ("x86_64", "AMD64"):
        return (
            f"shared memory between agents relies on the order in which x86-64 stores, this is "
            f"{platform.machine()}"
        )
    if not os.access(FOLDER, os.W_OK):
        return f"shared memory between agents needs a writable {FOLDER}"
    return None


@final
class Segment:
    """One file of `FOLDER`, mapped into this process as long as an array over it lives."""

    def __init__(self, path: Path, size: int) -> None:
        """Raises `ConfigurationError` unless it is a file of this size that a process of this user made."""
        descriptor = _opened(path)
        weakref.finalize(self, os.close, descriptor)
        if (found := os.fstat(descriptor).st_size) != size:
            raise ConfigurationError(
                f"{path} has {found:,} bytes, and the members of this group share {size:,}: it is not theirs"
            )
        self._descriptor, self._size = descriptor, size
        self._reserved: dict[int, int] = {}
        self.memory = mmap.mmap(descriptor, size)
        self.bytes = np.frombuffer(self.memory, np.uint8)
        self.address = int(self.bytes.ctypes.data)

    def reserve(self, start: int, stop: int) -> None:
        """Take the memory of a part that always begins at `start`; without this a full folder kills."""
        if stop > self._reserved.get(start, start):
            stop = min(pages(stop), self._size)  # a file is never enlarged
            try:
                _take(self._descriptor, start, stop - start)
            except OSError as error:
                raise _refused(stop - start, error) from error
            self._reserved[start] = stop


def share(membership: Membership, key: str, size: int, start: int, stop: int) -> Segment:
    """A segment of `size` bytes that all members map; this one reserves start to stop, a multiple of a page.

    All call it with the same key, once. Where one fails, all raise `ConfigurationError`.
    """
    with ExitStack() as stack:
        if membership.group.rank == 0:
            membership.put(f"{key}/path", _offer(stack, size))
        path = membership.take(f"{key}/path").decode()
        outcome, segment = b"", None
        try:
            if path.startswith(REFUSAL):
                raise ConfigurationError(path.removeprefix(REFUSAL))
            segment = Segment(Path(path), size)
            segment.reserve(start, stop)
        except (ConfigurationError, OSError) as error:
            outcome = str(_refused(size, error)).encode()
        outcomes = membership.gather(f"{key}/mapped", outcome)
    for outcome in filter(None, outcomes):
        raise ConfigurationError(outcome.decode())
    assert segment is not None
    return segment


def clean_up() -> None:
    """Remove what processes of this user left that died before they could unlink it."""
    for path in FOLDER.glob("d5ray-*-*-*"):
        name = NAME.fullmatch(path.name)
        if name is not None and str(start_of(name["pid"])) != name["start"]:
            with contextlib.suppress(OSError, ConfigurationError), _locked(path):
                path.unlink()


def fresh_path() -> Path:
    """A name for a new file of this process, by which others know when it is left behind."""
    return FOLDER / f"d5ray-{os.getpid()}-{start_of('self')}-{secrets.token_hex(8)}"


def _offer(stack: ExitStack, size: int) -> bytes:
    """The path of a new file, which goes when the stack ends; or why there is none."""
    try:
        return str(stack.enter_context(_created(size))).encode()
    except OSError as error:
        return f"{REFUSAL}{_refused(size, error)}".encode()


@contextmanager
def _created(size: int) -> Iterator[Path]:
    _clean_up_once()
    path = fresh_path()
    import fcntl  # noqa: PLC0415 - not every system has it

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, size)
        yield path
    finally:
        path.unlink()
        os.close(descriptor)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file alone during the block; `OSError` where one does who lives in another container."""
    import fcntl  # noqa: PLC0415

    descriptor = _opened(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    """A descriptor of a file that a process of this user made here; links and others' files are refused."""
    if path.parent != FOLDER or not NAME.fullmatch(path.name):
        raise ConfigurationError(f"{path} is no name of shared memory that a member of a group makes")
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    found = os.fstat(descriptor)
    own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    if not own or stat.S_IMODE(found.st_mode) != MODE:
        os.close(descriptor)
        raise ConfigurationError(f"{path} is no file that this user alone may use: another process made it")
    return descriptor


@cache
def _clean_up_once() -> None:
    clean_up()


def _take(descriptor: int, start: int, count: int) -> None:
    """Take memory for a part of a file, as soon as the folder has room; `OSError` where it stays full."""
    state, end = os.statvfs(FOLDER), time.monotonic() + ROOM_SECONDS
    while True:
        try:
            return os.posix_fallocate(descriptor, start, count)
        except OSError as error:
            never = error.errno != errno.ENOSPC or count > state.f_blocks * state.f_frsize
            if never or time.monotonic() > end:
                raise
        time.sleep(LOOK_SECONDS)


def _refused(needed: int, error: Exception) -> ConfigurationError:
    if isinstance(error, ConfigurationError):
        return error
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        state = os.statvfs(FOLDER)
        return ConfigurationError(
            f"the agents of this node share memory and need {_size(needed)} in {FOLDER}, "
            f"{state.f_bavail * state.f_frsize / 1e6:,.1f} MB are free: enlarge it (docker run "
            "--shm-size=8g, mount -o remount,size=8g), or choose communicator='socket'"
        )
    return ConfigurationError(
        f"the agents of this node cannot share memory in {FOLDER}: {error}: choose communicator='socket'"
    )


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 10**5 else f"{count / 1e3:,.1f} kB"


@final
class _Allocations:
    """The segments that `Communicator.allocate` mapped, by address; every member has a mapping of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starts: list[int] = []
        self._entries: list[tuple[int, int, int, weakref.ref[Any]]] = []  # begin, end, allocation, all of it

    def add(self, segment: Segment, allocation: int) -> None:
        """Know this segment until nobody has an array in it any more."""
        start, end = segment.address, segment.address + segment.bytes.nbytes
        with self._lock:
            living = [entry for entry in self._entries if entry[3]() is not None]
            living.append((start, end, allocation, weakref.ref(segment.bytes)))
            self._entries = sorted(living, key=itemgetter(0))
            self._starts = [entry[0] for entry in self._entries]

    def find(self, flat: Any) -> tuple[Place, Any]:
        """The place of a flat NumPy array, and the whole shared memory around it; `NOWHERE` for others."""
        address = flat.__array_interface__["data"][0]
        with self._lock:
            at = bisect_right(self._starts, address) - 1
            if at < 0:
                return NOWHERE, None
            start, end, allocation, reference = self._entries[at]
        whole = reference()
        if whole is None or address + flat.nbytes > end:
            return NOWHERE, None
        return (allocation, address - start), whole


ALLOCATIONS = _Allocations()
