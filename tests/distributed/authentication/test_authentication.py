"""Claims about the handshake and what follows it: who knows the secret gets in, and nothing altered passes"""

import hashlib
import hmac
import pickle
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d5ray.distributed.authentication import session as sessions
from d5ray.distributed.authentication.handshake import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    PROOF_BYTES,
    Initiator,
    Responder,
)
from d5ray.distributed.authentication.secret import Secret
from d5ray.distributed.authentication.session import (
    TAG_BYTES,
    Forged,
    Receiver,
    Sender,
    SessionKeys,
    sealed_bytes,
)
from d5ray.distributed.wire.proof import Claim, Refused
from d5ray.errors import ConfigurationError

SECRET = Secret.new()
CLAIM = Claim("gossip", "run/0", 2, to=5)


def responder(secret: Secret = SECRET, **other: Any) -> Responder:
    """The one that CLAIM wants to speak to."""
    keywords: dict[str, Any] = {"label": "run/0", "rank": 5} | other
    return Responder(secret, **{"purpose": "gossip"} | keywords)


def met(*, encrypted: bool = False) -> tuple[SessionKeys, SessionKeys]:
    """Both ends after a handshake."""
    first, second = Initiator(SECRET, CLAIM, encrypted=encrypted), responder(encrypted=encrypted)
    proof, session = first.prove(second.challenge(first.hello))
    return session, second.admit(proof)


def stream(*, encrypted: bool = False) -> tuple[Sender, Receiver]:
    """A direction between them."""
    first, second = met(encrypted=encrypted)
    return first.sender(), second.receiver()


def random(size: int, seed: int = 0) -> Any:
    """Bytes (size,)."""
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


# -- the handshake -----------------------------------------------------------------------------------------


def test_the_messages_are_those_that_the_module_describes() -> None:
    """Both proofs, made anew from the description with the standard library alone."""
    key = bytes(range(32))
    first, second = Initiator(Secret(key), CLAIM), responder(Secret(key))
    challenge = second.challenge(first.hello)
    proof, _ = first.prove(challenge)

    def mac(*pieces: bytes) -> bytes:
        message = b"".join(struct.pack("<Q", len(piece)) + piece for piece in pieces)
        return hmac.new(key, message, hashlib.sha256).digest()

    assert len(first.hello) == HELLO_BYTES and len(challenge) == CHALLENGE_BYTES and len(proof) == PROOF_BYTES
    assert challenge[32:] == mac(b"responder", first.hello, challenge[:32])
    assert proof == mac(b"initiator", first.hello, challenge)
    assert hashlib.sha256(b"run/0").digest() in first.hello
    assert second.rank == 2


def test_both_ends_have_the_same_session_and_nothing_of_it_twice() -> None:
    """What one seals the other opens, in both directions; equal words never look equal."""
    first, second = met()
    there, back = (first.sender(), second.receiver()), (second.sender(), first.receiver())
    seen = set()
    for sender, receiver in (there, back):
        for _ in range(3):
            sealed = sender.seal(b"equal words")
            seen.add(sealed)
            assert receiver.open(sealed) == b"equal words"
    assert len(seen) == 6


def test_who_does_not_know_the_secret_is_refused_on_either_side() -> None:
    """An initiator finds out before it has proved anything; a responder before it has read anything."""
    stranger = Secret.new()
    first = Initiator(SECRET, CLAIM)
    with pytest.raises(Refused, match="does not know this run's secret"):
        first.prove(responder(stranger).challenge(first.hello))
    second = responder()
    challenge = second.challenge(Initiator(stranger, CLAIM).hello)
    with pytest.raises(Refused, match="does not know this run's secret"):
        second.admit(stranger.mac(b"initiator", Initiator(stranger, CLAIM).hello, challenge))


def test_a_recorded_handshake_opens_nothing_a_second_time() -> None:
    """Replay on either side: the nonces are others."""
    first, second = Initiator(SECRET, CLAIM), responder()
    challenge = second.challenge(first.hello)
    proof, _ = first.prove(challenge)
    again = responder()
    again.challenge(first.hello)
    with pytest.raises(Refused):
        again.admit(proof)
    with pytest.raises(Refused):
        Initiator(SECRET, CLAIM).prove(challenge)


def test_a_proof_is_not_taken_back_by_the_one_that_gave_it() -> None:
    """Reflection: a process that knows nothing lets two honest ones answer each other, or one itself."""
    first, second = Initiator(SECRET, CLAIM), responder()
    challenge = second.challenge(first.hello)
    with pytest.raises(Refused):
        second.admit(challenge[32:])
    with pytest.raises(Refused):
        first.prove(first.hello[8:40] + challenge[32:])
    with pytest.raises(Refused):
        responder().admit(bytes(PROOF_BYTES))  # before any hello


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"label": "run/1"}, "another group"),
        ({"rank": 4}, "not for gossip of rank 4"),
        ({"purpose": "rendezvous"}, "not for rendezvous"),
    ],
)
def test_a_hello_is_for_one_purpose_group_and_rank(other: dict[str, Any], expected: str) -> None:
    """Another epoch's, another member's or another service's handshake is refused with the reason."""
    with pytest.raises(Refused, match=expected):
        responder(**other).challenge(Initiator(SECRET, CLAIM).hello)


