"""Claims about requests between processes without a group: frames, shared regions, services and channels"""

import json
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5ray.distributed.rpc import frames
from d5ray.distributed.rpc.connection import Channel
from d5ray.distributed.rpc.frames import Bytes, FrameStream, Unexpected
from d5ray.distributed.rpc.service import (
    HELLO,
    MOST_OF_ONE,
    Address,
    Caller,
    Connection,
    Service,
    connect,
)
from d5ray.distributed.rpc.shared_region import PAGE_BYTES, SharedRegion
from d5ray.distributed.wire.proof import Claim, initiate, respond, secured
from d5ray.distributed.wire.secret import Secret
from d5ray.distributed.wire.wire import PlainWire, Wire
from d5ray.errors import AgentError, ConfigurationError, PeerLost
from tests.conftest import wait_until
from tests.distributed.elsewhere import elsewhere
from tests.distributed.leftovers import shared_memory
from tests.patience import patience
from tests.together import NOTICED_SECONDS, noticed, together

pytestmark = pytest.mark.usefixtures("leaves_nothing")

SECRET, ANOTHER = Secret.parse("5e" * 32), Secret.parse("5f" * 32)
PURPOSE = "echo"
MOST = 2**25  # bytes of a payload
HERE, THERE = "this node", "another node"
HEADER_BYTES = 16 + 8 * frames.NUMBERS
ECHO, SILENCE = 5, 6  # kinds of requests
SECONDS = patience(20.0)  # the bound of waits that end much earlier


def numbered(size: int, seed: int = 0) -> Bytes:
    """Random bytes, others for every size and seed."""
    return np.random.default_rng([size, seed]).integers(0, 256, size, dtype=np.uint8)


# -- frames --------------------------------------------------------------------------------------------------


@contextmanager
def unix_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        yield left, right


@contextmanager
def tcp_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        left = socket.create_connection(listener.getsockname())
        right, _ = listener.accept()
        with left, right:
            yield left, right


def wires(left: socket.socket, right: socket.socket, protected: bool) -> list[Wire]:
    """Both ends of a connection, which have proved the secret to each other."""
    if not protected:
        return [PlainWire(end, SECONDS) for end in (left, right)]
    answers = secured(right, SECRET, server_side=True)

    def begin(rank: int) -> Wire:
        if rank:
            return respond(answers, lambda claim: "", SECONDS)[1]
        return initiate(left, SECRET, Claim(PURPOSE, "here", 1), SECONDS, apart=True)

    return together(begin, 2)


@pytest.mark.parametrize("protected", [False, True])
@pytest.mark.parametrize("pair", [unix_pair, tcp_pair])
def test_frames_come_as_they_were_sent(pair: Callable[[], Any], protected: bool) -> None:
    """Empty, short, long and large ones one after the other: kind, numbers and every byte, then the end."""
    sent = [
        (kind, tuple(range(-kind, 0)), numbered(size))
        for kind, size in enumerate((0, 1, 79, 4095, 4096, 4097, 300_000, 20_000_000, 0))
    ]
    sent[2] = (2**31 - 1, (2**63 - 1, -(2**63)), sent[2][2])
    with pair() as (left, right):
        ends = wires(left, right, protected)
        giver, taker = (FrameStream(end) for end in ends)

        def send() -> None:
            for kind, numbers, payload in sent:
                giver.send(kind, numbers, payload)
            ends[0].shut()

        def receive() -> None:
            for kind, numbers, payload in sent:
                frame = taker.receive(MOST)
                padded = (*numbers, *(0,) * (frames.NUMBERS - len(numbers)))
                assert frame == (kind, padded, len(payload))
                into = np.zeros_like(payload)
                taker.fill(into)
                assert np.array_equal(into, payload)
            assert taker.receive(MOST) is None

        together(lambda rank: (send, receive)[rank](), 2)
        for end in ends:
            end.close()


def streamed(connection: socket.socket) -> FrameStream:
    """Frames over a plain connection."""
    return FrameStream(PlainWire(connection, SECONDS))


