"""Claims about one shard of a parameter server, a state machine: its answers depend on the order alone"""

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.distributed.parameter_server.consistency import (
    Asynchronous,
    Consistency,
    StaleSynchronous,
    Synchronous,
)
from d5ray.distributed.parameter_server.requests import Reply, Request
from d5ray.distributed.parameter_server.server_rules import (
    DelayCompensated,
    DelayedNesterov,
    Descend,
    Elastic,
    ServerRule,
    ShardContents,
    StalenessAware,
)
from d5ray.distributed.parameter_server.shard import Shard
from d5ray.errors import ConfigurationError
from d5ray.training.optimizers.gradient_descent import SGD, Momentum, Nesterov
from d5ray.training.optimizers.optimizer import BLOCK, Optimizer

Array = np.ndarray[Any, Any]
SIZE = 5
ETA, MU = 0.1, 0.9
KINDS = ("push", "pull", "push_pull")
BASES: list[Optimizer] = [SGD(ETA), Momentum(ETA, MU), Nesterov(ETA, MU)]
ALL: list[Consistency] = [
    Synchronous(), Synchronous(1), StaleSynchronous(0), StaleSynchronous(2), Asynchronous(),
]  # fmt: skip


# -- agents without a network --------------------------------------------------------------------------------


@final
class Asked:
    """A request of an agent, and what it got."""

    def __init__(self, rank: int, sequence: int, vector: Array | None, reads: bool, size: int) -> None:
        self.rank, self.sequence, self.vector = rank, sequence, vector
        self.into = np.full(size, np.nan) if reads else None
        self.answers = 0
        self.clocks: dict[int, int] = {}  # pushes that all agents had made when the answer came

    @property
    def read(self) -> Array:
        assert self.answers == 1 and self.into is not None
        return self.into

    @property
    def reply(self) -> Reply:
        assert self.answers == 1
        return self.request.reply

    def submit(self, agents: "Agents") -> None:
        vector = None if self.vector is None else self.vector.copy()

        def done(_: Request) -> None:
            self.answers += 1
            self.clocks = dict(agents.pushes)
            agents.answered.append(self)

        self.request = Request(self.rank, self.sequence, vector, self.into, done)
        agents.shard.submit(self.request)


@dataclass
class Agents:
    """The ends of all agents at one shard: they number what they push."""

    shard: Shard
    pushes: Counter[int] = field(default_factory=Counter)  # by rank
    asked: list[Asked] = field(default_factory=list)
    answered: list[Asked] = field(default_factory=list)

    def push(self, rank: int, vector: Array) -> Asked:
        return self._ask(rank, vector, reads=False)

    def pull(self, rank: int) -> Asked:
        return self._ask(rank, None, reads=True)

    def push_pull(self, rank: int, vector: Array) -> Asked:
        return self._ask(rank, vector, reads=True)

    def do(self, kind: str, rank: int, vector: Array) -> Asked:
        return self._ask(rank, vector if "push" in kind else None, reads="pull" in kind)

    def again(self, asked: Asked) -> Asked:
        """The same request once more, as after a lost reply."""
        return self._submit(
            Asked(asked.rank, asked.sequence, asked.vector, asked.into is not None, self.size)
        )

    @property
    def size(self) -> int:
        return len(self.shard.x)

    def _ask(self, rank: int, vector: Array | None, reads: bool) -> Asked:
        self.pushes[rank] += vector is not None
        return self._submit(Asked(rank, self.pushes[rank], vector, reads, self.size))

    def _submit(self, asked: Asked) -> Asked:
        self.asked.append(asked)
        asked.submit(self)
        return asked


def agents_of(
    consistency: Consistency,
    rule: ServerRule | None = None,
    base: Optimizer | None = None,
    members: int = 3,
    x: Array | None = None,
) -> Agents:
    start = start_of(SIZE) if x is None else x
    shard = Shard(start.copy(), base or SGD(ETA), rule or Descend(), consistency, range(members))
    return Agents(shard, Counter(dict.fromkeys(range(members), 0)))


def start_of(size: int) -> Array:
    return np.random.default_rng([size, 1]).standard_normal(size)


def vectors(*shape: int, seed: int = 5) -> Array:
    """Different everywhere (…, SIZE)."""
    return np.random.default_rng([seed, *shape]).standard_normal((*shape, SIZE))


# -- in any order --------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Tally(ServerRule):
    """x counts pushes, each of which is a unit vector of its own: a read shows what it has seen."""

    def update(self, held: ShardContents, pushes: Sequence[Request]) -> None:
        for push in pushes:
            assert push.vector is not None
            held.x += push.vector