@given(at=st.integers(0, HELLO_BYTES + CHALLENGE_BYTES + PROOF_BYTES - 1), bit=st.integers(0, 7))
def test_no_bit_of_a_handshake_can_be_altered(at: int, bit: int) -> None:
    """Wherever a bit is turned, one of the ends refuses."""

    def altered(message: bytes, begin: int) -> bytes:
        if not 0 <= at - begin < len(message):
            return message
        changed = bytearray(message)
        changed[at - begin] ^= 1 << bit
        return bytes(changed)

    first, second = Initiator(SECRET, CLAIM), responder()
    with pytest.raises(Refused):
        challenge = second.challenge(altered(first.hello, 0))
        proof, _ = first.prove(altered(challenge, HELLO_BYTES))
        second.admit(altered(proof, HELLO_BYTES + CHALLENGE_BYTES))


@given(st.binary(max_size=2 * HELLO_BYTES), st.binary(max_size=2 * CHALLENGE_BYTES), st.binary(max_size=64))
def test_any_other_bytes_are_refused(hello: bytes, challenge: bytes, proof: bytes) -> None:
    """Of any length; with `Refused` and no other error."""
    with pytest.raises(Refused):
        responder().challenge(hello)
    with pytest.raises(Refused):
        Initiator(SECRET, CLAIM).prove(challenge)
    second = responder()
    second.challenge(Initiator(SECRET, CLAIM).hello)
    with pytest.raises(Refused):
        second.admit(proof)


# -- the secret --------------------------------------------------------------------------------------------


def test_a_secret_travels_and_does_not_show() -> None:
    """Its text has nothing of it; a copy by pickle, as Ray's calls make, is equal."""
    key = bytes(range(65, 97))
    secret = Secret(key)
    copy = pickle.loads(pickle.dumps(secret))
    assert (copy, hash(copy)) == (secret, hash(secret)) and copy != Secret.new() and secret != key
    for shown in (repr(secret), str(secret), f"{secret!s}", repr({"secret": secret})):
        assert shown.count("Secret(…)") == 1 and "ABC" not in shown and key.hex() not in shown
    with pytest.raises(ConfigurationError, match="32 bytes, found 3"):
        Secret(b"abc")


def test_pieces_are_bound_with_their_lengths() -> None:
    """What is split elsewhere has another code."""
    assert (
        len({SECRET.mac(b"ab", b"c"), SECRET.mac(b"a", b"bc"), SECRET.mac(b"abc"), SECRET.mac(b"abc", b"")})
        == 4
    )


# -- frames ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [sessions.MOST_AT_ONCE, 100])
@pytest.mark.parametrize("size", [0, 1, 100, 101, 350])
def test_payloads_arrive_as_they_are(size: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tagged and encrypted, also in several parts; encrypted ones have nothing of the payload in them."""
    monkeypatch.setattr(sessions, "MOST_AT_ONCE", most)
    sender, receiver = stream()
    hidden, shown = stream(encrypted=True)
    for seed in range(3):
        payload = random(size, seed)
        tag = sender.tag(payload)
        assert len(tag) == TAG_BYTES
        receiver.verify(payload, tag)
        sealed, into = np.empty(sealed_bytes(size), np.uint8), np.zeros(size, np.uint8)
        hidden.encrypt(payload, sealed)
        assert size < 16 or payload[:16].tobytes() not in sealed.tobytes()
        shown.decrypt(sealed, into)
        assert np.array_equal(into, payload)


@pytest.mark.parametrize("most", [sessions.MOST_AT_ONCE, 100])
@given(at=st.integers(0, 349), bit=st.integers(0, 7))
def test_an_altered_payload_or_tag_is_noticed(most: int, at: int, bit: int) -> None:
    """Any bit of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "MOST_AT_ONCE", most)
        sender, receiver = stream()
        payload = random(350)
        tag = bytearray(sender.tag(payload))
        if at < len(tag):
            tag[at] ^= 1 << bit
        else:
            payload[at] ^= 1 << bit
        with pytest.raises(Forged):
            receiver.verify(payload, bytes(tag))
        hidden, shown = stream(encrypted=True)
        sealed = np.empty(sealed_bytes(350), np.uint8)
        hidden.encrypt(random(350), sealed)
        sealed[at] ^= 1 << bit
        with pytest.raises(Forged):
            shown.decrypt(sealed, np.empty(350, np.uint8))


def test_frames_that_are_repeated_left_out_or_moved_do_not_open() -> None:
    """The number of a frame is part of what is proved; so are the stream and the direction."""
    for attack in ("repeated", "left out", "other stream", "other direction", "other session", "cut"):
        first, second = met()
        sender, receiver = first.sender(), second.receiver()
        one, two = sender.seal(b"one"), sender.seal(b"two")
        if attack == "repeated":
            assert receiver.open(one) == b"one"
            two = one
        elif attack == "other stream":
            two, receiver = one, second.receiver(1)
        elif attack == "other direction":
            two, receiver = one, first.receiver()
        elif attack == "other session":
            two, receiver = one, met()[1].receiver()
        elif attack == "cut":
            two = one[:-1]
        with pytest.raises(Forged):
            receiver.open(two)


def test_ends_that_disagree_about_encryption_do_not_understand_each_other() -> None:
    """Nobody in between can switch it off."""
    first, second = Initiator(SECRET, CLAIM, encrypted=True), responder()
    proof, session = first.prove(second.challenge(first.hello))
    with pytest.raises(Forged):
        second.admit(proof).receiver().open(session.sender().seal(b"words"))
