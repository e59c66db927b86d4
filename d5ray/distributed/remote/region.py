"""Memory that two processes of one node share without a name: nothing of it is left when they are gone"""

import mmap
import os
from typing import Any, final

import numpy as np

PAGE_BYTES = 4096
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@final
class Region:
    """Anonymous memory of the kernel's, known by a file descriptor that is sent over a Unix socket."""

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        """descriptor: of a region that another process made; it is this object's from now on."""
        if descriptor is None:
            descriptor = os.memfd_create("d5ray", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, max(size, 1))
        self.descriptor = descriptor
        try:
            self.bytes: Bytes = np.frombuffer(mmap.mmap(descriptor, max(size, 1)), np.uint8)
        except BaseException:
            os.close(descriptor)
            raise
        self._address = int(self.bytes.ctypes.data)
        self._used = 0

    def left(self) -> int:
        """Bytes that nobody has yet."""
        return len(self.bytes) - self._used

    def carve(self, size: int) -> Bytes:
        """The next piece (size,) that nobody has yet, on a page of its own; None of it is given twice."""
        begin = self._used
        self._used = begin + -(-size // PAGE_BYTES) * PAGE_BYTES
        return self.bytes[begin : begin + size]

    def offset(self, array: np.ndarray[Any, Any]) -> int | None:
        """Where this contiguous array lies in the region; None: elsewhere."""
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
