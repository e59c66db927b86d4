"""The slice of a model that a connection's requests are about, and memory for them"""

import os
from typing import Any, final

import numpy as np

from d5ray.distributed.parameter_server.frame_kinds import kept_bytes
from d5ray.distributed.parameter_server.requests import Array
from d5ray.distributed.rpc.dtypes import plain_dtype
from d5ray.distributed.rpc.frames import FrameHeader, Unexpected
from d5ray.distributed.rpc.service import Connection


@final
class ClientSlice:
    """The subject of a connection's requests: an agent's slice of a model, and memory for it."""

    def __init__(self, elements: int, dtype: Any, *, near: bool) -> None:
        self.elements, self.dtype = elements, dtype
        self.size = elements * dtype.itemsize
        # The length of some compressors' messages depends on the vector.
        self.most_compressed_bytes = 2**16 + 16 * elements
        self.most_bytes = max(kept_bytes(self.size), self.most_compressed_bytes)
        self._inbox = np.empty(0 if near else self.size, np.uint8)
        self.outbox = np.empty(0 if near else self.size, np.uint8)

    @classmethod
    def of(cls, client: Connection) -> "ClientSlice":
        """The slot of a client as it introduced itself; raises `Unexpected` for an impossible model."""
        elements, dtype = client.hello.get("elements"), plain_dtype(client.hello.get("dtype"))
        if type(elements) is not int or not 0 < elements <= memory_bytes() // dtype.itemsize:
            raise Unexpected(f"an agent has {elements!r} parameters: from 1 to what this machine can hold")
        return cls(elements, dtype, near=client.region is not None)

    def payload(self, client: Connection, frame: FrameHeader, most_bytes: int) -> Array:
        """The bytes (payload,) after a frame; `Unexpected` if there are more than that many."""
        if frame.payload_bytes > most_bytes:
            raise Unexpected(f"{frame.payload_bytes:,} bytes come where {most_bytes:,} are the most")
        if frame.payload_bytes > len(self._inbox):
            self._inbox = np.empty(frame.payload_bytes, np.uint8)
        client.fill(self._inbox[: frame.payload_bytes])
        arrived: Array = self._inbox[: frame.payload_bytes]
        return arrived


def memory_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
