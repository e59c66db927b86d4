"""Claims about parameter servers in other processes: what a shard answers, who waits, and what failures do"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import final

import numpy as np
import pytest

import d5ray as d5
from d5ray.distributed.communicators.point_to_point.collectives import parts
from d5ray.distributed.compression.compressor import Compressor
from d5ray.distributed.parameter_server.consistency import (
    Asynchronous,
    Consistency,
    StaleSynchronous,
    Synchronous,
)
from d5ray.distributed.parameter_server.requests import Request
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.parameter_server.server_rules import (
    DelayCompensated,
    Elastic,
    ServerRule,
    ShardContents,
    StalenessAware,
)
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.parameter_server.shard_service import ShardServer
from d5ray.distributed.rpc.dtypes import numpy_dtype
from d5ray.distributed.rpc.service import Address
from d5ray.errors import AgentError, ConfigurationError, PeerLost
from d5ray.training.optimizers.gradient_descent import SGD, Momentum, Nesterov
from d5ray.training.optimizers.optimizer import Optimizer
from tests.conftest import wait_until
from tests.distributed.leftovers import shared_memory
from tests.distributed.shards import (
    HERE,
    SECONDS,
    THERE,
    Array,
    Client,
    Done,
    check_against_local_shards,
    clients,
    random_work,
    resolved,
    shard_server,
    shards,
)
from tests.patience import patience
from tests.together import NOTICED_SECONDS, noticed, together

pytestmark = pytest.mark.usefixtures("leaves_nothing")

NODES = [HERE, THERE]
SIZE = 1001  # parameters


def start(dtype: str = "float64", size: int = SIZE) -> Array:
    """x₀ (size,)."""
    return np.random.default_rng([size, 1]).standard_normal(size).astype(numpy_dtype(dtype))


def vectors(*shape: int, dtype: str = "float64", seed: int = 5) -> Array:
    """Different everywhere (…, SIZE)."""
    return np.random.default_rng([seed, *shape]).standard_normal((*shape, SIZE)).astype(dtype)


def of_all(agents: Sequence[Client]) -> list[Done]:
    return [done for agent in agents for done in agent.done]


# -- what a shard answers ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Servers, and what agents ask of them."""

    consistency: Consistency
    rule: ServerRule | None = None
    base: Optimizer = field(default_factory=lambda: Momentum(0.1, 0.9))
    shards: int = 1
    dtype: str = "float64"
    kinds: tuple[str, ...] = ("push", "pull", "push_pull")


BOTH = ("pull", "push_pull")
CASES = {
    "asynchronous": Case(Asynchronous()),
    "asynchronous, 2 shards": Case(Asynchronous(), StalenessAware(), shards=2, dtype="float32"),
    "asynchronous, 3 shards": Case(Asynchronous(), DelayCompensated(0.3, 0.9), shards=3, dtype="float32"),
    "stale-synchronous": Case(StaleSynchronous(1), base=Nesterov(0.1, 0.9), shards=2),
    "synchronous": Case(Synchronous(), shards=3, dtype="float32"),
    "elastic": Case(Asynchronous(), Elastic(0.2), SGD(0.1), shards=2, kinds=BOTH),
    "synchronous elastic": Case(Synchronous(), Elastic(0.2), SGD(0.1), kinds=BOTH),
    "bfloat16": Case(Asynchronous(), base=SGD(0.1), shards=2, dtype="bfloat16"),
}


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("name", CASES)
def test_servers_answer_as_one_local_shard_in_the_order_they_took(name: str, node: str) -> None:
    """Three agents at once, with arrays that were allocated and others: replies and reads, bit for bit."""
    case = CASES[name]
    how = resolved(case.consistency, case.rule, case.base)
    x = start(case.dtype)
    with shards(how, 3, case.shards) as servers, clients(addresses_of(servers), 3, x, node=node) as agents:
        together(lambda rank: random_work(agents[rank], 40, case.kinds), 3)
        local = check_against_local_shards(of_all(agents), how, x, range(3), case.shards)
        final = agents[0].pull()
        np.testing.assert_array_equal(final, np.concatenate([shard.x for shard in local]))
        assert not np.array_equal(final, x)


