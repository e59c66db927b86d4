"""A channel from every member to every other one on the same node: chunks of messages, in order, by tag"""

import struct
from collections import defaultdict, deque
from typing import NamedTuple, final

from d5ray.distributed.communicators.agreement.call_signature import (
    SIGNATURE_BYTES,
    Signature,
    disagreement,
    packed,
)
from d5ray.distributed.communicators.shared_memory.arena import CELLS, CHANNEL_WORDS, LINE_WORDS, Arena
from d5ray.distributed.communicators.shared_memory.bounded_wait import WaitGuard
from d5ray.distributed.communicators.shared_memory.doorbell import Doorbells
from d5ray.distributed.communicators.shared_memory.reduce_kernels import Flat

_DESCRIPTION = struct.Struct(f"<qiiq8x{SIGNATURE_BYTES}s")


class Chunk(NamedTuple):
    """A part of a message; the whole message has `total` bytes."""

    payload: Flat  # uint8, valid until the chunk is dropped
    tag: int
    total: int
    call: bytes


@final
class Channels:
    """This member's ends of the channels: it posts to other members, and reads what they posted.

    The words of a channel: how many chunks were posted, which the sender counts; how many were read, which
    the receiver counts, each in a line of its own; then for each of the last `CELLS` chunks a line that
    describes it. Every channel has as many cells for the chunks themselves.
    """

    def __init__(self, arena: Arena, doorbells: Doorbells, guard: WaitGuard) -> None:
        self._arena, self._words, self._doorbells, self._guard = arena, arena.words, doorbells, guard
        self.chunk_bytes = arena.cell_bytes
        rank, size = arena.rank, arena.size
        self._to = [arena.channels + (rank * size + other) * CHANNEL_WORDS for other in range(size)]
        self._from = [arena.channels + (other * size + rank) * CHANNEL_WORDS for other in range(size)]
        self._posted = [0] * size
        self._read = [0] * size
        self._aside: dict[tuple[int, int], deque[Chunk]] = defaultdict(deque)

    # -- to others -------------------------------------------------------------------------------------

    def room(self, target: int) -> bool:
        """True if one more chunk can be posted."""
        return bool(self._posted[target] - self._words[self._to[target] + LINE_WORDS] < CELLS)

    def post(self, target: int, payload: Flat, tag: int, total: int, call: bytes) -> None:
        """Copy a chunk (n,) of at most `chunk_bytes` into the next cell, where there must be room."""
        channel, number = self._to[target], self._posted[target]
        start = self._arena.put(self._arena.cell(target, number), payload)
        line = channel + (2 + number % CELLS) * LINE_WORDS
        _DESCRIPTION.pack_into(self._arena.memory, 8 * line, start, payload.nbytes, tag, total, call)
        self._posted[target] = self._words[channel] = number + 1
        self._doorbells.ring(target)

    # -- from others -----------------------------------------------------------------------------------

    def head(self, source: int, tag: int) -> Chunk | None:
        """The next chunk with this tag, if it is here; chunks with other tags before it are set aside."""
        waiting = self._aside.get((source, tag))
        if waiting:
            return waiting[0]
        while self._words[self._from[source]] > self._read[source]:
            chunk = self._front(source)
            if chunk.tag == tag:
                return chunk
            self._aside[source, chunk.tag].append(chunk._replace(payload=chunk.payload.copy()))
            self._pass(source)
        return None

    def drop(self, source: int, tag: int) -> None:
        """The chunk that `head` gave was read."""
        waiting = self._aside.get((source, tag))
        if waiting:
            waiting.popleft()
        else:
            self._pass(source)

    def check(self, source: int, chunk: Chunk, call: Signature, flat: Flat) -> None:
        """Raise `ConfigurationError` on all members unless the chunk belongs to this call of this size."""
        if chunk.call == packed(call) and chunk.total == flat.nbytes:
            return
        theirs, mine = Signature.unpack(chunk.call), Signature.unpack(packed(call))
        if theirs == mine:
            theirs = mine._replace(elements=chunk.total // flat.itemsize)
            mine = mine._replace(elements=flat.size)
        raise self._guard.fail(disagreement({source: theirs, self._arena.rank: mine}))

    def _front(self, source: int) -> Chunk:
        line = self._from[source] + (2 + self._read[source] % CELLS) * LINE_WORDS
        start, length, tag, total, call = _DESCRIPTION.unpack_from(self._arena.memory, 8 * line)
        return Chunk(self._arena.bytes[start : start + length], tag, total, call)

    def _pass(self, source: int) -> None:
        self._read[source] += 1
        self._words[self._from[source] + LINE_WORDS] = self._read[source]
        self._doorbells.ring(source)
