"""Claims about wires: bytes arrive as they were sent, and nobody gets in who does not know the secret"""

import gc
import pickle
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from d5ray.distributed.wire import listener as listeners
from d5ray.distributed.wire import proof
from d5ray.distributed.wire.listener import Listener
from d5ray.distributed.wire.proof import Claim, Refused, framed, initiate, secured
from d5ray.distributed.wire.secret import Secret
from d5ray.distributed.wire.wire import TLSWire, Wire
from d5ray.errors import ConfigurationError, PeerLost
from tests.distributed.strangers import Between
from tests.patience import patience
from tests.together import together

SECRET = Secret.new()
CLAIM = Claim("gossip", "run/0", 2, to=5)
SECONDS = 20.0  # the bound of waits that end much earlier
KINDS = {"plain, TCP": ("tcp", False), "TLS, TCP": ("tcp", True), "plain, Unix": ("unix", False)}


class Service:
    """A listener whose wires come out of a list, with the claims made over them."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.met: list[tuple[Claim, Wire]] = []
        self.made: list[Wire] = []
        self.news = threading.Condition()
        self.closed = False
        self.listener = Listener(
            self.serve, self.admit, host="127.0.0.1", secret=SECRET, seconds=seconds, local=True
        )

    def admit(self, claim: Claim) -> str:
        return "" if claim.purpose == "gossip" else f"this is gossip, not {claim.purpose}"

    def serve(self, claim: Claim, wire: Wire) -> None:
        with self.news:
            if self.closed:  # one that had proved itself before
                wire.close()
            self.met.append((claim, wire))
            self.news.notify_all()

    def connected(self, kind: str = "tcp") -> socket.socket:
        if kind == "tcp":
            return socket.create_connection(("127.0.0.1", self.listener.port), timeout=SECONDS)
        made = socket.socket(socket.AF_UNIX)
        made.connect(self.listener.local_name)
        return made

    def pair(self, kind: str = "tcp", *, apart: bool = False, seconds: float = SECONDS) -> tuple[Wire, Wire]:
        """Both ends of a new wire."""
        before = len(self.met)
        first = initiate(self.connected(kind), SECRET, CLAIM, seconds, apart=apart)
        with self.news:
            assert self.news.wait_for(lambda: len(self.met) > before, SECONDS)
        self.made.append(first)
        return first, self.met[-1][1]

    def close(self) -> None:
        self.listener.close()
        with self.news:
            self.closed = True
            for wire in (*self.made, *(wire for _, wire in self.met)):
                wire.close()


@pytest.fixture
def service() -> Iterator[Service]:
    with closing(Service()) as made:
        yield made


def random(size: int, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).tobytes()


# -- bytes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_arrive_as_they_were_sent_in_both_directions_at_once(service: Service, kind: str) -> None:
    """Small and large ones, by two threads at each end; then the end of the connection."""
    family, apart = KINDS[kind]
    sizes = (0, 1, 1000, 3_000_000, 7)
    ends = service.pair(family, apart=apart)
    assert [end.protected for end in ends] == [apart, apart]
    assert service.met[0][0] == CLAIM

    def work(thread: int) -> list[bytes]:
        wire, sends = ends[thread % 2], thread < 2
        found = [bytearray(size) for size in sizes]
        for number, size in enumerate(sizes):
            if sends:
                wire.send(random(size, number + thread), b"!")
            else:
                wire.fill(found[number])
                wire.fill(bytearray(1))
        return [bytes(each) for each in found]

    *_, zero, one = together(work, 4)
    assert zero == [random(size, number + 1) for number, size in enumerate(sizes)]
    assert one == [random(size, number) for number, size in enumerate(sizes)]
    ends[0].close()
    assert not ends[1].fill(bytearray(3), may_end=True)
    with pytest.raises(PeerLost):
        ends[1].fill(bytearray(3))


@pytest.mark.parametrize("apart", [False, True])
def test_every_wait_is_bounded_and_can_be_ended_from_another_thread(service: Service, apart: bool) -> None:
    """To receive and to send; a wire that is shut elsewhere wakes who waits."""
    first, second = service.pair(apart=apart)
    first.bound(0.2)
    with pytest.raises(TimeoutError):
        first.fill(bytearray(1))
    with pytest.raises(TimeoutError):
        first.send(bytes(50_000_000))
    first, second = service.pair(apart=apart)
    threading.Timer(0.1, first.shut).start()
    begin = time.monotonic()
    for end in (first, second):
        with pytest.raises((PeerLost, OSError)):
            end.fill(bytearray(1))
    assert time.monotonic() - begin < patience(5.0)


def test_a_silent_host_is_waited_for_as_long_as_was_agreed(service: Service) -> None:
    """And not only as long as the handshake may take: the connection is kept by another time than that."""
    own = initiate(service.connected(), SECRET, CLAIM, 5.0, kept_seconds=40.0, apart=True)
    _, theirs = service.pair()
    for wire, seconds in ((own, 40.0), (theirs, SECONDS)):
        found = wire.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert found == 1000 * seconds and wire.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    own.close()


# -- who gets in -------------------------------------------------------------------------------------------


def test_who_does_not_know_the_secret_is_refused_by_either_end(service: Service) -> None:
    """Nothing is heard of who has another secret, none, or speaks an older TLS."""
    with pytest.raises(Refused, match="does not know this run's secret"):
        initiate(service.connected(), Secret.new(), CLAIM, SECONDS)
    for nothing in (False, True):  # no certificate at all, and whatever certificate the other end has
        import ssl  # noqa: PLC0415

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if nothing:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((OSError, EOFError)), context.wrap_socket(service.connected()) as stranger:
            stranger.sendall(framed([proof.VERSION, *CLAIM, True]))
            if not stranger.recv(1):
                raise EOFError
    assert not service.met


@pytest.mark.parametrize(
    "words",
    [
        [proof.VERSION, "rendezvous", "run/0", 2, 5, True, True],
        [proof.VERSION + 1, *CLAIM, True],
        [],
        None,
        {"purpose": "gossip"},
        [proof.VERSION, 1, 2, 3, 4, 5, 6],
        2**31,  # a length
    ],
)
def test_a_claim_that_cannot_be_met_ends_its_connection(service: Service, words: Any) -> None:
    """One of the run, whose words are wrong: it is told where it can be, and nobody is served."""
    with secured(service.connected(), SECRET, server_side=False) as own:
        own.sendall(words.to_bytes(4, "big") if isinstance(words, int) else framed(words))
        heard = b""
        with suppress(OSError):
            while piece := own.recv(4096):
                heard += piece
    assert (b"this is gossip" in heard) == (b"rendezvous" in framed(words))
    assert not service.met


@pytest.mark.parametrize("apart", [None, False, True])
def test_a_connection_is_closed_whose_other_end_is_gone_before_a_word(apart: bool | None) -> None:
    """Also what TLS has made of it: nothing is left for the garbage collector to close, and to warn of."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        connection = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        there.close()  # by a reset
    with pytest.raises(OSError):
        initiate(connection, SECRET, CLAIM, SECONDS, apart=apart)
    assert connection.fileno() == -1
    gc.collect()