def addresses_of(servers: Sequence[ShardServer]) -> list[Address]:
    return [server.address for server in servers]


@pytest.mark.parametrize("node", NODES)
def test_the_first_parameters_are_those_that_came_first(node: str) -> None:
    """Who pulls before there are any waits for them; later ones are ignored."""
    x = start()
    with shards(resolved(), 2, 2) as servers:
        where = addresses_of(servers)
        agents = [Client(where, rank, x, node=node) for rank in range(2)]
        try:

            def live(rank: int) -> Array:
                if rank == 0:
                    wait_until(lambda: len(servers[0]._service._connections) == 1, SECONDS)
                    agents[0].begin(x)
                    agents[0].begin(x + 1)
                return agents[rank].pull()

            for read in together(live, 2):
                np.testing.assert_array_equal(read, x)
        finally:
            for agent in agents:
                agent.server.close()


# -- in the background ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", NODES)
def test_operations_in_the_background_are_done_in_their_order(node: str) -> None:
    """Started one after the other, waited for in any order; the vector may change at once, and what is called
    meanwhile comes behind: as if each had been waited for."""
    how, x = resolved(base=Momentum(0.1, 0.9)), start("float32")
    gs = vectors(2, 8, dtype="float32")
    with shards(how, 2, 2) as servers, clients(addresses_of(servers), 2, x, node=node) as agents:

        def live(rank: int) -> None:
            agent, background = agents[rank], agents[rank].server.start
            vector, into = agent.fast
            handles = []
            for g in gs[rank, :5]:
                vector[:] = g
                handles.append(background.push(vector))
                vector[:] = np.nan
            read, both = np.zeros_like(into), np.zeros_like(into)
            handles += [background.pull(read), background.push_pull(gs[rank, 5].copy(), both)]
            vector[:] = gs[rank, 6]
            agent.server.push(vector)
            for handle in reversed(handles):
                handle.wait()
            for g in gs[rank, :5]:
                agent.keep("push", g, None)
            agent.keep("pull", None, read)
            agent.keep("push_pull", gs[rank, 5], both)
            agent.keep("push", gs[rank, 6], None)
            agent.pull()

        together(live, 2)
        check_against_local_shards(of_all(agents), how, x, range(2), 2)
        for agent in agents:
            for number in range(2):
                orders = [done.replies[number].order for done in agent.done]
                assert orders == sorted(orders)


def test_an_error_in_the_background_is_raised_by_who_waits() -> None:
    """The server ends while it holds two rounds: both handles give `PeerLost`, and in time."""
    with (
        shards(resolved(Synchronous()), 2) as servers,
        clients(addresses_of(servers), 1, start(), seconds=0.5) as (agent,),
    ):
        handles = [agent.server.start.push(g) for g in vectors(2)]
        servers[0].close()
        begin = time.monotonic()
        for handle in handles:
            with pytest.raises(PeerLost):
                handle.wait(SECONDS)
        assert time.monotonic() - begin < patience(2 * NOTICED_SECONDS)


# -- compressed ----------------------------------------------------------------------------------------------

COMPRESSORS: dict[str, Compressor] = {
    "top-k": d5.compression.TopK(0.05), "random-k": d5.compression.RandomK(0.2),
    "QSGD": d5.compression.QSGD(bits=4), "TernGrad": d5.compression.TernGrad(),
    "float16": d5.compression.Float16(), "1-bit": d5.compression.OneBit(),
}  # fmt: skip


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize(("name", "dtype"), [*zip(COMPRESSORS, ["float32", "float64"] * 3, strict=True)])
def test_compressed_pushes_are_what_the_agent_would_have_decompressed(
    name: str, dtype: str, node: str
) -> None:
    """Slice by slice, with each agent's own generator and memory e: C(g + e), e ← g + e − C(g + e).

    All in the type of the parameters: its rounding alone is between the server and the oracle.
    """
    compressor = COMPRESSORS[name]
    how, x = resolved(), start(dtype)
    gs = vectors(2, 6, dtype=dtype)
    with shards(how, 2, 2) as servers, clients(addresses_of(servers), 2, x, node=node) as agents:

        def live(rank: int) -> int:
            agents[rank].server.compress(compressor)
            for g in gs[rank]:
                agents[rank].push(g)
            return agents[rank].server.traffic.bytes_sent

        sent = together(live, 2)
        found = agents[0].pull()
    total = np.zeros_like(x, dtype=np.float64)
    for rank in range(2):
        rng, error, size = np.random.default_rng([rank, 0xC0]), np.zeros_like(x), 0
        for g in gs[rank]:
            for part in parts(SIZE, 2):
                corrected = g[part] + error[part]
                message = compressor.compress(corrected, rng)
                arrived = compressor.decompress(message, len(corrected), x.dtype)
                if compressor.contraction(SIZE) is not None:
                    error[part] = corrected - compressor.sent(corrected, message, arrived)
                total[part] += arrived
                size += message.nbytes
        assert sent[rank] == size
    rounding = 16 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(found, x - 0.1 * total, rtol=0, atol=rounding)
    assert np.abs(total - gs.sum(axis=(0, 1), dtype=np.float64)).max() > 1e-5  # something is lost