@st.composite
def programs(draw: st.DrawFn, equal: bool) -> list[list[str]]:
    """What each of 1 to 5 agents asks, one request after the other; equal: as many pushes of each."""
    count = draw(st.integers(1, 5))
    if not equal:
        return [draw(st.lists(st.sampled_from(KINDS), max_size=6)) for _ in range(count)]
    pushes = draw(st.integers(1, 5))
    given = []
    for _ in range(count):
        program = ["pull"]
        for _ in range(pushes):
            program.append(draw(st.sampled_from(("push", "push_pull"))))
            program += ["pull"] * draw(st.integers(0, 1))
        given.append(program)
    return given


Order = st.randoms(use_true_random=False)


def tallied(
    consistency: Consistency,
    wanted: list[list[str]],
    order: random.Random,
    *,
    leave: bool,
    repeat: float = 0.0,
) -> Agents:
    """Run the programs: an agent has one request open at most; who goes next is drawn.

    The number k push of an agent is a unit vector of its own. Fails when all who are not done wait. leave:
    who is done leaves. repeat: the share of turns that bring a push of before once more.
    """
    width = max(1, *(sum("push" in kind for kind in program) for program in wanted))
    agents = agents_of(consistency, Tally(), members=len(wanted), x=np.zeros(len(wanted) * width))
    left = [list(program) for program in wanted]
    last: dict[int, Asked] = {}
    present = list(range(len(wanted)))
    while any(left) or any(not asked.answers for asked in last.values()):
        idle = [rank for rank in present if rank not in last or last[rank].answers]
        ready = [rank for rank in idle if left[rank]]
        done = [rank for rank in idle if not left[rank]] if leave else []
        assert ready or done, f"all wait for ever but {idle}"
        rank = order.choice(ready + done)
        if rank in done:
            agents.shard.leave(rank)
            present.remove(rank)
            continue
        vector = (np.arange(agents.size) == rank * width + agents.pushes[rank]).astype(float)
        last[rank] = agents.do(left[rank].pop(0), rank, vector)
        if order.random() < repeat:
            pushed = [asked for asked in agents.asked if asked.vector is not None]
            if pushed:
                agents.again(order.choice(pushed))
    return agents


@pytest.mark.parametrize("consistency", ALL, ids=repr)
@settings(derandomize=True, deadline=None, max_examples=200)
@given(wanted=programs(equal=False), order=Order, repeat=st.sampled_from((0.0, 0.5)))
def test_nothing_is_lost_doubled_or_left_waiting(
    consistency: Consistency, wanted: list[list[str]], order: random.Random, repeat: float
) -> None:
    """Agents with unequal work, who leave when done: one answer a request, and every push applied once.

    Only backups drop pushes; these say so, and are in nobody's parameters. Whoever reads sees all that it
    pushed before and that was applied, and all that it saw before. A push that comes again, while it is open
    or long after, is answered and does not count; but a read that waits when its agent leaves is forgotten.
    """
    agents = tallied(consistency, wanted, order, leave=True, repeat=repeat)
    first: dict[tuple[int, int], Asked] = {}
    expected = np.zeros(agents.size)
    for asked in agents.asked:
        if asked.vector is None:
            assert asked.answers == 1
        elif first.setdefault((asked.rank, asked.sequence), asked) is asked:
            assert asked.reply.applied or consistency == Synchronous(1)
            expected += asked.vector * asked.reply.applied
        elif asked.answers == 0:
            assert asked.into is not None
        else:
            assert not asked.reply.applied
    np.testing.assert_array_equal(agents.shard.x, expected)
    for rank in range(len(wanted)):
        known = np.zeros(agents.size)
        for asked in (asked for asked in agents.answered if asked.rank == rank):
            if asked.vector is not None:
                known = np.maximum(known, asked.vector * asked.reply.applied)
            if asked.into is not None:
                assert (asked.into >= known).all()
                known = asked.into


