"""Claims about servers that are killed at seeded moments: every acknowledged push counts, and counts once"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from d5ray.distributed.parameter_server.consistency import (
    Asynchronous,
    Consistency,
    StaleSynchronous,
    Synchronous,
)
from d5ray.distributed.parameter_server.replication import ShardCopy
from d5ray.distributed.parameter_server.requests import Request
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.parameter_server.server_rules import (
    DelayCompensated,
    DelayedNesterov,
    Elastic,
    ServerRule,
)
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.parameter_server.shard import Shard
from d5ray.distributed.rpc.service import Address
from d5ray.training.optimizers.adam import Adam
from d5ray.training.optimizers.gradient_descent import SGD, Momentum, Nesterov
from d5ray.training.optimizers.optimizer import Optimizer
from tests.conftest import wait_until
from tests.distributed.elsewhere import elsewhere
from tests.distributed.shards import HERE, SECRET, THERE, Array, Client, resolved, shard_server
from tests.patience import patience
from tests.together import together

pytestmark = pytest.mark.usefixtures("leaves_nothing")

SIZE = 1001
RATE = 2.0**-6  # so that sums of whole numbers are exact


class Process:
    """A server, and the copy that it holds of another one."""

    def __init__(self, how: ResolvedServers, agents: int, group: int | None) -> None:
        self.how, self.agents = how, agents
        self.server = shard_server(how, how.members(group, agents), group=group)

    def hold(self, group: int | None) -> Address:
        members = self.how.members(group, self.agents)
        self.copy = ShardCopy(
            lambda x: self.how.shard(x, group, members), secret=SECRET, node=HERE, host="127.0.0.1"
        )
        return self.copy.address

    def address(self) -> Address:
        return self.server.address

    def copied(self) -> Any:
        return self.copy.state()


def lives(pipe: Any, how: ResolvedServers, agents: int, group: int | None) -> None:
    """A server in a process of its own, which is called over a pipe."""
    process = Process(how, agents, group)
    while True:
        method, given = pipe.recv()
        pipe.send(getattr(process if hasattr(process, method) else process.server, method)(*given))


@dataclass
class Ring:
    """Servers in processes, each with a copy of the one before; without groups the second only holds one."""

    how: ResolvedServers
    agents: int
    stack: ExitStack
    groups: list[int | None] = field(default_factory=lambda: [None, None])
    processes: list[Any] = field(default_factory=list)
    addresses: list[Address] = field(default_factory=list)
    holds: list[Address] = field(default_factory=list)

    def call(self, number: int, method: str, *given: Any) -> Any:
        self.processes[number].tell((method, given))
        return self.processes[number].said()

    def start(self, number: int) -> None:
        """Start one, or another in the place of one that died."""
        group = self.groups[number]
        made = self.stack.enter_context(elsewhere(lives, self.how, self.agents, group))
        self.processes[number : number + 1] = [made]
        address, holds = self.call(number, "address"), self.call(number, "hold", self.groups[number - 1])
        if group is not None:
            self.call(number, "relay_to", self.addresses[0])
        self.addresses[number : number + 1], self.holds[number : number + 1] = [address], [holds]

    def copy(self, number: int) -> None:
        self.call(number, "copy_to", self.holds[(number + 1) % len(self.processes)])

    def replace(self, number: int, clients: Sequence[Client]) -> dict[int, int]:
        """Kill one, restore it from its copy, and tell the agents; the last pushes that it has, by agent."""
        self.processes[number].kill()
        last = (number + 1) % len(self.processes)
        state = self.call(last, "copied")
        self.start(number)
        restored = self.call(number, "restore", state, (), ())
        self.copy(number)
        self.copy(number - 1)
        if self.groups[number] is None:
            for other, group in enumerate(self.groups):
                if group is not None:
                    self.call(other, "relay_to", self.addresses[number])
        for client in clients:
            client.server.reroute(0, self.addresses[number])
        return dict(restored.last)


@contextmanager
def ring(how: ResolvedServers, agents: int, groups: Sequence[int | None] = (None, None)) -> Iterator[Ring]:
    with ExitStack() as stack:
        made = Ring(how, agents, stack, list(groups))
        for number in range(len(groups)):
            made.start(number)
        for number in range(len(groups)):
            made.copy(number)
        yield made


@dataclass(frozen=True)
class Case:
    """Agents that push whole numbers, or anything if their order is known; at a server that is killed."""

    consistency: Consistency
    rule: ServerRule | None = None
    base: Optimizer = field(default_factory=lambda: SGD(RATE))
    agents: int = 1
    kind: str = "push_pull"


CASES = {
    "asynchronous": Case(Asynchronous(), agents=3),
    "asynchronous pushes": Case(Asynchronous(), agents=3, kind="push"),
    "stale-synchronous": Case(StaleSynchronous(1), agents=4),
    "synchronous momentum": Case(Synchronous(), base=Momentum(0.1, 0.9), agents=2),
    "Adam": Case(Asynchronous(), base=Adam(0.01)),
    "delay-compensated": Case(Asynchronous(), DelayCompensated(0.3, 0.9), Momentum(0.1, 0.9)),
    "elastic": Case(Asynchronous(), Elastic(0.3)),
    "synchronous elastic": Case(Synchronous(), Elastic(0.3), agents=2),
    "delayed Nesterov": Case(Asynchronous(), DelayedNesterov(3), Nesterov(0.1, 0.9)),
}
ORDERED = {name for name, case in CASES.items() if case.agents == 1 or case.consistency == Synchronous()}


def gradients(agents: int, pushes: int) -> Array:
    """Whole numbers, other ones for each agent and push (agents, pushes, SIZE)."""
    return np.random.default_rng(7).integers(-8, 9, (agents, pushes, SIZE)).astype(np.float64)


def live_through(
    clients: Sequence[Client], kind: str, gs: Array, strike: Callable[[int], None], strikes: int
) -> None:
    """All push what is theirs; meanwhile `strike` is called, at seeded moments."""
    over = threading.Event()
    rng = np.random.default_rng(gs.shape[:2])

    def push(rank: int) -> None:
        try:
            for g in gs[rank]:
                clients[rank].do(kind, g)
                time.sleep(0.002)
        finally:
            over.set()

    def fault() -> None:
        for number in range(strikes):
            if not over.wait(float(rng.uniform(0.02, 0.2))):
                strike(number)

    together(lambda rank: fault() if rank == len(clients) else push(rank), len(clients) + 1)


@pytest.mark.full
@pytest.mark.parametrize(("name", "node"), [*((name, HERE) for name in CASES), ("stale-synchronous", THERE)])
def test_no_acknowledged_push_is_lost_when_servers_are_killed(name: str, node: str) -> None:
    """SIGKILL to the server thrice, and to who holds its copy: the sum of all pushes is the change of the
    parameters, exactly; where the order is known all is as at a server that never died, to the last bit."""
    case = CASES[name]
    how = resolved(case.consistency, case.rule, case.base, Servers(replicas=1))
    gs, x = gradients(case.agents, 150), np.ones(SIZE)
    with ring(how, case.agents) as servers, ExitStack() as stack:
        agents = [Client(servers.addresses[:1], rank, x, node=node) for rank in range(case.agents)]
        for agent in agents:
            stack.callback(agent.server.close)
        agents[0].begin(x)
        for agent in agents:
            agent.pull()  # some rules know what an agent has read
        lost = 0

        def strike(number: int) -> None:
            nonlocal lost
            if number == 1:  # who holds the copy
                servers.processes[1].kill()
                servers.start(1)
                servers.copy(0)
                time.sleep(0.3)
                return
            before = [agent.server.acknowledged[0] for agent in agents]
            last = servers.replace(0, agents)
            lost += sum(max(0, sent - last.get(rank, 0)) for rank, sent in enumerate(before))

        live_through(agents, case.kind, gs, strike, 4)
        assert lost == 0
        assert [agent.server.acknowledged[0] for agent in agents] == [150] * case.agents
        last, (found, version) = servers.call(0, "state")["last"], servers.call(0, "parameters")
    assert last == dict.fromkeys(range(case.agents), 150)
    if name in ORDERED:
        expected = undisturbed(case, how, gs, x)
        np.testing.assert_array_equal(found, expected.x)
        assert version == expected.version
        return
    share = 1 / case.agents if isinstance(case.consistency, StaleSynchronous) else 1.0
    np.testing.assert_array_equal(found, x - RATE * share * gs.sum(axis=(0, 1)))
    assert version == 150 * case.agents


@contextmanager
def two_of(how: ResolvedServers, agents: int) -> Iterator[tuple[Process, Process]]:
    """A server, and another one for its copy, in threads of this process."""
    first, second = Process(how, agents, None), Process(how, agents, None)
    try:
        second.hold(None)
        yield first, second
    finally:
        for each in (first, second):
            each.server.close()
        second.copy.close()


def copy_has(holder: Process, x: Array) -> None:
    """Return when the copy's parameters are these."""

    def equal() -> bool:
        shard = holder.copy._shard
        return shard is not None and np.array_equal(shard.x, x)

    wait_until(equal, 10)


