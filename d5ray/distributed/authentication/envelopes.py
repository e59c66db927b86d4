"""Envelopes of messages between two members: none within a machine, tagged or encrypted between machines

A message is short, made of words and a payload that fits beside them, or it is a large payload, which is
followed by an end and answered by a receipt (`Handshake`).
"""

from abc import ABC, abstractmethod
from typing import Any, final

import numpy as np

from d5ray.distributed.authentication.session import TAG_BYTES, Forged, SessionKeys, sealed_bytes

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
SHORT, LARGE, RECEIPTS = 0, 1, 2  # streams


class Envelope(ABC):
    """One member's end of what it exchanges with one other."""

    margin: int  # bytes by which a short message may be longer than its words and payload
    end_bytes: int  # of an end, and of a receipt

    @abstractmethod
    def short(self, words: bytes, payload: Bytes | None) -> Bytes:
        """The bytes that travel of a short message."""

    @abstractmethod
    def read(self, message: Bytes, words_bytes: int) -> tuple[bytes, Bytes]:
        """The words of a short message, and the rest of it, in which `payload` finds the payload."""

    @abstractmethod
    def payload(self, rest: Bytes, size: int) -> Bytes:
        """The payload (size,) after the words of a short message."""

    @abstractmethod
    def outgoing(self, payload: Bytes) -> Bytes:
        """The bytes that travel for a large payload, which stays as it is until it has been sent."""

    @abstractmethod
    def end(self, payload: Bytes) -> Bytes:
        """The end (`end_bytes`,) that follows a large payload."""

    @abstractmethod
    def incoming(self, into: Bytes) -> Bytes:
        """The buffer in which a large payload is received."""

    @abstractmethod
    def accept(self, received: Bytes, end: Bytes, into: Bytes) -> None:
        """into ← the payload that was received; raises `Forged` where it is not the one that was sent."""

    @abstractmethod
    def receipt(self) -> Bytes:
        """The bytes that confirm a large payload, (`end_bytes`,)."""

    @abstractmethod
    def confirm(self, receipt: Bytes) -> None:
        """Return if this is a receipt; raises `Forged`."""


@final
class Plain(Envelope):
    """An envelope within a machine, where the system keeps others out: bytes as they are."""

    margin = 0
    end_bytes = 1

    def short(self, words: bytes, payload: Bytes | None) -> Bytes:
        message: Bytes = np.frombuffer(bytearray(words), dtype=np.uint8)
        return message if payload is None else np.concatenate((message, payload))

    def read(self, message: Bytes, words_bytes: int) -> tuple[bytes, Bytes]:
        return message[:words_bytes].tobytes(), message[words_bytes:]

    def payload(self, rest: Bytes, size: int) -> Bytes:
        return rest[:size]

    def outgoing(self, payload: Bytes) -> Bytes:
        return payload

    def end(self, payload: Bytes) -> Bytes:
        return np.zeros(1, np.uint8)

    def incoming(self, into: Bytes) -> Bytes:
        return into

    def accept(self, received: Bytes, end: Bytes, into: Bytes) -> None:
        pass

    def receipt(self) -> Bytes:
        return np.zeros(1, np.uint8)

    def confirm(self, receipt: Bytes) -> None:
        pass


@final
class Protected(Envelope):
    """An envelope between machines: every message proves its sender, its place in the order, and its bytes.

    Words are always encrypted; payloads where the session says so, and otherwise travel as they are with a
    tag.
    """

    margin = 2 * TAG_BYTES
    end_bytes = TAG_BYTES

    def __init__(self, session: SessionKeys) -> None:
        self._encrypted = session.encrypted
        self._short_out, self._short_in = session.sender(SHORT), session.receiver(SHORT)
        self._large_out, self._large_in = session.sender(LARGE), session.receiver(LARGE)
        self._receipt_out, self._receipt_in = session.sender(RECEIPTS), session.receiver(RECEIPTS)

    def short(self, words: bytes, payload: Bytes | None) -> Bytes:
        sealed = self._short_out.seal(words)
        if payload is None or not payload.size:
            return np.frombuffer(bytearray(sealed), np.uint8)
        message = np.empty(len(sealed) + payload.size + TAG_BYTES, np.uint8)
        message[: len(sealed)] = np.frombuffer(sealed, np.uint8)
        if self._encrypted:
            self._short_out.encrypt(payload, message[len(sealed) :])
        else:
            message[len(sealed) : -TAG_BYTES] = payload
            message[-TAG_BYTES:] = np.frombuffer(self._short_out.tag(payload), np.uint8)
        return message

    def read(self, message: Bytes, words_bytes: int) -> tuple[bytes, Bytes]:
        sealed = words_bytes + TAG_BYTES
        return self._short_in.open(message[:sealed].tobytes()), message[sealed:]

    def payload(self, rest: Bytes, size: int) -> Bytes:
        if not size:
            return rest[:0]
        if self._encrypted:
            plain = np.empty(size, np.uint8)
            self._short_in.decrypt(rest[: size + TAG_BYTES], plain)
            return plain
        self._short_in.verify(rest[:size], rest[size : size + TAG_BYTES].tobytes())
        return rest[:size]

    def outgoing(self, payload: Bytes) -> Bytes:
        if not self._encrypted:
            return payload
        sealed = np.empty(sealed_bytes(payload.size), np.uint8)
        self._large_out.encrypt(payload, sealed)
        return sealed

    def end(self, payload: Bytes) -> Bytes:
        end = self._large_out.seal(b"") if self._encrypted else self._large_out.tag(payload)
        return np.frombuffer(bytearray(end), np.uint8)

    def incoming(self, into: Bytes) -> Bytes:
        return np.empty(sealed_bytes(into.size), np.uint8) if self._encrypted else into

    def accept(self, received: Bytes, end: Bytes, into: Bytes) -> None:
        if not self._encrypted:
            self._large_in.verify(into, end.tobytes())
            return
        self._large_in.decrypt(received, into)
        if self._large_in.open(end.tobytes()):
            raise Forged

    def receipt(self) -> Bytes:
        return np.frombuffer(bytearray(self._receipt_out.seal(b"")), np.uint8)

    def confirm(self, receipt: Bytes) -> None:
        self._receipt_in.open(receipt.tobytes())