def raw_frame(payload: Bytes, kind: int = ECHO) -> bytes:
    """As it travels."""
    with unix_pair() as (left, right):
        streamed(left).send(kind, (1, 2, 3), payload)
        left.shutdown(socket.SHUT_WR)
        with right.makefile("rb") as stream:
            return stream.read()


def test_an_end_between_frames_is_the_end_and_an_end_within_one_an_error() -> None:
    """Cut behind every byte of a frame: `PeerLost`, but where nothing or all of it has come."""
    raw = raw_frame(numbered(10))
    assert len(raw) == HEADER_BYTES + 10
    for cut in range(len(raw) + 1):
        with unix_pair() as (left, right):
            left.sendall(raw[:cut])
            left.shutdown(socket.SHUT_WR)
            if cut == 0:
                assert streamed(right).receive(MOST) is None
            elif cut < HEADER_BYTES:
                with pytest.raises(PeerLost, match="in the middle"):
                    streamed(right).receive(MOST)
            else:
                frame, into = streamed(right).receive(MOST), np.zeros(10, np.uint8)
                assert frame is not None and frame.payload_bytes == 10
                if cut == len(raw):
                    streamed(right).fill(into)
                else:
                    with pytest.raises(PeerLost, match="in the middle"):
                        streamed(right).fill(into)


def test_garbage_is_refused() -> None:
    """Random bytes, another protocol's words, too large a payload: an error, and nothing more is read."""
    too_large = bytearray(raw_frame(frames.EMPTY))
    too_large[8:16] = (MOST + 1).to_bytes(8, "little")
    http = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain".ljust(HEADER_BYTES, b"\n")
    for garbage in (numbered(HEADER_BYTES).tobytes(), http, bytes(HEADER_BYTES), bytes(too_large)):
        with unix_pair() as (left, right):
            left.sendall(garbage + b"more")
            with pytest.raises(Unexpected, match=r"none of d5ray's|at most"):
                streamed(right).receive(MOST)
            assert right.recv(100) == b"more"


# -- regions -------------------------------------------------------------------------------------------------


def test_pieces_of_a_region_are_apart_and_found_again() -> None:
    """Carved one after the other, on pages of their own: no piece overlaps another, each knows its place."""
    region = SharedRegion(10 * PAGE_BYTES)
    try:
        assert region.left() == 10 * PAGE_BYTES
        sizes = [1, PAGE_BYTES, PAGE_BYTES + 1, 5]
        pieces = [region.carve(size) for size in sizes]
        assert [piece.size for piece in pieces] == sizes
        places = [region.offset(piece) for piece in pieces]
        assert places == [0, PAGE_BYTES, 2 * PAGE_BYTES, 4 * PAGE_BYTES]
        assert region.left() == 5 * PAGE_BYTES
        for number, piece in enumerate(pieces):
            piece[:] = number + 1
        assert (
            [int(piece.min()) for piece in pieces] == [int(piece.max()) for piece in pieces] == [1, 2, 3, 4]
        )
        assert region.offset(pieces[2][10:20].view(np.int16)) == 2 * PAGE_BYTES + 10
        assert region.offset(np.zeros(3)) is None
    finally:
        region.close_descriptor()


# -- services ------------------------------------------------------------------------------------------------


def echo(client: Connection) -> None:
    """Gives back what came: twice the numbers, and the bytes, of the region where a place in it is named."""
    while (frame := client.receive(MOST)) is not None:
        payload = np.empty(frame.payload_bytes, np.uint8)
        client.fill(payload)
        if frame.kind == ECHO:
            numbers = tuple(2 * number for number in frame.numbers)
            if client.region is not None and frame.numbers[0] > 0:
                payload = client.region.bytes[: frame.numbers[0]]
            client.reply(ECHO, numbers, payload)


class Watched:
    """An echo that knows who is there, and how each of them ended."""

    def __init__(self) -> None:
        self.present: set[int] = set()
        self.came: list[int] = []

    def __call__(self, client: Connection) -> None:
        rank = client.rank
        self.present.add(rank)
        self.came.append(rank)
        try:
            echo(client)
        finally:
            self.present.discard(rank)