def test_what_would_be_lost_for_good_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressor that is biased and no contraction."""
    monkeypatch.setattr(d5.compression.TopK, "contraction", lambda self, n: None)
    with (
        shards(resolved(), 1) as servers,
        clients(addresses_of(servers), 1, start("float32")) as (agent,),
        pytest.raises(ConfigurationError, match="lost for good"),
    ):
        agent.server.compress(d5.compression.TopK(0.05))


# -- traffic and sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("count", [1, 3])
def test_payload_alone_is_counted(node: str, count: int) -> None:
    """A vector's bytes each way, a message a shard, two latencies an operation; in shared memory alike."""
    x, g = start("float32"), vectors(1, dtype="float32")[0]
    with shards(resolved(), 1, count) as servers, clients(addresses_of(servers), 1, x, node=node) as (agent,):
        expected = np.zeros(5, int)
        for kind, sent, received in (
            ("push", 4 * SIZE, 0), ("pull", 0, 4 * SIZE), ("push_pull", 4 * SIZE, 4 * SIZE),
        ):  # fmt: skip
            agent.do(kind, g)
            expected += [sent, received, count, 2, 1]
            moved = agent.server.traffic
            assert [
                moved.bytes_sent, moved.bytes_received, moved.messages_sent, moved.rounds, moved.operations,
            ] == list(expected)  # fmt: skip
        assert 0 < moved.nanoseconds < SECONDS * 1e9


@pytest.mark.parametrize("node", NODES)
def test_arrays_of_other_sizes_are_refused(node: str) -> None:
    """With both sizes named; nothing is sent, and the next operation is the first."""
    x = start()
    with shards(resolved(), 1) as servers, clients(addresses_of(servers), 1, x, node=node) as (agent,):
        server = agent.server
        for call in (
            lambda: server.push(np.zeros(SIZE - 1)),
            lambda: server.pull(into=np.zeros(SIZE + 1)),
            lambda: server.push_pull(np.zeros(SIZE), into=np.zeros((2, SIZE))),
            lambda: server.start.push(np.zeros(0)),
        ):
            with pytest.raises(ConfigurationError, match=r"array of shape \(\d*,\).*1,001 parameters"):
                call()
        np.testing.assert_array_equal(agent.pull(), x)
        assert agent.done[0].replies[0].order == 0


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("odd", [start(size=SIZE - 1), start("float32"), start(size=2 * SIZE)])
def test_an_agent_with_another_model_is_told_so(node: str, odd: Array) -> None:
    """Other sizes or another type than the shard's: an error that names both, and nothing is changed."""
    x = start()
    with shards(resolved(), 2) as servers, clients(addresses_of(servers), 1, x, node=node) as (agent,):
        stranger = Client(addresses_of(servers), 1, odd, node=node)
        try:
            for kind in ("push", "pull", "push_pull"):
                with pytest.raises(AgentError, match=rf"{SIZE:,} × float64.*{len(odd):,} × {odd.dtype}"):
                    stranger.do(kind, odd)
        finally:
            stranger.server.close()
        np.testing.assert_array_equal(agent.push_pull(np.ones_like(x)), x - 0.1)


