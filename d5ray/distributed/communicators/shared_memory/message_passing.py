"""Messages of any length through the channels of a node, and weighted sums with neighbours, by chunks"""

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from d5ray.distributed.communicators.agreement.call_signature import Signature, packed
from d5ray.distributed.communicators.shared_memory.arena import Arena
from d5ray.distributed.communicators.shared_memory.channels import Channels
from d5ray.distributed.communicators.shared_memory.doorbell import Doorbells
from d5ray.distributed.communicators.shared_memory.reduce_kernels import Flat, ReduceKernels, take_over

TAG = 0


@final
class Outgoing:
    """An array (n,) on its way to another member; done when all of it is in the channel."""

    def __init__(self, channels: Channels, flat: Flat, other: int, call: Signature, tag: int) -> None:
        self.other = other
        self.done = False
        self._channels, self._tag, self._call = channels, tag, packed(call)
        self._bytes = flat.view(np.uint8)
        self._position = 0

    def ready(self) -> bool:
        """True if `advance` would find something to send."""
        return self._channels.room(self.other)

    def advance(self) -> bool:
        """Move what can be moved; whether anything could."""
        moved = False
        while not self.done and self.ready():
            part = self._bytes[self._position : self._position + self._channels.chunk_bytes]
            self._channels.post(self.other, part, self._tag, self._bytes.nbytes, self._call)
            self._position += part.nbytes
            self.done = self._position == self._bytes.nbytes
            moved = True
        return moved


@final
class Incoming:
    """An array (n,) that comes from another member."""

    def __init__(self, channels: Channels, flat: Flat, other: int, call: Signature, tag: int) -> None:
        self.other = other
        self.done = False
        self._channels, self._tag, self._call = channels, tag, call
        self._flat, self._bytes = flat, flat.view(np.uint8)
        self._position = 0

    def ready(self) -> bool:
        """True if `advance` would find something to receive."""
        return self._channels.head(self.other, self._tag) is not None

    def advance(self) -> bool:
        """Move what can be moved; whether anything could."""
        moved = False
        while not self.done and (chunk := self._channels.head(self.other, self._tag)) is not None:
            self._channels.check(self.other, chunk, self._call, self._flat)
            self._bytes[self._position : self._position + chunk.payload.nbytes] = chunk.payload
            take_over(chunk.payload)
            self._position += chunk.payload.nbytes
            self.done = self._position == self._bytes.nbytes
            self._channels.drop(self.other, self._tag)
            moved = True
        return moved


def exchange(transfers: Sequence[Outgoing | Incoming], call: Signature, doorbells: Doorbells) -> None:
    """Return when all are done; each advances whenever it can, whatever the others wait for."""
    pending = list(transfers)

    def ready() -> bool:
        return any(transfer.ready() for transfer in pending)

    def awaited() -> list[int]:
        return [transfer.other for transfer in pending]

    while pending:
        moved = [transfer.advance() for transfer in pending]
        pending[:] = [transfer for transfer in pending if not transfer.done]
        if pending and not any(moved):
            doorbells.wait(ready, awaited, call)


@final
class Neighbors:
    """A member sends the chunks of its array to its targets, one ahead of those that it waits for.

    It needs nothing of members that are not its neighbours; but those who wait for others send no further.
    Every target gets a copy: memory that one core writes and many read is slower than many copies.
    """

    def __init__(
        self, arena: Arena, channels: Channels, doorbells: Doorbells, kernels: ReduceKernels
    ) -> None:
        self._arena, self._channels, self._doorbells, self._kernels = arena, channels, doorbells, kernels

    def combine(
        self,
        flat: Flat,
        own: float | None,
        sources: Mapping[int, float],
        targets: Sequence[int],
        call: Signature,
    ) -> None:
        """flat ← own · flat + Σ weight · the source's flat, in the order of the ranks; see `Backend`."""
        weights = dict(sorted((sources if own is None else {**sources, self._arena.rank: own}).items()))
        step = self._channels.chunk_bytes // flat.itemsize
        parts = [flat[low : low + step] for low in range(0, max(1, flat.size), step)]
        self._send(parts[0], targets, flat.nbytes, call)
        for part, following in zip(parts, [*parts[1:], None], strict=True):
            if following is not None:
                self._send(following, targets, flat.nbytes, call)
            received = {source: self._receive(source, flat, call) for source in sources}
            arrays = [received.get(rank, part) for rank in weights]
            if own is None:
                self._kernels.mix(part, arrays, list(weights.values()))
            else:
                self._kernels.reduce(arrays, part, weights=list(weights.values()))
            for source, array in received.items():
                take_over(array)
                self._channels.drop(source, TAG)

    def _send(self, part: Flat, targets: Sequence[int], total: int, call: Signature) -> None:
        for target in targets:
            self._make_room(target, call)
            self._channels.post(target, part, TAG, total, packed(call))

    def _make_room(self, target: int, call: Signature) -> None:
        if not self._channels.room(target):
            self._doorbells.wait(lambda: self._channels.room(target), lambda: [target], call)

    def _receive(self, source: int, flat: Flat, call: Signature) -> Flat:
        channels = self._channels
        if (chunk := channels.head(source, TAG)) is None:
            self._doorbells.wait(lambda: channels.head(source, TAG) is not None, lambda: [source], call)
            chunk = channels.head(source, TAG)
        assert chunk is not None
        channels.check(source, chunk, call, flat)
        return chunk.payload.view(flat.dtype)