@contextmanager
def service(serve: Callable[[Connection], None] = echo) -> Iterator[Service]:
    made = Service(serve, node=HERE, host="127.0.0.1", secret=SECRET, purpose=PURPOSE, ranks=range(1000))
    try:
        yield made
    finally:
        made.close()


def caller(rank: int, node: str = HERE) -> Caller:
    return Caller(SECRET, PURPOSE, rank, node)


@contextmanager
def channel(
    address: Address,
    *,
    node: str = HERE,
    rank: int = 0,
    region: SharedRegion | None = None,
    seconds: float = SECONDS,
    patience: float = 0.0,
) -> Iterator[Channel]:
    made = Channel(address, caller(rank, node), {"name": "x"}, region, seconds, patience)
    try:
        yield made
    finally:
        made.close()


def asked(speaker: Channel, number: int, payload: Bytes) -> Bytes:
    """What the echo gives back, which must be its own."""
    into = np.zeros_like(payload)
    frame = speaker.call(ECHO, (-number,), payload, into)
    assert frame.numbers[0] == -2 * number
    return into


WRONG: dict[str, dict[str, Any]] = {
    "another run's secret": {"secret": ANOTHER},
    "another purpose": {"purpose": "gossip"},
    "a rank that no client has": {"rank": 1000},
    "a negative rank": {"rank": -1},
    "another service of the run, as after a restart": {"identity": "0" * 16},
    "a service of another rank": {"to": 3},
}


@pytest.mark.parametrize("node", [HERE, THERE])
def test_who_does_not_prove_what_is_asked_is_turned_away(node: str) -> None:
    """At once, unserved, and whatever it shares is not mapped; the next one is served.

    So is who knows the secret, and means another service.
    """
    watched = Watched()
    region = SharedRegion(100)
    before = shared_memory()
    try:
        with service(watched) as served:
            for rank, (kind, wrong) in enumerate(WRONG.items(), start=2):
                own, there = wrong.copy(), {}
                to = own.pop("to", -1)
                if "identity" in own:
                    there["identity"] = own.pop("identity")
                stranger, address = replace(caller(1, node), **own), replace(served.address, **there)
                with pytest.raises(PeerLost, match="does not answer"):
                    connect(address, stranger, {}, region, SECONDS, to=to)
                with channel(served.address, node=node, rank=rank) as speaker:
                    asked(speaker, 1, numbered(10))
                assert watched.came.pop() == rank and not watched.came, kind
                assert shared_memory() == before
    finally:
        region.close_descriptor()


@contextmanager
def introduced(address: Address) -> Iterator[FrameStream]:
    """A client on the service's node that has proved itself and has still to introduce itself."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(address.local)
    with closing(initiate(connection, SECRET, Claim(PURPOSE, address.identity, 1), SECONDS)) as wire:
        yield FrameStream(wire)


def open_files() -> int:
    """The descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


UNFIT = ["too small", "too large", "not sealed", "a file", "two", "none"]


@pytest.mark.parametrize("kind", UNFIT)
def test_memory_that_could_end_the_service_is_refused(kind: str, tmp_path: Path) -> None:
    """Memory of another size than its owner says, that can be made smaller later, a file, two descriptors or
    none: nothing is mapped or left open, and the next client is served."""
    before, files = shared_memory(), open_files()
    region = SharedRegion(PAGE_BYTES)
    unsealed = os.memfd_create("d5ray", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, PAGE_BYTES)
    path = tmp_path / "file"
    path.write_bytes(bytes(PAGE_BYTES))
    file = os.open(path, os.O_RDWR)
    said = {"too small": PAGE_BYTES + 1, "too large": PAGE_BYTES - 1}.get(kind, PAGE_BYTES)
    sent = {
        "not sealed": [unsealed], "a file": [file], "two": [region.descriptor, file], "none": [],
    }.get(kind, [region.descriptor])  # fmt: skip
    try:
        with service() as served:
            with introduced(served.address) as wire:
                wire.send(HELLO, (said,), np.frombuffer(b"{}", np.uint8))
                with suppress(ConnectionError):
                    socket.send_fds(wire.wire.socket, [b"\0"], sent)
                    assert wire.receive(0) is None
            with channel(served.address) as speaker:
                asked(speaker, 1, numbered(10))
    finally:
        region.close_descriptor()
        os.close(unsealed)
        os.close(file)
    del region
    assert shared_memory() == before
    wait_until(lambda: open_files() <= files, NOTICED_SECONDS)