def recorded(service: Service) -> tuple[bytes, bytes]:
    """All that both ends say at the beginning of a wire."""
    with closing(Between("127.0.0.1", service.listener.port)) as between:
        made = initiate(socket.create_connection(("127.0.0.1", between.port)), SECRET, CLAIM, SECONDS)
        made.close()
        time.sleep(0.05)
        return bytes(between.heard[0]), bytes(between.heard[1])


@settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(at=st.integers(0, 2500), bit=st.integers(0, 7), own=st.booleans())
def test_no_bit_can_be_altered_before_or_after_the_proof(at: int, bit: int, own: bool) -> None:
    """Of TLS: the connection ends, and no byte arrives that was not sent."""
    said, seen = random(500, 1), {True: 0, False: 0}
    altered = False

    def alter(piece: bytes, clients: bool) -> bytes:
        nonlocal altered
        place = at - seen[clients]
        seen[clients] += len(piece)
        if clients != own or not 0 <= place < len(piece):
            return piece
        altered = True
        return piece[:place] + bytes([piece[place] ^ 1 << bit]) + piece[place + 1 :]

    heard = bytearray(500)
    with (
        closing(Service(1.0)) as service,
        closing(Between("127.0.0.1", service.listener.port, alter)) as between,
    ):
        try:
            connection = socket.create_connection(("127.0.0.1", between.port))
            service.made.append(initiate(connection, SECRET, CLAIM, 1.0, apart=True))
            with service.news:
                assert service.news.wait_for(lambda: bool(service.met), 1.0)
            sender, taker = (service.made[0], service.met[0][1])[:: 1 if own else -1]
            sender.send(said)
            taker.fill(heard)
        except (Refused, PeerLost, OSError, AssertionError):
            assert altered and not any(heard)
            return
    assert bytes(heard) == said


