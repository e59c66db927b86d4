"""Memory that two processes of one node share without a name: nothing of it is left when they are gone"""

import mmap
import os
import stat
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError

PAGE_BYTES = 4096
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@final
class SharedRegion:
    """Anonymous memory of the kernel's, known by a file descriptor that is sent over a Unix socket.

    Its size is sealed: nobody can take memory away that another process has mapped, which would end that one.
    """

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        """descriptor: of a region that another process made; it is this object's from now on.

        Raises `ConfigurationError` if that one is of another user or size, or not sealed.
        """
        size = max(size, 1)
        if descriptor is None and not hasattr(os, "memfd_create"):  # no Linux: nobody is near, see `Address`
            self._hold(-1, mmap.mmap(-1, size))
            return
        if descriptor is None:
            import fcntl  # noqa: PLC0415 - not every system has it

            descriptor = os.memfd_create("d5ray", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(descriptor, size)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _sealed() | fcntl.F_SEAL_SEAL)
        try:
            _check(descriptor, size)
            self._hold(descriptor, mmap.mmap(descriptor, size))
        except BaseException:
            os.close(descriptor)
            raise

    def _hold(self, descriptor: int, memory: mmap.mmap) -> None:
        self.descriptor = descriptor
        self.bytes: Bytes = np.frombuffer(memory, np.uint8)
        self._address = int(self.bytes.ctypes.data)
        self._used = 0

    def left(self) -> int:
        """Bytes that nobody has yet."""
        return len(self.bytes) - self._used

    def carve(self, size: int) -> Bytes:
        """The next piece (size,) that nobody has yet, on a page of its own; None of it is given twice."""
        begin = self._used
        self._used = begin + pages(size)
        return self.bytes[begin : begin + size]

    def offset(self, array: np.ndarray[Any, Any]) -> int | None:
        """The offset of this contiguous array in the region; None if it lies elsewhere."""
        begin = int(array.ctypes.data) - self._address
        return begin if begin >= 0 and begin + array.nbytes <= len(self.bytes) else None

    def close_descriptor(self) -> None:
        """The memory stays mapped; the descriptor is not needed any more."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def pages(size: int) -> int:
    """The size in whole pages."""
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def _sealed() -> int:
    """The seals of a region: it neither shrinks nor grows."""
    import fcntl  # noqa: PLC0415

    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def _check(descriptor: int, size: int) -> None:
    import fcntl  # noqa: PLC0415

    found = os.fstat(descriptor)
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:  # no memory of this kind
        seals = 0
    own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    if not own or found.st_size != size or seals & _sealed() != _sealed():
        raise ConfigurationError(
            f"a process shares memory of {found.st_size:,} bytes where {size:,} of this user, sealed, were "
            "expected"
        )
