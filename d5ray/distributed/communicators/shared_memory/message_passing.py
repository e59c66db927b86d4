"""Messages of any length through the lanes of a node: all at once, none waits for another"""

from collections.abc import Sequence
from typing import final

import numpy as np

from d5ray.distributed.communicators.agreement.call_signature import Signature
from d5ray.distributed.communicators.shared_memory.barrier import packed
from d5ray.distributed.communicators.shared_memory.channels import Lanes
from d5ray.distributed.communicators.shared_memory.doorbell import Bells
from d5ray.distributed.communicators.shared_memory.reduce_kernels import Flat, take_over


@final
class Sending:
    """An array (n,) on its way to another member; done when all of it is in the lane."""

    def __init__(self, lanes: Lanes, flat: Flat, other: int, call: Signature, tag: int) -> None:
        self.other = other
        self.done = False
        self._lanes, self._tag, self._call = lanes, tag, packed(call)
        self._bytes = flat.view(np.uint8)
        self._position = 0

    def ready(self) -> bool:
        """True if `advance` would find something to send."""
        return self._lanes.room(self.other)

    def advance(self) -> bool:
        """Move what can be moved; whether anything could."""
        moved = False
        while not self.done and self.ready():
            part = self._bytes[self._position : self._position + self._lanes.chunk_bytes]
            self._lanes.post(self.other, part, self._tag, self._bytes.nbytes, self._call)
            self._position += part.nbytes
            self.done = self._position == self._bytes.nbytes
            moved = True
        return moved


@final
class Receiving:
    """An array (n,) that comes from another member."""

    def __init__(self, lanes: Lanes, flat: Flat, other: int, call: Signature, tag: int) -> None:
        self.other = other
        self.done = False
        self._lanes, self._tag, self._call = lanes, tag, call
        self._flat, self._bytes = flat, flat.view(np.uint8)
        self._position = 0

    def ready(self) -> bool:
        """True if `advance` would find something to receive."""
        return self._lanes.head(self.other, self._tag) is not None

    def advance(self) -> bool:
        """Move what can be moved; whether anything could."""
        moved = False
        while not self.done and (chunk := self._lanes.head(self.other, self._tag)) is not None:
            self._lanes.check(self.other, chunk, self._call, self._flat)
            self._bytes[self._position : self._position + chunk.payload.nbytes] = chunk.payload
            take_over(chunk.payload)
            self._position += chunk.payload.nbytes
            self.done = self._position == self._bytes.nbytes
            self._lanes.drop(self.other, self._tag)
            moved = True
        return moved


def exchange(transfers: Sequence[Sending | Receiving], call: Signature, bells: Bells) -> None:
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
            bells.wait(ready, awaited, call)
