"""Claims about what strangers, and members that are wrong, can do to a run over its sockets: nothing"""

import ast
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import d5ray as d5
import d5ray.distributed
import d5ray.distributed.group.rendezvous
from d5ray.distributed.communicators.simple.solo import Absent
from d5ray.distributed.group.group import Group, Store
from d5ray.distributed.group.membership import Membership
from d5ray.distributed.group.rendezvous import PURPOSE, Rendezvous
from d5ray.distributed.one_sided import remote_peers as gossip
from d5ray.distributed.one_sided.remote_peers import RemotePeers
from d5ray.distributed.parameter_server import requests
from d5ray.distributed.parameter_server.remote_client import RemoteServer
from d5ray.distributed.rpc import frames
from d5ray.distributed.rpc.frames import FrameStream
from d5ray.distributed.rpc.service import HELLO, Address
from d5ray.distributed.wire import listener, proof
from d5ray.distributed.wire.proof import Claim, framed, initiate
from d5ray.distributed.wire.secret import Secret
from d5ray.distributed.wire.wire import Wire
from d5ray.errors import D5Error, PeerLost
from d5ray.experiment import Experiment
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.dataset import Split
from tests.agents import agents_in_threads
from tests.distributed.shards import HERE, SECRET, THERE, Client, resolved, shard_server
from tests.distributed.strangers import (
    ALERT_BYTES,
    CHALLENGE_BYTES,
    HELLO_BYTES,
    PROOF_BYTES,
    Between,
    Initiator,
    another_user,
    connected,
    places_of,
)  # fmt: skip
from tests.together import together

Array = np.ndarray[Any, Any]
SECONDS = 20.0  # the bound of waits that end much earlier


# -- another user --------------------------------------------------------------------------------------------

RUNS: dict[str, dict[str, Any]] = {
    "allreduce": {"distributed": d5.optimizers.AllreduceSGD},
    "servers": {"distributed": d5.optimizers.ParameterServerSGD(), "servers": d5.Servers(shards=2)},
    "gossip": {"distributed": d5.optimizers.ADPSGD()},
}


def trained(values: dict[str, Any], attacked: bool) -> tuple[Array, list[str], int]:
    """All agents' parameters at the end (agents, n); what an attacker learnt, and how often it tried."""
    data = load_dataset("digits")
    train = Split(data.train.inputs[:400], data.train.labels[:400])
    wanted = Experiment(
        model="lenet", dataset="digits", optimizer=d5.optimizers.SGD(0.05), agents=2, batch_size=8, seed=3,
        evaluate=False, timeout_seconds=60.0, **values,
    )  # fmt: skip
    learnt: list[str] = []
    rounds = 1
    before = places_of(os.getpid())  # of what else this process does, such as being a client of Ray
    with ExitStack() as stack:
        agents, _ = stack.enter_context(agents_in_threads(wanted, replace(data, train=train)))
        attacker = None
        if attacked:
            attacker = stack.enter_context(another_user(agents[0].run_id, os.getpid()))
            places = [place for place in places_of(os.getpid()) if place not in before]
            assert places
            attacker.tell(places)
            assert attacker.said() == "ready"
        outcomes = together(lambda rank: agents[rank].train(60), 2, 120)
        if attacker is not None:
            attacker.tell("stop")
            learnt, rounds = attacker.said()
        assert [outcome.status for outcome in outcomes] == ["completed"] * 2, outcomes
        found = np.stack(
            [np.concatenate([p.ravel() for p in agent.parameters().values()]) for agent in agents]
        )
    return found, learnt, rounds


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
@pytest.mark.parametrize("kind", RUNS)
def test_another_user_learns_and_changes_nothing(kind: str) -> None:
    """Who knows all that /proc, /dev/shm, ports and names show, and the protocol: it hears nothing but the
    challenges that any hello over TCP gets, opens nothing, and the run ends as if it had not been there; to
    the last bit, where the agents wait for each other."""
    found, learnt, rounds = trained(RUNS[kind], attacked=True)
    assert learnt == []
    assert rounds > 0
    if kind == "gossip":
        assert np.isfinite(found).all()
        assert np.abs(found[0] - found[1]).max() < 1
    else:
        np.testing.assert_array_equal(found, trained(RUNS[kind], attacked=False)[0])


# -- sockets of every kind -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A socket of a run: where it is, what its clients claim, and an honest client's work over it."""

    place: tuple[str, Any]
    claim: Claim
    secret: Secret
    work: Callable[[], None]

    def proved(self) -> Wire:
        """A connection that has proved itself."""
        apart = True if self.claim.purpose == PURPOSE else None
        return initiate(connected(self.place), self.secret, self.claim, SECONDS, apart=apart)


