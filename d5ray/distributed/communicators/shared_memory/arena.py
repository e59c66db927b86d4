"""The memory that a group on one node has in common: what lies where, taken when it is used first"""

from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.shared_memory.bounded_wait import WaitGuard
from d5ray.distributed.communicators.shared_memory.segments import share
from d5ray.distributed.group.membership import Membership
from d5ray.distributed.rpc.shared_region import PAGE_BYTES, pages
from d5ray.errors import ConfigurationError

LINE_BYTES = 64  # a cache line
LINE_WORDS = LINE_BYTES // 8
PARITIES = 2  # steps of a barrier whose lines and slots are kept apart
PAIR_SLOT_BYTES = 2**19  # for what a member shows the other one in one step: a few fit in a core's cache
SLOT_BYTES = 2**20  # for more members, whose barriers take longer
CELLS = 2  # chunks of a message that a receiver need not have read before the sender writes the next
MAX_CELL_BYTES = 2**18
ALL_CELLS_BYTES = 2**28  # of a group in which everyone writes to everyone
CHANNEL_WORDS = (2 + CELLS) * LINE_WORDS


@final
class Arena:
    """One segment: words first (doorbells, lines of the barrier, channels), then slots and cells.

    Of the latter only what is used takes memory: a member reserves its own.
    """

    def __init__(self, membership: Membership, guard: WaitGuard) -> None:
        self.rank, self.size = membership.group.rank, membership.group.size
        self._guard = guard
        members, pairs = self.size, self.size**2
        self.doorbells = 0  # the first word
        self.lines = members * LINE_WORDS
        self.channels = self.lines + PARITIES * members * LINE_WORDS
        words = self.channels + pairs * CHANNEL_WORDS
        self.slot_bytes = PAIR_SLOT_BYTES if members <= 2 else SLOT_BYTES
        self._slots = pages(8 * words)  # the first byte
        self._cells = self._slots + members * PARITIES * self.slot_bytes
        self.cell_bytes = max(
            PAGE_BYTES, min(MAX_CELL_BYTES, ALL_CELLS_BYTES // (CELLS * pairs) // PAGE_BYTES * PAGE_BYTES)
        )
        whole = self._cells + pairs * CELLS * self.cell_bytes
        mine = self._slots if self.rank == 0 else 0  # the words
        self._segment = share(membership, "arena", whole, 0, mine)
        self.memory, self.bytes = self._segment.memory, self._segment.bytes
        self.address = self._segment.address
        self.words: Any = memoryview(self.memory)[: 8 * words].cast("q")

    def slot(self, number: int, use: int) -> int:
        """The offset of one of the slots in use now, as many as members; they take turns."""
        return self._slots + (number * PARITIES + use % PARITIES) * self.slot_bytes

    def cell(self, target: int, count: int) -> int:
        """The offset of this member's count-th chunk to the target."""
        return self._cells + ((self.rank * self.size + target) * CELLS + count % CELLS) * self.cell_bytes

    def put(self, begin: int, payload: Any, offset: int = 0) -> int:
        """Copy an array (n,) to `offset` bytes after the beginning of a slot or cell; gives the place."""
        start = begin + offset
        try:
            self._segment.reserve(begin, start + payload.nbytes)
        except ConfigurationError as error:
            raise self._guard.fail(error) from None
        self.bytes[start : start + payload.nbytes] = payload.view(np.uint8)
        return start