# -- asynchronous --------------------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=100)
@given(who=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(KINDS)), max_size=30))
def test_asynchronous_is_the_base_optimizer_push_by_push(who: list[tuple[int, str]]) -> None:
    """To the last bit, with versions and staleness: x_T = x₀ − η Σ (applied g), in the order applied."""
    gs = vectors(30)
    for base in BASES:
        agents = agents_of(Asynchronous(), base=base)
        x = start_of(SIZE)
        state, version, seen = base.state(x), 0, [0, 0, 0]
        for order, (rank, kind) in enumerate(who):
            asked = agents.do(kind, rank, gs[order])
            staleness = -1
            if "push" in kind:
                staleness = version - seen[rank]
                base.update(x, gs[order], state)
                version += 1
            if "pull" in kind:
                np.testing.assert_array_equal(asked.read, x)
                seen[rank] = version
            expected = Reply(order, version, staleness, "push" in kind, asked.reply.gap, 0)
            assert asked.reply == expected
        np.testing.assert_array_equal(agents.shard.x, x)
        assert agents.shard.version == version
        if base == SGD(ETA):
            applied = [gs[order] for order, (_, kind) in enumerate(who) if "push" in kind]
            ledger = start_of(SIZE) - ETA * np.sum([*applied, np.zeros(SIZE)], axis=0)
            np.testing.assert_allclose(x, ledger, rtol=0, atol=1e-14)


# -- synchronous ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize("members", [1, 2, 3, 5])
def test_a_round_is_the_mean_in_the_order_of_ranks(base: Optimizer, members: int) -> None:
    """Whoever comes first: x is to the last bit the update by (((g₀ + g₁) + g₂) + …) / m."""
    gs = vectors(4, members)
    x = start_of(SIZE)
    state = base.state(x)
    for g in gs:
        total = g[0].copy()
        for other in g[1:]:
            total = total + other
        base.update(x, total / members, state)
    for arrival in itertools.islice(itertools.permutations(range(members)), 24):
        agents = agents_of(Synchronous(), base=base, members=members)
        for g in gs:
            asked = [agents.push_pull(rank, g[rank]) for rank in arrival]
        np.testing.assert_array_equal(agents.shard.x, x)
        for one in asked:
            np.testing.assert_array_equal(one.read, x)
        assert agents.shard.version == len(gs)


@pytest.mark.full
@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    members=st.integers(2, 5),
    backups=st.integers(1, 4),
    order=Order,
)
def test_backups_take_the_first_and_drop_the_late(members: int, backups: int, order: random.Random) -> None:
    """Against rounds written down in NumPy: the first m − b pushes that were computed at the current x count.

    All others are dropped, are told so, and read what came of the round that they missed.
    """
    backups = min(backups, members - 1)
    agents = agents_of(Synchronous(backups), members=members, base=Momentum(ETA, MU))
    gs = vectors(members, 40)
    x, velocity, version = start_of(SIZE), np.zeros(SIZE), 0
    seen, came = [0] * members, dict[int, Array]()
    waiting: dict[int, Asked] = {}
    for turn in range(40):
        rank = order.choice([rank for rank in range(members) if rank not in waiting])
        g = gs[rank, turn]
        asked = waiting[rank] = agents.push_pull(rank, g)
        late = seen[rank] < version
        if not late:
            came[rank] = g
        if len(came) == members - backups:
            velocity = MU * velocity + sum(came[rank] for rank in sorted(came)) / len(came)
            x, version, came = x - ETA * velocity, version + 1, {}
        for rank, one in [*waiting.items()]:
            if late and one is asked:
                assert not one.reply.applied and one.reply.staleness > 0
            elif not one.answers:
                assert rank in came
                continue
            np.testing.assert_allclose(one.read, x, rtol=1e-13)
            assert one.reply.applied != (late and one is asked)
            assert one.reply.version == version
            seen[rank] = version
            del waiting[rank]
    assert agents.shard.version == version


# -- stale-synchronous ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("consistency", [Synchronous(), *map(StaleSynchronous, (0, 1, 3))], ids=repr)
@settings(derandomize=True, deadline=None, max_examples=100)
@given(wanted=programs(equal=True), order=Order)
def test_a_bounded_read_sees_all_it_must_and_nothing_it_must_not(
    consistency: Consistency, wanted: list[list[str]], order: random.Random
) -> None:
    """Who reads with c pushes made sees all numbered c − s − 1 or less, none above c + s, and its own.

    It is then s ahead of the slowest at most: nobody computes with a larger gap. Synchronous agents see the
    first c of every agent, and no other.
    """
    agents = tallied(consistency, wanted, order, leave=False)
    bound, most = 0, 0
    if isinstance(consistency, StaleSynchronous):
        bound, most = consistency.bound, consistency.bound + 1
    width = agents.size // len(wanted)
    numbers = np.arange(width)
    for asked in agents.asked:
        if asked.into is None:
            continue
        made = asked.sequence
        gap = made - min(asked.clocks.values())
        assert gap <= bound
        assert asked.reply.gap == gap
        seen = asked.read.reshape(len(wanted), width)  # (ranks, numbers)
        assert (seen[:, numbers <= made - bound - 1] == 1).all()
        assert (seen[:, numbers >= made + most] == 0).all()
        assert (seen[asked.rank] == (numbers < made)).all()