@contextmanager
def at_rendezvous() -> Iterator[Target]:
    rendezvous = Rendezvous()
    store = rendezvous.address
    numbers = iter(range(10**6))

    def work() -> None:
        name = f"work-{next(numbers)}"
        members = [Membership(Group(name, 0, rank, 2, store)) for rank in range(2)]
        members[0].put("key", b"value")
        assert members[1].take("key") == b"value"
        for member in members:
            member.leave()

    try:
        yield Target(("tcp", (store.host, store.port)), Claim(PURPOSE, "fuzz/0", 0), store.secret, work)
    finally:
        rendezvous.close()


def _place(address: Address, near: bool) -> tuple[str, Any]:
    return ("unix", address.local) if near else ("tcp", (address.host, address.port))


@contextmanager
def at_server(near: bool) -> Iterator[Target]:
    server = shard_server(resolved(), range(2))
    x = np.linspace(0.0, 1.0, 20)
    client = Client([server.address], 0, x, node=HERE if near else THERE)
    client.begin(x)

    def work() -> None:
        before = client.pull()
        np.testing.assert_array_equal(client.push_pull(np.ones(20)), before - 0.1)

    claim = Claim(requests.PURPOSE, server.address.identity, 1)
    try:
        yield Target(_place(server.address, near), claim, SECRET, work)
    finally:
        client.server.close()
        server.close()


@contextmanager
def at_gossip(near: bool) -> Iterator[Target]:
    store = Store("127.0.0.1", 1, SECRET)  # where nobody listens
    nodes = ("a", "a", "a") if near else ("a", "b", "c")
    groups = [Group("fuzz", 0, rank, 3, store, nodes=nodes, timeout_seconds=SECONDS) for rank in range(3)]
    agents: list[RemotePeers] = []
    for group in groups[:2]:
        known = {0: agents[0].address} if agents else {}
        agents.append(RemotePeers(np.arange(20.0), Absent(group, d5.topologies.Complete(3)), known))
    agents[0].admit(1, agents[1].address)

    def work() -> None:
        agents[0].average(1)
        agents[1].average(0)
        assert not agents[0].gone and not agents[1].gone
        agents[0].send(1, np.arange(3.0))
        agents[0].drain()
        assert any(message.source == 0 for message in agents[1].receive())

    address = agents[1].address
    try:
        yield Target(_place(address, near), Claim(gossip.PURPOSE, address.identity, 2, 1), SECRET, work)
    finally:
        for agent in agents:
            agent.close()


TARGETS: dict[str, Callable[[], Any]] = {
    "rendezvous": at_rendezvous,
    "server, TCP": lambda: at_server(near=False),
    "server, Unix": lambda: at_server(near=True),
    "gossip, TCP": lambda: at_gossip(near=False),
    "gossip, Unix": lambda: at_gossip(near=True),
}


def told(connection: socket.socket, *pieces: bytes) -> bytes:
    """What comes back for these bytes until the other end closes."""
    heard = b""
    with connection, quick_to_close():
        for piece in pieces:
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(4096):
            heard += piece
    return heard


@contextmanager
def quick_to_close() -> Iterator[None]:
    """The other end may close the connection at any time in the block; it must not leave it open."""
    try:
        yield
    except TimeoutError:
        raise
    except OSError:
        pass


# -- the handshake -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TARGETS)
def test_a_handshake_that_was_recorded_opens_nothing(kind: str) -> None:
    """Replayed whole, cut short at every length, its messages exchanged, or sent back to where they came
    from: the socket says at most what any hello is answered with, and why; honest clients are served."""
    answered = CHALLENGE_BYTES + ALERT_BYTES
    with TARGETS[kind]() as target:
        initiator = Initiator(target.secret, target.claim)
        with connected(target.place) as connection:
            connection.sendall(initiator.hello)
            challenge = connection.recv(CHALLENGE_BYTES, socket.MSG_WAITALL)
            proof = initiator.prove(challenge)
            connection.sendall(proof)
        assert len(told(connected(target.place), initiator.hello + proof)) <= answered
        assert len(told(connected(target.place), proof + initiator.hello)) <= ALERT_BYTES
        for cut in (*range(0, HELLO_BYTES, 40), HELLO_BYTES - 1):
            assert len(told(connected(target.place), initiator.hello[:cut])) <= ALERT_BYTES
        for cut in (0, 1, len(proof) - 1):
            assert len(told(connected(target.place), initiator.hello + proof[:cut])) <= answered
        with connected(target.place) as first, connected(target.place) as second:
            for each in (first, second):
                each.sendall(initiator.hello)
            own = [each.recv(CHALLENGE_BYTES, socket.MSG_WAITALL) for each in (first, second)]
            assert own[0] != own[1] != challenge  # nobody can know what will be asked
            for each, other in ((first, own[1]), (second, own[0])):
                each.sendall(other[-PROOF_BYTES:])
            for each in (first, second):
                with suppress(ConnectionError):
                    assert len(each.recv(1000)) <= ALERT_BYTES
        target.work()