@final
@dataclass(frozen=True)
class Wrong(ServerRule):
    """A user's rule with a mistake in it."""

    def update(self, held: ShardContents, pushes: Sequence[Request]) -> None:
        held.x /= len(held.own["no such thing"])


@pytest.mark.parametrize("node", NODES)
def test_an_error_in_a_rule_is_raised_at_the_agent(node: str) -> None:
    """At once, and with the place of the mistake, in the foreground and in the background."""
    x = start()
    with (
        shards(resolved(rule=Wrong()), 1, 2) as servers,
        clients(addresses_of(servers), 1, x, node=node) as (agent,),
    ):
        with noticed():
            for call in (lambda: agent.push(x), lambda: agent.server.start.push(x).wait()):
                with pytest.raises(AgentError, match=r"(?s)len\(held.own.*KeyError: 'no such thing'"):
                    call()
        read = np.zeros_like(x)
        agent.server.pull(into=read)
        np.testing.assert_array_equal(read, x)


# -- agents that die -----------------------------------------------------------------------------------------


def test_an_agent_that_closes_its_server_leaves_it() -> None:
    """The two others, who wait for its push, go on at once."""
    x, gs = start(), vectors(3)
    with shards(resolved(Synchronous()), 3) as servers, clients(addresses_of(servers), 3, x) as agents:
        agents[2].pull()

        def leave() -> None:
            wait_until(lambda: servers[0].standing()[0] == 2, SECONDS)
            agents[2].server.close()

        *read, _ = together(lambda rank: leave() if rank == 2 else agents[rank].push_pull(gs[rank]), 3)
        for found in read:
            np.testing.assert_array_equal(found, x - 0.1 * ((gs[0] + gs[1]) / 2))


def test_nothing_is_kept_of_clients_that_have_gone() -> None:
    """Fifty come and go, near and far: afterwards no memory of theirs is mapped here, no thread is theirs."""
    x, before = start(), shared_memory()
    with shards(resolved(), 1) as servers:
        for number in range(50):
            with clients(addresses_of(servers), 1, x, node=NODES[number % 2]) as (agent,):
                agent.pull()
        wait_until(lambda: not servers[0]._service._connections, NOTICED_SECONDS)
        del agent
        wait_until(lambda: shared_memory() == before, NOTICED_SECONDS, lambda: str(shared_memory()))


# -- servers that die ----------------------------------------------------------------------------------------


def replaced(old: ShardServer, how: ResolvedServers, members: int, stack: ExitStack) -> ShardServer:
    """Another server, which goes on where the old one was; the old one is closed."""
    state = old.state()
    old.close()
    assert state is not None
    new = shard_server(how, range(members))
    stack.callback(new.close)
    new.restore(state)
    return new


class Stalling(ServerRule):
    """x ← x − η g, and after the second update it stays in it until it is told to go on."""

    def __init__(self) -> None:
        self.updates, self.inside, self.on = 0, threading.Event(), threading.Event()

    def update(self, held: ShardContents, pushes: Sequence[Request]) -> None:
        (push,) = pushes
        assert push.vector is not None
        held.x -= 0.1 * push.vector
        self.updates += 1
        if self.updates == 2:
            self.inside.set()
            assert self.on.wait(SECONDS)


@pytest.mark.full
@pytest.mark.parametrize(("node", "known"), [(HERE, True), (HERE, False), (THERE, True)])
def test_a_push_whose_reply_was_lost_counts_once(node: str, known: bool) -> None:
    """The server dies when the push is part of x and nobody was told. The agent asks again where its state is
    restored: that knows the push and says that it was a repetition; or is older, and applies what was pushed,
    though the old one had written its answer already. Either way the agent reads the same."""
    rule = Stalling()
    how, x, gs = resolved(rule=rule), start(), vectors(3)
    with (
        ExitStack() as stack,
        shards(how, 1) as servers,
        clients(addresses_of(servers), 1, x, node=node) as (agent,),
    ):
        agent.push(gs[0])
        before = servers[0].state()

        def replace() -> None:
            assert rule.inside.wait(SECONDS)
            servers[0].close()
            rule.on.set()
            new = replaced(servers[0], how, 1, stack)
            if not known:
                assert before is not None
                new.restore(before)
            agent.server.reroute(0, new.address)

        read = together(lambda rank: replace() if rank else agent.push_pull(gs[1]), 2)[0]
        assert [done.replies[0].applied for done in agent.done] == [True, not known]
        assert agent.done[1].replies[0].version == 2
        expected = x - 0.1 * gs[0] - 0.1 * gs[1]
        assert read is not None
        np.testing.assert_array_equal(read, expected)
        np.testing.assert_array_equal(agent.push_pull(gs[2]), expected - 0.1 * gs[2])
        assert rule.updates == 3 + (not known)


