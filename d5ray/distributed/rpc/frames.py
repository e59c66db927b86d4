"""Frames on a stream socket: a kind, a few integers, and bytes after them"""

import socket
import struct
from typing import Any, NamedTuple, final

import numpy as np

from d5ray.distributed.authentication.session import TAG_BYTES, SessionKeys, sealed_bytes
from d5ray.errors import D5Error, PeerLost

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
    """One end of a connection on which frames travel.

    Under a session they carry proof of their sender and order, and are encrypted if the session is; `relax`
    lets them travel as they are, between two processes of one machine.
    """

    def __init__(self, connection: socket.socket, session: SessionKeys | None = None) -> None:
        self.socket = connection
        self._sender = None if session is None else session.sender()
        self._receiver = None if session is None else session.receiver()

    @property
    def protected(self) -> bool:
        """True if frames carry proof; a payload may then be altered until `fill` has returned."""
        return self._receiver is not None

    def relax(self) -> None:
        """Let frames travel as they are from now on; both ends do it after the same frame."""
        self._sender = self._receiver = None

    def send(self, kind: int, numbers: tuple[int, ...] = (), payload: Bytes = EMPTY) -> None:
        """Send a frame with at most `NUMBERS` numbers and a payload (bytes,), which may be large."""
        padded = (*numbers, *(0,) * (NUMBERS - len(numbers)))
        header = _HEADER.pack(kind, MAGIC, payload.nbytes, *padded)
        tag = b""
        if self._sender is not None:
            header = self._sender.seal(header)
            if payload.nbytes and self._sender.encrypted:
                sealed = np.empty(sealed_bytes(payload.nbytes), np.uint8)
                self._sender.encrypt(payload, sealed)
                payload = sealed
            elif payload.nbytes:
                tag = self._sender.tag(payload)
        if 0 < payload.nbytes <= INLINE_BYTES:
            self.socket.sendall(header + payload.tobytes() + tag)
            return
        self.socket.sendall(header)
        if payload.nbytes:
            self.socket.sendall(payload.data)
        if tag:
            self.socket.sendall(tag)

    def receive(self, most_bytes: int) -> FrameHeader | None:
        """The next frame's head; None where the other end has closed the connection.

        most_bytes: of the longest payload that is expected; a longer one raises `Unexpected`.
        """
        header = bytearray(_HEADER.size + (TAG_BYTES if self._receiver is not None else 0))
        if not self._fill(memoryview(header), may_end=True):
            return None
        if self._receiver is not None:
            header = bytearray(self._receiver.open(bytes(header)))
        kind, magic, size, *numbers = _HEADER.unpack(header)
        if magic != MAGIC:
            raise Unexpected("what came over the connection is none of d5ray's frames")
        if size > most_bytes:
            raise Unexpected(f"a frame announces {size:,} bytes, and at most {most_bytes:,} were expected")
        return FrameHeader(kind, tuple(numbers), size)

    def fill(self, into: Bytes) -> None:
        """into (bytes,) ← the payload."""
        if self._receiver is None or not into.nbytes:
            self._fill(into.data, may_end=False)
        elif self._receiver.encrypted:
            sealed = np.empty(sealed_bytes(into.nbytes), np.uint8)
            self._fill(sealed.data, may_end=False)
            self._receiver.decrypt(sealed, into)
        else:
            self._fill(into.data, may_end=False)
            tag = bytearray(TAG_BYTES)
            self._fill(memoryview(tag), may_end=False)
            self._receiver.verify(into, bytes(tag))

    def _fill(self, into: memoryview, *, may_end: bool) -> bool:
        filled = 0
        while filled < len(into):
            count = self.socket.recv_into(into[filled:])
            if not count:
                if may_end and not filled:
                    return False
                raise PeerLost(None, "the connection ended in the middle of a message")
            filled += count
        return True