# -- repetitions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("consistency", [Asynchronous(), Synchronous(), StaleSynchronous(1)], ids=repr)
def test_a_repeated_elastic_push_gets_the_same_reply(consistency: Consistency) -> None:
    """d = α (x_i − c) of the c that it met, and c moves once."""
    agents, x = agents_of(consistency, Elastic(0.3), members=2), vectors(2)
    first = agents.push_pull(0, x[0])
    early = agents.again(first)
    other = agents.push_pull(1, x[1])
    late = agents.again(first)
    for asked in (early, late):
        np.testing.assert_array_equal(asked.read, first.read)
    np.testing.assert_allclose(agents.shard.x, start_of(SIZE) + first.read + other.read, rtol=1e-15)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(bound=st.integers(0, 2), order=Order)
def test_a_rule_with_replies_keeps_the_bound(bound: int, order: random.Random) -> None:
    """Elastic averaging among agents of bounded staleness: nobody gets its d while it is too far ahead."""
    agents, x = agents_of(StaleSynchronous(bound), Elastic(0.2)), vectors(8, 3)
    done: list[list[Asked]] = [[agents.pull(rank)] for rank in range(3)]
    while ready := [rank for rank in range(3) if len(done[rank]) <= 8 and done[rank][-1].answers]:
        rank = order.choice(ready)
        done[rank].append(agents.push_pull(rank, x[len(done[rank]) - 1, rank]))
    for asked in agents.asked:
        assert asked.answers == 1
        assert asked.sequence - min(asked.clocks.values()) <= bound


# -- agents that come and go ---------------------------------------------------------------------------------


def test_the_push_of_one_who_left_counts_and_is_no_substitute() -> None:
    """It had come, so it is in the mean; but the round goes on waiting for those who are there."""
    agents, g = agents_of(Synchronous()), vectors(3)
    gone = agents.push(0, g[0])
    agents.shard.leave(0)
    asked = agents.push_pull(1, g[1])
    assert (gone.answers, asked.answers) == (0, 0)
    agents.push(2, g[2])
    np.testing.assert_array_equal(asked.read, start_of(SIZE) - ETA * (g[0] + g[1] + g[2]) / 3)


def test_nobody_waits_for_the_slowest_when_it_has_left() -> None:
    """The bound is to the slowest of those who are there; what waits for a read of the other is applied."""
    agents, g = agents_of(StaleSynchronous(1)), vectors(8)
    for rank in (0, 1):
        assert agents.push_pull(rank, g[rank]).answers
    ahead = [agents.push_pull(rank, g[2 + rank]) for rank in (0, 1)]
    assert [one.answers for one in ahead] == [0, 0]
    agents.shard.leave(2)
    assert [one.answers for one in ahead] == [1, 1]
    expected = start_of(SIZE) - ETA * g[:4].sum(axis=0) / 3
    np.testing.assert_allclose(ahead[1].read, expected, rtol=1e-14)
    last = agents.push(0, g[4])  # still a third: that others have ended makes no step longer
    assert last.reply.applied
    np.testing.assert_allclose(agents.shard.x, expected - ETA * g[4] / 3, rtol=1e-14)


def test_a_read_that_waits_is_forgotten_with_its_agent() -> None:
    """An agent that left gets no answer to its read, also when the others come up with it."""
    agents, g = agents_of(StaleSynchronous(0), members=2), vectors(2)
    for rank in (0, 1):
        agents.pull(rank)
    waiting = agents.push_pull(0, g[0])
    agents.shard.leave(0)
    agents.push(1, g[1])
    assert waiting.answers == 0


@pytest.mark.parametrize("consistency", [Synchronous(), StaleSynchronous(1), Asynchronous()], ids=repr)
def test_an_agent_that_enters_again_numbers_its_pushes_from_one(consistency: Consistency) -> None:
    """A new process with the rank of one that left: its pushes are no repetitions of the old one's.

    It starts at the clock of the slowest, so nobody waits until it has made up for what it missed.
    """
    agents = agents_of(consistency, Tally(), x=np.zeros(12), members=2)
    units = iter(np.eye(12))
    for _ in range(3):
        for rank in (0, 1):
            agents.push(rank, next(units))
    agents.shard.leave(1)
    assert agents.push(0, next(units)).answers
    agents.shard.enter(1)
    agents.pushes[1] = 0
    agents.pull(1)
    for _ in range(2):
        asked = [agents.push_pull(rank, next(units)) for rank in (1, 0)]
        assert all(one.reply.applied for one in asked)
    np.testing.assert_array_equal(agents.shard.x, np.arange(12) < 11)


