"""Allocations of this process in shared memory: which arrays lie there and where, found by address"""

import threading
import weakref
from bisect import bisect_right
from operator import itemgetter
from typing import Any, final

from d5ray.distributed.communicators.shared_memory.segments import Segment

Place = tuple[int, int]  # where an array lies: the allocation, the same on all members, and bytes into it
NOWHERE = (0, 0)


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