def test_memory_is_sealed_so_that_nobody_makes_it_smaller() -> None:
    """Not even its owner, once it has been made; nor larger."""
    region = SharedRegion(2 * PAGE_BYTES)
    try:
        for size in (PAGE_BYTES, 3 * PAGE_BYTES):
            with pytest.raises(PermissionError):
                os.ftruncate(region.descriptor, size)
    finally:
        region.close_descriptor()


def test_a_rank_has_few_connections() -> None:
    """Of a hundred that one rank opens the newest eight are left; another rank's is left alone."""
    with service() as served, channel(served.address, rank=7) as other, ExitStack() as stack:
        asked(other, 1, numbered(10))
        speakers = [stack.enter_context(channel(served.address, rank=1)) for _ in range(100)]
        for speaker in speakers:
            asked(speaker, 1, numbered(10))
        wait_until(lambda: len(served._connections) == MOST_OF_ONE + 1, NOTICED_SECONDS)
        asked(other, 2, numbered(10))
        asked(speakers[-1], 2, numbered(10))
        asked(speakers[0], 2, numbered(10))  # over a new connection
        wait_until(lambda: len(served._connections) == MOST_OF_ONE + 1, NOTICED_SECONDS)


def asks_for_ever(pipe: Any, address: Address, node: str) -> None:
    """In another process: sends large requests, one after the other."""
    region = SharedRegion(1000)
    speaker = Channel(address, caller(1, node), {}, region, SECONDS)
    asked(speaker, 1, numbered(3_000_000))
    pipe.send("ready")
    for number in range(10**9):
        asked(speaker, number, numbered(3_000_000, number))


@pytest.mark.parametrize("node", [HERE, THERE])
def test_a_client_that_is_killed_is_forgotten_within_seconds(node: str) -> None:
    """SIGKILL in the middle of requests: its thread ends, its region is let go, others do not notice."""
    watched, before = Watched(), len(shared_memory())
    with service(watched) as served, channel(served.address, rank=2) as speaker:
        asked(speaker, 1, numbered(10))
        with elsewhere(asks_for_ever, served.address, node) as client:
            assert client.said() == "ready"
            assert watched.present == {1, 2}
            assert (len(shared_memory()) > before) == (node == HERE)
            client.kill()
            wait_until(lambda: watched.present == {2}, NOTICED_SECONDS)
            wait_until(lambda: len(shared_memory()) == before, NOTICED_SECONDS)
            asked(speaker, 2, numbered(1000))


@pytest.mark.parametrize("node", [HERE, THERE])
def test_closing_a_service_ends_everything(node: str) -> None:
    """Who waits for an answer gets `PeerLost` at once, who comes later too, and no thread is left."""
    with service() as served, ExitStack() as stack:
        speakers = [stack.enter_context(channel(served.address, node=node, rank=r)) for r in range(4)]
        waiting = threading.Barrier(5)

        def wait(rank: int) -> float:
            asked(speakers[rank], rank, numbered(10))
            waiting.wait(SECONDS)
            with pytest.raises(PeerLost):
                speakers[rank].call(SILENCE)
            return time.monotonic()

        def close() -> float:
            waiting.wait(SECONDS)
            served.close()
            return time.monotonic()

        *told, closed = together(lambda rank: close() if rank == 4 else wait(rank), 5)
        assert max(told) - closed < patience(NOTICED_SECONDS)
        with pytest.raises(PeerLost, match="does not answer"):
            connect(served.address, caller(9, node), {}, None, SECONDS)
        names = {"d5ray-service", "d5ray-serve"}
        wait_until(lambda: names.isdisjoint(thread.name for thread in threading.enumerate()), NOTICED_SECONDS)