def test_a_push_that_waits_while_its_agent_dies_and_another_comes_counts_once() -> None:
    """The new process numbers its first push as the dead one did the push that still waits for the others."""
    agents = agents_of(Synchronous(), Tally(), x=np.zeros(4), members=2)
    units = iter(np.eye(4))
    old = agents.push(1, next(units))
    agents.shard.leave(1)
    agents.shard.enter(1)
    agents.pushes[1] = 0
    new = agents.push(1, next(units))
    answered = [agents.push(0, next(units)) for _ in range(2)]
    assert all(one.reply.applied for one in (old, new, *answered))
    np.testing.assert_array_equal(agents.shard.x, np.ones(4))
    assert agents.shard.waiting == 0


# -- snapshots -----------------------------------------------------------------------------------------------


RULES: list[tuple[ServerRule, Optimizer]] = [
    (Descend(), Momentum(ETA, MU)), (Descend(), Nesterov(ETA, MU)), (StalenessAware(), Momentum(ETA, MU)),
    (DelayCompensated(0.1), Momentum(ETA, MU)), (DelayCompensated(0.1, 0.9), SGD(ETA)),
    (Elastic(0.2), SGD(ETA)), (DelayedNesterov(3), Nesterov(ETA, MU)),
]  # fmt: skip


def continued(agents: Agents, order: random.Random, turns: int, gs: Array) -> list[Asked]:
    """Agents that ask one thing after the other, whoever may; what they asked."""
    asked = []
    waiting = {one.rank: one for one in agents.asked if not one.answers}
    for turn in range(turns):
        free = [rank for rank in agents.pushes if rank not in waiting or waiting[rank].answers]
        if not free:
            break
        rank = order.choice(free)
        waiting[rank] = agents.do(order.choice(KINDS), rank, gs[turn])
        asked.append(waiting[rank])
    return asked


@pytest.mark.parametrize(("rule", "base"), RULES, ids=repr)
@pytest.mark.parametrize("consistency", ALL, ids=repr)
@settings(derandomize=True, deadline=None, max_examples=12)
@given(before=st.integers(0, 25), seed=st.integers(0, 10**6))
def test_a_restored_shard_goes_on_to_the_last_bit(
    consistency: Consistency, rule: ServerRule, base: Optimizer, before: int, seed: int
) -> None:
    """All pushes come again, and who waits asks again, of the shard and of a new one with its state: the same
    happens there.

    Every reply and every value is the same to the last bit, so no push is counted twice or lost.
    """
    gs = vectors(2, 25)
    first = agents_of(consistency, rule, base)
    for rank in range(3):
        first.pull(rank)
    continued(first, random.Random(seed), before, gs[0])
    state = first.shard.state()
    second = agents_of(consistency, rule, base, x=np.zeros(SIZE))
    second.pushes = first.pushes.copy()
    second.shard.restore(state)
    waiting = [asked for asked in first.asked if not asked.answers]
    again = [*waiting, *(asked for asked in first.asked if asked.answers and asked.vector is not None)]
    found = [[agents.again(asked) for asked in again] for agents in (first, second)]
    assert not any(asked.reply.applied for asked in found[1][len(waiting) :] if asked.answers)
    for agents, asked in zip((first, second), found, strict=True):
        asked += continued(agents, random.Random(seed + 1), 25, gs[1])
    for ours, theirs in zip(*found, strict=True):
        assert ours.answers == theirs.answers
        if ours.answers:
            assert ours.reply[:3] + ours.reply[4:5] == theirs.reply[:3] + theirs.reply[4:5]
            np.testing.assert_array_equal(ours.into, theirs.into)
    np.testing.assert_array_equal(first.shard.x, second.shard.x)
    assert first.shard.version == second.shard.version


def test_a_snapshot_is_a_copy() -> None:
    """What happens later, in the old shard or in the one that was restored, does not change it."""
    agents, g = agents_of(Asynchronous(), base=Momentum(ETA, MU)), vectors(4)
    agents.push(0, g[0])
    state = agents.shard.state()
    x, velocity = state["x"].copy(), state["state"]["velocity"].copy()
    restored = agents_of(Asynchronous(), base=Momentum(ETA, MU))
    restored.shard.restore(state)
    agents.push(1, g[1])
    restored.push(1, g[2])
    np.testing.assert_array_equal(state["x"], x)
    np.testing.assert_array_equal(state["state"]["velocity"], velocity)


