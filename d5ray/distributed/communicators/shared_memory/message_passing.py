"""Messages of any length through the channels of a node: all at once, none waits for another"""

from collections.abc import Sequence
from typing import final

import numpy as np

from d5ray.distributed.communicators.agreement.call_signature import Signature, packed
from d5ray.distributed.communicators.shared_memory.channels import Channels
from d5ray.distributed.communicators.shared_memory.doorbell import Doorbells
from d5ray.distributed.communicators.shared_memory.reduce_kernels import Flat, take_over


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