def may_open_few_files(pipe: Any, few: int) -> None:
    """In another process: a service that may have but a few files open beside those that it has."""
    with service() as served:
        allowed = 1 + max(int(entry.name) for entry in Path("/proc/self/fd").iterdir()) + few
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
        pipe.send(served.address)
        pipe.recv()


def test_a_service_without_files_to_open_goes_on_when_there_are_some() -> None:
    """Clients come until it may open no more files; when they have left, the next ones are served."""
    with elsewhere(may_open_few_files, 10) as other:
        address = other.said()
        files = Path(f"/proc/{other.pid}/fd")
        before = len(list(files.iterdir()))
        with ExitStack() as crowd:
            for number in range(40):
                if number % 2:
                    one = crowd.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                    one.connect(address.local)
                else:
                    crowd.enter_context(socket.create_connection((address.host, address.port)))
            wait_until(lambda: len(list(files.iterdir())) >= before + 9, SECONDS)
            time.sleep(0.2)  # for what cannot be opened any more
        for node in (HERE, THERE):
            with channel(address, node=node, patience=SECONDS) as speaker:
                assert np.array_equal(asked(speaker, 1, numbered(10)), numbered(10))


def mistaken(client: Connection) -> None:
    """Serves one request, and then has a mistake."""
    client.receive(MOST)
    client.reply(ECHO, (1,))
    client.receive(MOST)
    if client.rank:
        raise ConfigurationError("found this, expected that: do this")
    json.loads("{")


@pytest.mark.parametrize("node", [HERE, THERE])
def test_what_a_service_raises_is_raised_at_the_client(node: str) -> None:
    """An error for people with its own words, others with the place of the mistake; the service goes on."""
    words = (r"(?s)json\.loads\(.*JSONDecodeError: Expecting", "^found this, expected that: do this$")
    with service(mistaken) as served:
        for rank, expected in enumerate(words):
            with channel(served.address, node=node, rank=rank, patience=SECONDS) as speaker:
                assert speaker.call(ECHO).numbers[0] == 1
                with pytest.raises(AgentError, match=expected):
                    speaker.call(ECHO)
                assert speaker.call(ECHO).numbers[0] == 1  # over another connection


# -- channels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", [HERE, THERE])
def test_a_region_is_shared_on_the_node_alone(node: str) -> None:
    """The echo answers with what lies in the region where it is near, and with what was sent elsewhere."""
    region = SharedRegion(64)
    region.bytes[:] = numbered(64)
    try:
        with service() as served, channel(served.address, node=node, region=region) as speaker:
            assert speaker.near == (node == HERE)
            into = np.zeros(64, np.uint8)
            speaker.call(ECHO, (64,), numbered(64, seed=1), into)
            assert np.array_equal(into, numbered(64, seed=int(node == THERE)))
    finally:
        region.close_descriptor()


def test_callers_of_one_channel_get_their_own_answers() -> None:
    """Eight threads, one connection."""
    with service() as served, channel(served.address) as speaker:

        def ask(rank: int) -> None:
            for turn in range(50):
                payload = numbered(100 * rank + turn, rank)
                assert np.array_equal(asked(speaker, rank, payload), payload)

        together(ask, 8)


@pytest.mark.parametrize("near", [True, False])
def test_who_does_not_even_accept_is_not_waited_for_longer_than_agreed(near: bool) -> None:
    """Somebody who listens and never looks: `PeerLost` after the time-outs of two attempts."""
    local = f"\0d5ray-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as unix,
    ):
        unix.bind(local)
        unix.listen()
        address = Address(HERE if near else THERE, "127.0.0.1", tcp.getsockname()[1], local, "identity")
        with (
            noticed(0.5),
            channel(address, seconds=0.5) as speaker,
            pytest.raises(PeerLost, match="did not answer"),
        ):
            speaker.call(ECHO)