@pytest.mark.full
@pytest.mark.parametrize("kind", TARGETS)
def test_who_sends_a_byte_now_and_then_has_one_deadline(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake that goes on for ever, byte by byte, ends when its time is over, and not later."""
    for module in (listener, d5ray.distributed.group.rendezvous):
        monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 1.0)
    with TARGETS[kind]() as target:
        hello = Initiator(target.secret, target.claim).hello
        begin = time.monotonic()
        with connected(target.place) as connection, suppress(ConnectionError):
            for byte in hello:
                connection.sendall(bytes([byte]))
                time.sleep(0.1)
        assert 0.5 < time.monotonic() - begin < 0.1 * HELLO_BYTES
        target.work()


# -- nonsense ------------------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-3, 30), st.sampled_from([160, 20, 2**31, 2**63 - 1, -(2**63), 2**40]), st.integers(0, 4096)
)
KINDS = st.one_of(st.integers(-1, 45), st.integers(-(2**31), 2**31 - 1))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
REQUESTS = st.one_of(
    st.tuples(st.sampled_from(["put", "take", "failed", "leave", "enter", "value"]), JSON, JSON, JSON),
    st.tuples(st.sampled_from(["put", "failed"]), st.text(max_size=5), st.text(max_size=5)),
    JSON,
)
FRAMES = st.lists(
    st.tuples(KINDS, st.lists(NUMBERS, max_size=frames.NUMBERS), st.binary(max_size=200)),
    min_size=1,
    max_size=3,
)
INTRODUCTIONS = st.one_of(
    st.just(b"{}"),
    st.just(b'{"dtype": "float64", "elements": 20}'),
    st.builds(
        lambda dtype, elements: json.dumps({"dtype": dtype, "elements": elements}).encode(),
        st.one_of(st.sampled_from(["float32", "object", "S9", "float64"]), JSON),
        st.one_of(st.sampled_from([0, -1, 20, 2**62]), JSON),
    ),
    st.binary(max_size=100),
)


def ended(wire: Wire) -> None:
    """Return when the other end has closed, and has said what it wanted to say."""
    with closing(wire), quick_to_close():
        socket.socket.shutdown(wire.socket, socket.SHUT_WR)
        while wire.fill(bytearray(1), may_end=True):
            pass


def fuzz_before(target: Target, examples: int) -> None:
    """Bytes that nobody has proved anything for."""
    hello = Initiator(target.secret, target.claim).hello

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.one_of(
        st.binary(max_size=300),
        st.tuples(st.integers(0, HELLO_BYTES), st.binary(max_size=100)).map(lambda x: hello[: x[0]] + x[1]),
        st.binary(min_size=PROOF_BYTES, max_size=2 * PROOF_BYTES).map(lambda proof: hello + proof),
    ))  # fmt: skip
    def fuzz(words: bytes) -> None:
        heard = told(connected(target.place), words)
        assert len(heard) <= CHALLENGE_BYTES + ALERT_BYTES

    fuzz()


def fuzz_after(target: Target, examples: int) -> None:
    """Frames of a member that is wrong: over its wire, and then not even that."""
    at_rendezvous = target.claim.purpose == PURPOSE
    own: Any = st.lists(REQUESTS, max_size=3) if at_rendezvous else st.tuples(INTRODUCTIONS, FRAMES)
    speak: Callable[..., None] = _enters if at_rendezvous else _asks

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.booleans(), st.binary(max_size=200), own)
    def fuzz(flag: bool, rest: bytes, said: Any) -> None:
        wire = target.proved()
        with quick_to_close(), suppress(D5Error):
            speak(wire, flag, said)
            wire.send(rest)
            socket.socket.send(wire.socket, rest)  # beside TLS
        ended(wire)

    fuzz()


def _enters(wire: Wire, enters: bool, requests: list[Any]) -> None:
    if enters:
        wire.send(framed(["enter", "fuzz/0", 0, 2]))
    for request in requests:
        words: Any = list(request) if isinstance(request, tuple) else request
        wire.send(framed(words))


def _asks(wire: Wire, waits: bool, said: tuple[bytes, list[Any]]) -> None:
    introduction, sent = said
    stream = FrameStream(wire)
    stream.send(HELLO, (0,), np.frombuffer(introduction, np.uint8))
    if waits:
        stream.receive(0)
    for kind, numbers, payload in sent:
        stream.send(kind, tuple(numbers), np.frombuffer(payload, np.uint8))


@pytest.mark.parametrize("examples", [100, pytest.param(5_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fuzz", [fuzz_before, fuzz_after])
@pytest.mark.parametrize("kind", TARGETS)
def test_nonsense_ends_its_connection_alone(
    kind: str, fuzz: Callable[[Target, int], None], examples: int
) -> None:
    """Whatever comes, from a stranger or from a member that is wrong: honest clients are served before and
    after, and no thread is left."""
    threads = threading.active_count()
    with TARGETS[kind]() as target:
        target.work()
        fuzz(target, examples)
        target.work()
    deadline = time.monotonic() + SECONDS
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= threads


# -- on the way ----------------------------------------------------------------------------------------------


TURNS = 7


def pushed(encrypted: bool) -> tuple[Array, bytes]:
    """What is pulled after some pushes over another's wire, and all that was heard there."""
    server = shard_server(resolved(), range(1), encrypted=encrypted)
    x = np.random.default_rng(5).standard_normal(3000)
    with closing(Between(server.address.host, server.address.port)) as between:
        client = RemoteServer(
            [replace(server.address, port=between.port, local="")], rank=0, elements=len(x),
            dtype="float64", node=THERE, secret=SECRET, seconds=SECONDS, encrypted=encrypted,
        )  # fmt: skip
        try:
            client.begin(x)
            found = np.empty_like(x)
            for turn in range(TURNS):
                client.push_pull(np.full(len(x), 1.5 + turn), into=found)
        finally:
            client.close()
            server.close()
        return found, b"".join(map(bytes, between.heard))


@pytest.fixture
def leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of this machine are taken for those of several."""
    monkeypatch.setattr(proof, "leaves_machine", lambda connection: connection.family != socket.AF_UNIX)


@pytest.mark.usefixtures("leaves")
@pytest.mark.parametrize("encrypted", [False, True])
def test_what_leaves_the_machine_is_what_arrives(encrypted: bool) -> None:
    """The same parameters as without protection, to the last bit; who hears all reads the gradients unless
    they are encrypted."""
    found, heard = pushed(encrypted)
    x = np.random.default_rng(5).standard_normal(3000)
    for turn in range(TURNS):
        x -= 0.1 * np.full(3000, 1.5 + turn)
    np.testing.assert_array_equal(found, x)
    assert (np.full(100, 2.5).tobytes() in heard) == (not encrypted)
    assert SECRET.reveal().encode() not in heard and bytes.fromhex(SECRET.reveal()) not in heard


@pytest.mark.usefixtures("leaves")
def test_who_wants_encryption_and_who_does_not_do_not_understand_each_other() -> None:
    """Nothing is sent in the clear because one end was not told."""
    server = shard_server(resolved(), range(1), encrypted=True)
    client = RemoteServer(
        [server.address], rank=0, elements=9, dtype="float64", node=THERE, secret=SECRET, seconds=1.0,
        encrypted=False,
    )  # fmt: skip
    try:
        with pytest.raises(PeerLost):
            client.begin(np.zeros(9))
        assert server.parameters() is None
    finally:
        client.close()
        server.close()


# -- code ----------------------------------------------------------------------------------------------------

CODE = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "joblib", "jsonpickle", "_pickle"}
CALLS = {"eval", "exec", "compile", "__import__"}
LEVEL_3 = sorted(Path(d5ray.distributed.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", LEVEL_3, ids=lambda path: path.stem)
def test_no_module_of_level_3_makes_code_of_bytes(path: Path) -> None:
    """None imports a pickler, calls one by another name, or lets NumPy or PyTorch use one."""
    for node in ast.walk(ast.parse(path.read_text())):
        named: list[object] = []
        if isinstance(node, ast.Import):
            named = [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            named = [(node.module or "").partition(".")[0], *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            named = [node.attr]
        elif isinstance(node, ast.Constant):
            named = [node.value]
        assert not CODE.intersection(word for word in named if isinstance(word, str)), ast.dump(node)
        if isinstance(node, ast.Call):
            assert "allow_pickle" not in {keyword.arg for keyword in node.keywords}
            called = getattr(node.func, "id", "")
            assert called not in CALLS, f"{path} calls {called}"
            loads = isinstance(node.func, ast.Attribute) and node.func.attr == "load"
            assert not loads or getattr(node.func.value, "id", "") not in ("np", "numpy", "torch")  # type: ignore[attr-defined]
