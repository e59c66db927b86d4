"""Frames on a stream socket: a kind, a few whole numbers, and bytes behind them"""

import socket
import struct
from typing import Any, NamedTuple

import numpy as np

from d5ray.errors import PeerLost

NUMBERS = 10
_HEADER = struct.Struct(f"<iIQ{NUMBERS}q")
MAGIC = 0xD5
MAX_PAYLOAD_BYTES = 2**36
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
EMPTY = np.empty(0, np.uint8)


class Frame(NamedTuple):
    """What came: `payload_bytes` are still to be read from the socket."""

    kind: int
    numbers: tuple[int, ...]
    payload_bytes: int


def send(connection: socket.socket, kind: int, numbers: tuple[int, ...] = (), payload: Bytes = EMPTY) -> None:
    """Send a frame with at most `NUMBERS` numbers and a payload (bytes,), which may be large."""
    padded = (*numbers, *(0,) * (NUMBERS - len(numbers)))
    header = _HEADER.pack(kind, MAGIC, payload.nbytes, *padded)
    if 0 < payload.nbytes <= 4096:
        connection.sendall(header + payload.tobytes())
        return
    connection.sendall(header)
    if payload.nbytes:
        connection.sendall(payload.data)


def receive(connection: socket.socket) -> Frame | None:
    """The next frame's head; None where the other end has closed the connection."""
    header = bytearray(_HEADER.size)
    if not _fill(connection, memoryview(header), may_end=True):
        return None
    kind, magic, size, *numbers = _HEADER.unpack(header)
    if magic != MAGIC or size > MAX_PAYLOAD_BYTES:
        raise PeerLost(None, "what came over the connection is none of ours")
    return Frame(kind, tuple(numbers), size)


def fill(connection: socket.socket, into: Bytes) -> None:
    """into (bytes,) ← the payload."""
    _fill(connection, into.data, may_end=False)


def _fill(connection: socket.socket, into: memoryview, *, may_end: bool) -> bool:
    filled = 0
    while filled < len(into):
        count = connection.recv_into(into[filled:])
        if not count:
            if may_end and not filled:
                return False
            raise PeerLost(None, "the connection ended in the middle of a message")
        filled += count
    return True