@pytest.mark.parametrize("apart", [False, True])
def test_who_hears_all_learns_the_payload_of_plain_wires_alone_and_the_secret_of_none(apart: bool) -> None:
    with closing(Service()) as service, closing(Between("127.0.0.1", service.listener.port)) as between:
        wire = initiate(
            socket.create_connection(("127.0.0.1", between.port)), SECRET, CLAIM, 9.0, apart=apart
        )
        wire.send(b"the parameters of a run")
        with service.news:
            assert service.news.wait_for(lambda: bool(service.met), SECONDS)
        service.met[0][1].fill(bytearray(23))
        assert isinstance(wire, TLSWire) == apart
        heard = b"".join(map(bytes, between.heard))
        wire.close()
    assert (b"the parameters of a run" in heard) is not apart
    assert SECRET.mac(b"certificate") not in heard and bytes.fromhex(SECRET.reveal()) not in heard
    assert b"gossip" not in heard and b"run/0" not in heard  # who speaks to whom is hidden in any case


def test_strangers_are_few_and_have_one_deadline(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes when there are too many; one that sends a byte now and then is ended in time."""
    monkeypatch.setattr(listeners, "MOST_STRANGERS", 3)
    monkeypatch.setattr(listeners, "HANDSHAKE_SECONDS", 1.0)
    held = [service.connected() for _ in range(4)]
    assert held[0].recv(1) == b""
    service.pair()
    slow, begin = service.connected(), time.monotonic()
    with suppress(OSError):
        for byte in recorded(service)[0]:
            slow.sendall(bytes([byte]))
            time.sleep(0.02)
    assert time.monotonic() - begin < patience(5.0)
    for each in (*held, slow):
        each.close()


HERE, ELSEWHERE, LOOPBACK = "192.0.2.1", "192.0.2.2", "127.0.0.1"


@pytest.mark.parametrize(
    ("own", "other", "leaves"),
    [
        (HERE, HERE, False), (LOOPBACK, "127.0.0.2", False), ("::1", "::1", False),
        (HERE, ELSEWHERE, True), ("fe80::1%eth0", "fe80::2%eth0", True),
        (LOOPBACK, ELSEWHERE, True), (HERE, LOOPBACK, True),  # a router may bring others to the loopback
    ],
)  # fmt: skip
def test_only_what_stays_on_one_machine_is_taken_to_stay(own: str, other: str, leaves: bool) -> None:
    """By the addresses of both ends, most of which no socket of this machine could have."""
    family = socket.AF_INET6 if ":" in own else socket.AF_INET
    connection = Mock(family=family)
    connection.getsockname.return_value, connection.getpeername.return_value = (own, 1), (other, 2)
    assert proof.leaves_machine(connection) == leaves


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