@pytest.mark.parametrize("size", [SIZE - 1, SIZE + 1])
def test_a_state_of_another_size_is_refused(size: int) -> None:
    """Before anything is changed, with both numbers' meaning; so is a state of another format."""
    agents, other = agents_of(Asynchronous()), agents_of(Asynchronous(), x=start_of(size))
    for state in (other.shard.state(), agents.shard.state() | {"format": 0}):
        with pytest.raises(ConfigurationError, match="no state of a shard of 5 parameters"):
            agents.shard.restore(state)
    np.testing.assert_array_equal(agents.shard.x, start_of(SIZE))


@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_a_large_update_goes_block_by_block_to_the_same_bits(base: Optimizer, size: int) -> None:
    """Three steps with the mean of two pushes of float32, beside the whole update at once."""
    agents = agents_of(Synchronous(), base=base, members=2, x=start_of(size).astype(np.float32))
    rng, x = np.random.default_rng(0), agents.shard.x.copy()
    state = base.state(x)
    for _ in range(3):
        g = rng.standard_normal((2, size), np.float32)
        for rank in range(2):
            agents.push(rank, g[rank])
        base.advance(state)
        base.update(x, (g[0] + g[1]) / np.float32(2), state)
        np.testing.assert_array_equal(agents.shard.x, x)


# -- rules ---------------------------------------------------------------------------------------------------


def test_staleness_divides_the_learning_rate() -> None:
    """Four agents that read x₀ and come in turn: η, η, η/2, η/3; momentum takes the gradient whole."""
    g = vectors(4)
    agents = agents_of(Asynchronous(), StalenessAware(), Momentum(ETA, MU), members=4)
    x, velocity = start_of(SIZE), np.zeros(SIZE)
    for rank, rate in enumerate((ETA, ETA, ETA / 2, ETA / 3)):
        assert agents.push(rank, g[rank]).reply.staleness == rank
        velocity = MU * velocity + g[rank]
        x = x - rate * velocity
    np.testing.assert_allclose(agents.shard.x, x, rtol=1e-14)


@pytest.mark.full
@pytest.mark.parametrize("decay", [None, 0.0, 0.95])
@settings(derandomize=True, deadline=None, max_examples=40)
@given(who=st.lists(st.integers(0, 2), min_size=1, max_size=15))
def test_delay_compensation_is_the_papers(decay: float | None, who: list[int]) -> None:
    """Algorithm 2 of arXiv:1609.08326, and its λ_t = λ₀ / √(MeanSquare(t) + 10⁻⁷), written down again."""
    lam, gs = 0.7, vectors(15)
    agents = agents_of(Asynchronous(), DelayCompensated(lam, decay))
    w = start_of(SIZE)
    backup = {rank: w.copy() for rank in range(3)}
    mean_square = np.zeros(SIZE)
    for rank in range(3):
        agents.pull(rank)
    for turn, m in enumerate(who):
        g = gs[turn]
        lam_t: Any = lam
        if decay is not None:
            mean_square = decay * mean_square + (1 - decay) * g**2
            lam_t = lam / np.sqrt(mean_square + 1e-7)
        w = w - ETA * (g + lam_t * g * g * (w - backup[m]))
        backup[m] = w.copy()
        np.testing.assert_allclose(agents.push_pull(m, g).read, w, rtol=1e-12)


@pytest.mark.parametrize("period", [1, 2, 3])
def test_delayed_nesterov_is_algorithm_three(period: int) -> None:
    """Of arXiv:2401.09135 with c = 0: Δ/N at once, and every N pushes a momentum step with their mean."""
    agents = agents_of(Asynchronous(), DelayedNesterov(period), Nesterov(ETA, MU))
    x, m, gathered = start_of(SIZE), np.zeros(SIZE), []
    for turn, delta in enumerate(vectors(3 * period + 1)):
        agents.push(turn % 3, delta)
        gathered.append(delta)
        if len(gathered) == period:
            m = MU * m + np.mean(gathered, axis=0)
            x = x - ETA * (MU * m + delta / period)
            gathered = []
        else:
            x = x - ETA * delta / period
        np.testing.assert_allclose(agents.shard.x, x, rtol=1e-13)