def test_a_push_is_acknowledged_when_the_copy_has_it_and_not_before() -> None:
    """A copy that stands holds the answer up; when it goes on, it has what was answered."""
    how = resolved(Asynchronous(), base=SGD(RATE), servers=Servers(replicas=1))
    (g,), x, answered = gradients(1, 1)[0], np.ones(SIZE), threading.Event()
    with two_of(how, 1) as (process, holder), ExitStack() as stack:
        agent = Client([process.address()], 0, x)
        stack.callback(agent.server.close)
        process.server.copy_to(holder.copy.address)
        agent.begin(x)
        copy_has(holder, x)

        def push() -> None:
            agent.do("push", g)
            agent.server.drain()
            answered.set()

        with holder.copy._idle:  # which it needs to take anything
            thread = threading.Thread(target=push, daemon=True)
            thread.start()
            assert not answered.wait(0.5)
        thread.join(patience(30))
        assert answered.is_set()
        copy_has(holder, x - RATE * g)


def test_a_copy_that_comes_later_waits_for_nobody_who_has_left() -> None:
    """Of two agents that wait for each other one left before: the copy applies the other's pushes alone."""
    how = resolved(Synchronous(), base=SGD(RATE), servers=Servers(replicas=1))
    (g,), x = gradients(1, 1)[0], np.ones(SIZE)
    with two_of(how, 2) as (process, holder), ExitStack() as stack:
        agent = Client([process.address()], 0, x)
        stack.callback(agent.server.close)
        agent.begin(x)
        process.server.leave(1)
        process.server.copy_to(holder.copy.address)
        copy_has(holder, x)
        agent.do("push_pull", g)
        assert process.server.parameters() is not None
        copy_has(holder, process.server.parameters()[0])  # type: ignore[index]
        assert not np.array_equal(process.server.parameters()[0], x)  # type: ignore[index]


