"""Sessions after a handshake: frames with proof of their sender and order, encrypted where that is asked for

AES-256-GCM (NIST SP 800-38D) by `cryptography`. Both directions have a key of their own, derived from the
run's secret and the handshake's messages, and each stream of a direction numbers its frames in the nonce: a
frame that is altered, left out, repeated or moved does not open.
"""

from collections.abc import Iterator
from typing import Any, final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from d5ray.distributed.authentication.secret import Secret
from d5ray.errors import D5Error

TAG_BYTES = 16
MOST_AT_ONCE = 2**30  # bytes; the library takes less than 2**31
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Forged(D5Error):
    """A frame is not what the peer sent: altered on its way, repeated, out of order or of somebody else."""

    def __init__(
        self, found: str = "a message is not what its sender sent: it was altered on its way"
    ) -> None:
        super().__init__(found)


@final
class SessionKeys:
    """The keys of one connection. encrypted: whether payloads are hidden too, not only authenticated."""

    def __init__(self, secret: Secret, transcript: bytes, *, initiates: bool, encrypted: bool) -> None:
        self.encrypted = encrypted
        mode = b"encrypted" if encrypted else b"authenticated"  # who disagree about it do not understand
        keys = [AESGCM(secret.mac(b"key", end, mode, transcript)) for end in (b"initiator", b"responder")]
        self._sending, self._receiving = keys if initiates else reversed(keys)

    def sender(self, stream: int = 0) -> "Sender":
        """The outgoing half of a stream; every stream is taken once at each end."""
        return Sender(self._sending, stream, self.encrypted)

    def receiver(self, stream: int = 0) -> "Receiver":
        """The incoming half of a stream."""
        return Receiver(self._receiving, stream, self.encrypted)


class _Stream:
    def __init__(self, key: AESGCM, stream: int, encrypted: bool) -> None:
        self.encrypted = encrypted
        self._key = key
        self._prefix = stream.to_bytes(4, "big")
        self._number = 0

    def _nonce(self) -> bytes:
        """12 bytes that this key has never seen: the stream and the number of the frame."""
        self._number += 1
        return self._prefix + self._number.to_bytes(8, "big")


@final
class Sender(_Stream):
    """Protects what is sent, in the order in which it is sent; one thread at a time."""

    def seal(self, words: bytes) -> bytes:
        """A short message, encrypted, with its tag after it."""
        return self._key.encrypt(self._nonce(), words, None)

    def tag(self, payload: Bytes) -> bytes:
        """The tag (`TAG_BYTES`) of a payload (bytes,) that travels as it is."""
        tags = [self._key.encrypt(self._nonce(), b"", part.data) for part in _parts(payload)]
        return tags[0] if len(tags) == 1 else self._key.encrypt(self._nonce(), b"", b"".join(tags))

    def encrypt(self, payload: Bytes, into: Bytes) -> None:
        """into (`sealed_bytes`,) ← the payload (bytes,), encrypted, with its tags."""
        at = 0
        for part in _parts(payload):
            end = at + part.size + TAG_BYTES
            self._key.encrypt_into(self._nonce(), part.data, None, into[at:end].data)
            at = end


@final
class Receiver(_Stream):
    """Opens what a `Sender` protected, in the same order. Everything raises `Forged` where it is not that.

    The error has no cause: one would keep the caller's frames, and so its connections.
    """

    def open(self, sealed: bytes) -> bytes:
        """The short message, decrypted; raises `Forged` where its tag is wrong."""
        try:
            return self._key.decrypt(self._nonce(), sealed, None)
        except InvalidTag:
            pass
        raise Forged

    def verify(self, payload: Bytes, tag: bytes) -> None:
        """Return if this is the payload that was tagged."""
        parts = list(_parts(payload))
        if len(parts) == 1:
            self._verify(parts[0], tag)
            return
        # The tag of each part is made anew, and what has come is the tag of these.
        tags = b"".join(self._key.encrypt(self._nonce(), b"", part.data) for part in parts)
        self._verify(np.frombuffer(tags, np.uint8), tag)

    def decrypt(self, sealed: Bytes, into: Bytes) -> None:
        """into (bytes,) ← the payload that was encrypted to `sealed` (`sealed_bytes`,)."""
        at = 0
        try:
            for part in _parts(into):
                end = at + part.size + TAG_BYTES
                self._key.decrypt_into(self._nonce(), sealed[at:end].data, None, part.data)
                at = end
            return
        except InvalidTag:
            pass
        raise Forged

    def _verify(self, part: Bytes, tag: bytes) -> None:
        try:
            self._key.decrypt(self._nonce(), tag, part.data)
            return
        except InvalidTag:
            pass
        raise Forged


def sealed_bytes(payload_bytes: int) -> int:
    """The bytes of an encrypted payload with its tags."""
    return payload_bytes + TAG_BYTES * max(1, -(-payload_bytes // MOST_AT_ONCE))


def _parts(payload: Bytes) -> Iterator[Bytes]:
    for begin in range(0, max(1, payload.size), MOST_AT_ONCE):
        yield payload[begin : begin + MOST_AT_ONCE]
