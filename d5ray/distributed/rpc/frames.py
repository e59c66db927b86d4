"""Frames on a wire: a kind, a few integers, and bytes after them"""

import struct
from typing import Any, NamedTuple, final

import numpy as np

from d5ray.distributed.wire.wire import Wire
from d5ray.errors import D5Error

NUMBERS = 10
_HEADER = struct.Struct(f"<iIQ{NUMBERS}q")
MAGIC = 0xD5
INLINE_BYTES = 4096  # payloads up to here are sent with their header at once
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
EMPTY = np.empty(0, np.uint8)


class Unexpected(D5Error):
    """A frame came that its receiver did not expect: of another kind or length, or with wrong numbers."""


class FrameHeader(NamedTuple):
    """The header of a frame that came: `payload_bytes` are still to be read."""

    kind: int
    numbers: tuple[int, ...]
    payload_bytes: int

    def expect(self, payload_bytes: int, what: str) -> None:
        """Raise `Unexpected` unless the payload has this length."""
        if self.payload_bytes != payload_bytes:
            raise Unexpected(
                f"{what} has {self.payload_bytes:,} bytes, and {payload_bytes:,} were expected: all members "
                "of a run must have the same version of d5ray and the same model"
            )


@final
class FrameStream:
    """One end of a connection on which frames travel."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def send(self, kind: int, numbers: tuple[int, ...] = (), payload: Bytes = EMPTY) -> None:
        """Send a frame with at most `NUMBERS` numbers and a payload (bytes,), which may be large."""
        padded = (*numbers, *(0,) * (NUMBERS - len(numbers)))
        header = _HEADER.pack(kind, MAGIC, payload.nbytes, *padded)
        if payload.nbytes <= INLINE_BYTES:
            self.wire.send(header + payload.tobytes())
        else:
            self.wire.send(header, payload.data)

    def receive(self, most_bytes: int) -> FrameHeader | None:
        """The next frame's head; None where the other end has closed the connection.

        most_bytes: of the longest payload that is expected; a longer one raises `Unexpected`.
        """
        header = bytearray(_HEADER.size)
        if not self.wire.fill(header, may_end=True):
            return None
        kind, magic, size, *numbers = _HEADER.unpack(header)
        if magic != MAGIC:
            raise Unexpected("what came over the connection is none of d5ray's frames")
        if size > most_bytes:
            raise Unexpected(f"a frame announces {size:,} bytes, and at most {most_bytes:,} were expected")
        return FrameHeader(kind, tuple(numbers), size)

    def fill(self, into: Bytes) -> None:
        """into (bytes,) ← the payload."""
        self.wire.fill(into.data)