def undisturbed(case: Case, how: ResolvedServers, gs: Array, x: Array) -> Shard:
    """A shard that had the same pushes, one of each agent after the other."""
    shard = Shard(x.copy(), how.base, how.rule, how.consistency, range(case.agents))
    for rank in range(case.agents):
        shard.submit(Request(rank, 0, None, np.empty(SIZE), lambda _: None))
    for number in range(gs.shape[1]):
        for rank in range(case.agents):
            shard.submit(Request(rank, number + 1, gs[rank, number].copy(), np.empty(SIZE), lambda _: None))
    return shard


@pytest.mark.full
@pytest.mark.parametrize("victims", [(1,), (0,), (0, 1)], ids=["group", "root", "both in turn"])
def test_groups_lose_nothing_when_their_server_or_the_root_is_killed(victims: tuple[int, ...]) -> None:
    """Two groups of two agents, with momentum at the root, synchronous: as if nobody had died."""
    base = Momentum(RATE, 0.5)
    how = resolved(Synchronous(), base=base, servers=Servers(groups=2, replicas=1))
    gs, x = gradients(4, 80), np.ones(SIZE)
    with ring(how, 4, (None, 0, 1)) as servers, ExitStack() as stack:
        agents = [Client([servers.addresses[1 + rank // 2]], rank, x) for rank in range(4)]
        for agent in agents:
            stack.callback(agent.server.close)
        for first in (0, 2):
            agents[first].begin(x)

        def strike(number: int) -> None:
            victim = victims[number % len(victims)]
            servers.replace(victim, [agent for rank, agent in enumerate(agents) if 1 + rank // 2 == victim])
            time.sleep(0.3)

        live_through(agents, "push_pull", gs, strike, 3)
        found, version = servers.call(0, "parameters")
    own, state = x.copy(), base.state(x)
    for g in np.moveaxis(gs, 1, 0):
        base.update(own, (g[0] + g[1]) / 4 + (g[2] + g[3]) / 4, state)
    np.testing.assert_array_equal(found, own)
    assert version == 80