class Log:
    """A service's requests: it answers with its own number, where it is `silent` but for those of silence."""

    def __init__(self, number: int, silent: bool) -> None:
        self.number, self.silent = number, silent
        self.asked: list[tuple[int, int, bytes]] = []

    def __call__(self, client: Connection) -> None:
        while (frame := client.receive(MOST)) is not None:
            payload = np.empty(frame.payload_bytes, np.uint8)
            client.fill(payload)
            self.asked.append((frame.kind, frame.numbers[0], payload.tobytes()))
            if not (self.silent and frame.kind == SILENCE):
                client.reply(frame.kind, (self.number,))


@pytest.mark.full
@pytest.mark.parametrize("node", [HERE, THERE])
@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_request_is_sent_once_more_to_a_service_that_came_back_elsewhere(node: str, size: int) -> None:
    """It ends while it holds a request; there is none for a while; another one, at another address, gets the
    request again, whole, and before it what was to be said after every reconnection."""
    first, second = Log(1, silent=True), Log(2, silent=False)
    with ExitStack() as stack:
        served = stack.enter_context(service(first))
        speaker = stack.enter_context(channel(served.address, node=node, patience=SECONDS))
        introduction, request = numbered(20), numbered(size)
        assert speaker.call(ECHO, (7,), introduction, again=True).numbers[0] == 1
        assert speaker.call(ECHO, (8,)).numbers[0] == 1

        def replace() -> None:
            wait_until(lambda: len(first.asked) == 3, SECONDS)
            served.close()
            time.sleep(0.3)  # a few attempts in vain
            again = stack.enter_context(service(second))
            speaker.address = again.address

        answer = together(lambda rank: replace() if rank else speaker.call(SILENCE, (9,), request), 2)[0]
        assert answer is not None and answer.numbers[0] == 2
        assert first.asked == [
            (ECHO, 7, introduction.tobytes()),
            (ECHO, 8, b""),
            (SILENCE, 9, request.tobytes()),
        ]
        assert second.asked == [(ECHO, 7, introduction.tobytes()), (SILENCE, 9, request.tobytes())]


@pytest.mark.parametrize("node", [HERE, THERE])
@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_without_patience_a_request_that_was_received_is_not_sent_again(node: str, seconds: float) -> None:
    """The service ends while it holds the request: `PeerLost`, though another one is at the new address.

    Patience begins when the connection breaks: a request that waited longer before it is sent again.
    """
    first, second = Log(1, silent=True), Log(2, silent=False)
    with ExitStack() as stack:
        served = stack.enter_context(service(first))
        speaker = stack.enter_context(channel(served.address, node=node, patience=seconds))

        def replace() -> None:
            wait_until(lambda: len(first.asked) == 1, SECONDS)
            time.sleep(1.2 * seconds)
            speaker.address = stack.enter_context(service(second)).address
            served.close()

        def ask() -> None:
            if seconds:
                assert speaker.call(SILENCE).numbers[0] == 2
                return
            with pytest.raises(PeerLost, match="did not answer"):
                speaker.call(SILENCE)

        together(lambda rank: replace() if rank else ask(), 2)
        assert len(second.asked) == bool(seconds)
        assert speaker.call(ECHO).numbers[0] == 2  # the next one goes there


def test_closing_a_channel_wakes_who_waits_on_it() -> None:
    """A thread that waits for an answer gets `PeerLost` when another one closes the channel."""
    log = Log(1, silent=True)
    with service(log) as served, channel(served.address, patience=SECONDS) as speaker:

        def ask() -> float:
            with pytest.raises(PeerLost):
                speaker.call(SILENCE)
            return time.monotonic()

        def close() -> float:
            wait_until(lambda: len(log.asked) == 1, SECONDS)
            speaker.close()
            return time.monotonic()

        woken, closed = together(lambda rank: close() if rank else ask(), 2)
        assert woken - closed < patience(NOTICED_SECONDS)
        assert len(log.asked) == 1
