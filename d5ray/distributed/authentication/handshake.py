"""Two processes prove to each other that they know a run's secret, in three messages of fixed length

    initiator → responder   HELLO      magic, nonce a, and who speaks to whom
    responder → initiator   CHALLENGE  nonce b, HMAC(K; "responder", HELLO, b)
    initiator → responder   PROOF      HMAC(K; "initiator", HELLO, CHALLENGE)

K is the run's secret. This is mutual authentication by challenge and response as in ISO/IEC 9798-4 (three
passes): both nonces are in every proof, so that none can be replayed; the two proofs differ by the role's
name, so that none can be reflected; and HELLO is in both, so that nothing of who speaks to whom can be
altered. Nothing else is read from a peer before its proof. The classes do no input or output: they take and
give messages.
"""

import hashlib
import hmac
import secrets
import struct
from typing import final

from d5ray.distributed.authentication.secret import Secret
from d5ray.distributed.authentication.session import SessionKeys
from d5ray.distributed.wire.proof import ANYONE, Claim, Refused

MAGIC = b"d5ray\0\0\1"  # with the version of the protocol
NONCE_BYTES = 32
PROOF_BYTES = 32
_HELLO = struct.Struct(f"<{len(MAGIC)}s{NONCE_BYTES}s16s32sqq")
HELLO_BYTES = _HELLO.size
CHALLENGE_BYTES = NONCE_BYTES + PROOF_BYTES
MOST_PURPOSE_BYTES = 16


@final
class Initiator:
    """The end that made the connection."""

    def __init__(self, secret: Secret, claim: Claim, *, encrypted: bool = False) -> None:
        self._secret, self._encrypted = secret, encrypted
        self.hello: bytes = _packed(claim, secrets.token_bytes(NONCE_BYTES))

    def prove(self, challenge: bytes) -> tuple[bytes, SessionKeys]:
        """The proof for the responder, and the session, if the challenge shows that it knows the secret.

        Raises `Refused` if it does not.
        """
        nonce, proof = challenge[:NONCE_BYTES], challenge[NONCE_BYTES:]
        expected = self._secret.mac(b"responder", self.hello, nonce)
        if len(challenge) != CHALLENGE_BYTES or not hmac.compare_digest(proof, expected):
            raise Refused("who answers does not know this run's secret: it is another process than expected")
        own = self._secret.mac(b"initiator", self.hello, challenge)
        return own, SessionKeys(
            self._secret, self.hello + challenge, initiates=True, encrypted=self._encrypted
        )


@final
class Responder:
    """The end that was connected to. purpose, rank: its own; label: of its group, None where any will do."""

    def __init__(
        self,
        secret: Secret,
        purpose: str,
        *,
        label: str | None = None,
        rank: int = ANYONE,
        encrypted: bool = False,
    ) -> None:
        self._secret, self._encrypted = secret, encrypted
        self._purpose, self._label, self._rank = purpose, label, rank
        self._hello = self._challenge = b""
        self.rank = ANYONE  # the initiator's, which counts once `admit` has returned

    def challenge(self, hello: bytes) -> bytes:
        """The answer to a hello. Raises `Refused` for one that is none, or is meant for another."""
        if len(hello) != HELLO_BYTES:
            raise Refused(f"a hello has {HELLO_BYTES} bytes, found {len(hello)}")
        magic, _, purpose, label, rank, to = _HELLO.unpack(hello)
        if magic != MAGIC:
            raise Refused("what came over the connection is no hello of this version of d5ray")
        if purpose != _purpose(self._purpose) or to != self._rank:
            raise Refused(f"a hello came that is not for {self._purpose} of rank {self._rank}")
        if self._label is not None and label != _digest(self._label):
            raise Refused(f"a hello came from another group than {self._label!r}")
        self.rank = rank
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._hello, self._challenge = hello, nonce + self._secret.mac(b"responder", hello, nonce)
        return self._challenge

    def admit(self, proof: bytes) -> SessionKeys:
        """The session with an initiator whose proof shows that it knows the secret; raises `Refused`."""
        expected = self._secret.mac(b"initiator", self._hello, self._challenge)
        if not self._challenge or not hmac.compare_digest(proof, expected):
            raise Refused("who connected does not know this run's secret")
        transcript = self._hello + self._challenge
        return SessionKeys(self._secret, transcript, initiates=False, encrypted=self._encrypted)


def _packed(claim: Claim, nonce: bytes) -> bytes:
    return _HELLO.pack(MAGIC, nonce, _purpose(claim.purpose), _digest(claim.label), claim.rank, claim.to)


def _purpose(words: str) -> bytes:
    found = words.encode()
    if not 0 < len(found) <= MOST_PURPOSE_BYTES:
        raise ValueError(f"a purpose has 1 to {MOST_PURPOSE_BYTES} bytes: {words!r}")
    return found.ljust(MOST_PURPOSE_BYTES, b"\0")


def _digest(label: str) -> bytes:
    return hashlib.sha256(label.encode()).digest()