@pytest.mark.full
@pytest.mark.parametrize("node", NODES)
def test_a_server_that_never_comes_back_is_not_waited_for_for_ever(node: str) -> None:
    """One of two shards ends: `PeerLost` after the time-out, and as well for the next operation; restored,
    it serves the one after, and the other shard, which heard all of them, has each push once."""
    how, x, gs = resolved(), start(), vectors(3)
    with (
        ExitStack() as stack,
        shards(how, 1, 2) as servers,
        clients(addresses_of(servers), 1, x, node=node, seconds=0.5) as (agent,),
    ):
        servers[0].close()
        for g in gs[:2]:
            with noticed(0.4), pytest.raises(PeerLost, match="did not answer"):
                agent.server.push(g)
        agent.server.reroute(0, replaced(servers[0], how, 1, stack).address)
        agent.server.push(gs[2])
        read = np.zeros_like(x)
        agent.server.pull(into=read)
        first, second = parts(SIZE, 2)
        np.testing.assert_array_equal(read[first], (x - 0.1 * gs[2])[first])
        np.testing.assert_array_equal(read[second], (x - 0.1 * gs[0] - 0.1 * gs[1] - 0.1 * gs[2])[second])


# -- groups of agents ----------------------------------------------------------------------------------------

GROUPS = 2


@contextmanager
def grouped(how: ResolvedServers, x: Array, node: str) -> Iterator[list[Client]]:
    """Five agents, two of a group and three of another, whose servers send on to a root; x at first."""
    with ExitStack() as stack:
        (root,) = stack.enter_context(shards(how, GROUPS))
        groups = [shard_server(how, how.servers.members(group, 5), group=group) for group in range(GROUPS)]
        for server in groups:
            stack.callback(server.close)
            server.relay_to(root.address)
        agents = []
        for rank in range(5):
            address = groups[how.servers.group_of(rank, 5)].address
            agents.append(Client([address], rank, x, node=node))
            stack.callback(agents[-1].server.close)
        for first in (0, 2):
            agents[first].begin(x)
        yield agents


@pytest.mark.parametrize("node", NODES)
def test_asynchronous_groups_push_their_means_in_the_order_of_the_root(node: str) -> None:
    """Within a group synchronous, above asynchronous: what each push became is told, and a momentum in NumPy
    over the groups' means in that order gives each group what it read, bit for bit."""
    base = Momentum(0.1, 0.9)
    how, x = resolved(base=base, servers=Servers(groups=GROUPS)), start("float32")
    gs = vectors(8, 5, dtype="float32")
    with grouped(how, x, node) as agents:
        read = together(lambda rank: [agents[rank].push_pull(g[rank]) for g in gs], 5)
        replies = [[done.replies[0] for done in agent.done] for agent in agents]
    came = []  # order at the root, group, round
    for group, members in enumerate((range(2), range(2, 5))):
        for step in range(8):
            (place,) = {(replies[rank][step].above, replies[rank][step].round) for rank in members}
            assert place[1] == step + 1
            came.append((place[0], group, step))
    assert [order for order, _, _ in sorted(came)] == list(range(16))
    own, state = x.copy(), base.state(x)
    for version, (_, group, step) in enumerate(sorted(came), start=1):
        members = range(2) if group == 0 else range(2, 5)
        total = gs[step, members[0]] + gs[step, members[1]]
        for rank in members[2:]:
            total += gs[step, rank]
        base.update(own, total / np.float32(len(members)), state)
        for rank in members:
            np.testing.assert_array_equal(read[rank][step], own)
            assert replies[rank][step].version == version
