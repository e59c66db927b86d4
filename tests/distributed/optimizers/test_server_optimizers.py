"""Claims about training with parameter servers, on a virtual clock: equalities, bounds, refusals"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import pytest

import d5ray as d5
from d5ray.distributed.compression.compressor import Compressor
from d5ray.errors import AgentError, ConfigurationError
from tests.distributed.in_numpy import (
    IDEAL,
    SIZE,
    UNEVEN,
    Array,
    dataset,
    experiment,
    flat,
    gradient_of,
    loss_and_gradient,
    schedule,
    simulated_agents,
    start_of,
    together,
    trained,
)

ETA, MU = 0.1, 0.9
BASES: list[d5.Optimizer] = [
    d5.optimizers.SGD(ETA),
    d5.optimizers.Momentum(ETA, MU),
    d5.optimizers.Nesterov(ETA, MU),
]
WIRED = d5.simulation.UniformLinks(2e-4, 1e6)
STRAGGLER = (d5.faults.Slowdown(3, 4),)
OUTER = d5.optimizers.Nesterov(0.5, 0.5)


def close(found: Array, expected: Array) -> None:
    """To rounding, in float64."""
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=0, atol=1e-13)


@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize(
    ("agents", "count", "servers"),
    [(1, 96, {}), (4, 96, {}), (3, 95, {}), (5, 96, {"groups": 2, "shards": 3}),
     (7, 96, {"groups": 3, "shards": 2})],
)  # fmt: skip
def test_the_synchronous_server_is_allreduce(
    base: d5.Optimizer, agents: int, count: int, servers: dict[str, Any]
) -> None:
    """With agents' shares of different size, a straggler, and groups whose mean the root weighs by agents."""
    wanted = experiment(
        d5.optimizers.ParameterServerSGD(), base, agents=agents, dataset=dataset(count),
        slow=(d5.faults.Slowdown(agents - 1, 3),), servers=d5.Servers(**servers),
    )  # fmt: skip
    theirs = trained(wanted.with_values(distributed=d5.optimizers.AllreduceSGD(), servers=None))
    assert np.abs(theirs - start_of(wanted)).max() > 0.1
    close(trained(wanted, WIRED), theirs)


ALONE = [
    d5.optimizers.ASGD(), d5.optimizers.ParameterServerSGD(), d5.optimizers.StaleSynchronousSGD(2),
    d5.optimizers.StalenessAwareSGD(),
    d5.optimizers.DelayCompensatedASGD(0.5), d5.optimizers.DelayCompensatedASGD(0.5, 0.9),
    d5.optimizers.Downpour(),
]  # fmt: skip


@pytest.mark.parametrize("rule", ALONE, ids=repr)
@pytest.mark.parametrize("base", BASES, ids=repr)
def test_one_agent_is_the_base_optimizer(rule: d5.DistributedOptimizer, base: d5.Optimizer) -> None:
    """To the last bit: nobody comes in between."""
    wanted = experiment(rule, base, agents=1, servers=d5.Servers(shards=2))
    x = start_of(wanted)
    state = base.state(x)
    for step in range(20):
        base.update(x, gradient_of(wanted, 0, step, x), state)
    np.testing.assert_array_equal(trained(wanted, WIRED, steps=20), [x])


@pytest.mark.parametrize(("push", "fetch"), [(1, 3), (2, 3), (3, 2), (4, 1)])
def test_downpour_is_its_recursion(push: int, fetch: int) -> None:
    """One agent: x_i ← x_i − η g, a ← a + g; every n_push steps x ← U(a, x), a ← 0; every n_fetch x_i ← x."""
    base = d5.optimizers.Momentum(0.05, MU)
    wanted = experiment(d5.optimizers.Downpour(push, fetch), base, agents=1)
    x, accrued = start_of(wanted), np.zeros(SIZE)
    own, state = x.copy(), base.state(x)
    for step in range(14):
        g = gradient_of(wanted, 0, step, own)
        own, accrued = own - 0.05 * g, accrued + g
        if step % push == push - 1:
            base.update(x, accrued, state)
            accrued = np.zeros(SIZE)
        if step % fetch == fetch - 1:
            own = x.copy()
    with d5.simulate(wanted, WIRED, UNEVEN) as group:
        group.train(14, progress=False)
        close(flat(group), x)
        close(explored(group.agents[0]), own)


def test_synchronous_easgd_is_its_recursion() -> None:
    """x_i ← x_i − η g_i − α (x_i − c), with the g_i of before; c ← (1 − β) c + β x̄, β = P α; all at once."""
    alpha, agents, steps = 0.15, 4, 12
    wanted = experiment(d5.optimizers.SynchronousEASGD(alpha), slow=STRAGGLER)
    x, c = np.tile(start_of(wanted), (agents, 1)), start_of(wanted)
    for step in range(steps):
        g = np.stack([gradient_of(wanted, rank, step, x[rank]) for rank in range(agents)])
        mean = x.mean(axis=0)
        x, c = x - ETA * g - alpha * (x - c), (1 - agents * alpha) * c + agents * alpha * mean
    with d5.simulate(wanted, WIRED, UNEVEN) as group:
        group.train(steps, progress=False)
        close(flat(group), c)
        for rank, agent in enumerate(group.agents):
            close(explored(agent), x[rank])


@pytest.mark.parametrize("outer", [d5.optimizers.SGD(1.0), d5.optimizers.SGD(0.5), OUTER], ids=repr)
def test_one_agent_with_local_periods_is_the_outer_optimizer(outer: d5.Optimizer) -> None:
    """H local steps with the agent's own momentum, then x ← outer(x, x − x_i)."""
    base, period = d5.optimizers.Momentum(ETA, MU), 3
    wanted = experiment(d5.optimizers.AsynchronousLocalSGD(period, outer), base, agents=1)
    x = start_of(wanted)
    inner_state, outer_state = base.state(x), outer.state(x)
    for step in range(12):
        if step % period == 0:
            own = x.copy()
        base.update(own, gradient_of(wanted, 0, step, own), inner_state)
        if step % period == period - 1:
            outer.update(x, x - own, outer_state)
    close(trained(wanted, WIRED, steps=12), x)


@pytest.mark.parametrize("consistency", [d5.servers.Asynchronous(), d5.servers.StaleSynchronous(1)], ids=repr)
def test_groups_that_do_not_wait_for_each_other_lose_nothing(consistency: d5.servers.Consistency) -> None:
    """At the root x_T = x₀ − η Σ of the groups' mean gradients, each counted once, or as 1/groups."""
    servers = d5.Servers(shards=2, groups=2, consistency=consistency)
    wanted = experiment(d5.optimizers.ASGD(), agents=4, servers=servers, slow=STRAGGLER)
    with d5.simulate(wanted, WIRED, UNEVEN) as group:
        group.train(12, progress=False)
        sums = np.stack([executor(group, rank).total for rank in range(4)])
        share = 1 if consistency == d5.servers.Asynchronous() else 1 / 2
        root = np.concatenate([place.shard.x for place in group._simulation.servers.root])  # type: ignore[union-attr]
    close(root, start_of(wanted) - ETA * share * sums.sum(axis=0) / 2)


@pytest.mark.parametrize(
    ("groups", "ends"), [(1, (10, 10, 3, 3)), (2, (10, 10, 3, 3)), (2, (6, 10, 10, 10, 3))]
)
def test_nobody_waits_for_agents_that_left(groups: int, ends: tuple[int, ...]) -> None:
    """Some leave after three steps or six, of groups one or a whole one: the mean is then the others'."""
    servers = d5.Servers(shards=2, groups=groups)
    rule, data = d5.optimizers.ParameterServerSGD(), dataset(20 * len(ends))
    wanted = experiment(rule, agents=len(ends), dataset=data, servers=servers)
    x = start_of(wanted)
    for step in range(10):
        there = [rank for rank, end in enumerate(ends) if step < end]
        x = x - ETA * np.mean([gradient_of(wanted, rank, step, x) for rank in there], axis=0)
    with simulated_agents(wanted, WIRED, UNEVEN) as (simulation, agents):

        def life(rank: int) -> Array:
            outcome = agents[rank].train(ends[rank])
            assert outcome.completed, outcome.reason
            if ends[rank] < 10:
                agents[rank].leave()
            return np.concatenate([piece.ravel() for piece in agents[rank].parameters().values()])

        found = together(simulation, [partial(life, rank) for rank in range(len(ends))])
        assert simulation.clock.seconds < 1
    close(np.stack([each for each, end in zip(found, ends, strict=True) if end == 10]), x)


def executor(group: Any, rank: int) -> Any:
    """The NumPy executor of an agent."""
    return group.agents[rank].executor._inner


def explored(agent: Any) -> Array:
    """What an agent trains on where something else is evaluated (n,)."""
    return np.asarray(agent.connections.optimizer.explored)


@pytest.mark.parametrize("bound", [0, 1, 3])
@pytest.mark.parametrize("agents", [2, 5])
def test_nobody_computes_further_ahead_than_the_bound(bound: int, agents: int) -> None:
    """Counted from the times in the events table: at the end of a step an agent is s ahead at most."""
    wanted = experiment(
        d5.optimizers.StaleSynchronousSGD(bound),
        agents=agents,
        dataset=dataset(400),
        slow=(d5.faults.Slowdown(agents - 1, 4),),
    )
    with d5.simulate(wanted, IDEAL, d5.simulation.LogNormalTime(1e-3, 0.3)) as group:
        group.train(20, progress=False)
        rows = [row for row in schedule(group) if row["name"] == "push_pull"]
    begins = {
        rank: np.array([r["t_mono"] - 1e9 * r["duration"] for r in rows if r["rank"] == rank])
        for rank in range(agents)
    }
    gaps = []
    for row in rows:
        made = {rank: int((times <= row["t_mono"] + 1).sum()) for rank, times in begins.items()}  # 1 ns
        gaps.append(made[row["rank"]] - min(made.values()))
    assert max(gaps) == bound


@final
class Hasty(d5.DistributedOptimizer):
    """Starts a push of half its gradient, and pushes the other half without waiting for it."""

    exchange = d5.ExchangeVia.SERVERS

    def step(self, batch: d5.Batch) -> None:
        half = self.gradient(batch) / 2
        self.server.start.push(half)
        self.server.push(half)
        self.server.pull(into=self.x)

    def finish(self) -> None:
        self.server.pull(into=self.x)


@pytest.mark.parametrize(
    ("rule", "share"),
    [(d5.optimizers.ParameterServerSGD(), 1 / 4), (d5.optimizers.StaleSynchronousSGD(2), 1 / 4),
     (d5.optimizers.ASGD(), 1), (Hasty(), 1)],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("shards", [1, 3])
def test_a_training_in_parts_loses_nothing(rule: d5.DistributedOptimizer, share: float, shards: int) -> None:
    """Agents that ended a part are waited for again in the next: x_T = x₀ − η Σ g, or its share of P."""
    wanted = experiment(rule, slow=STRAGGLER, servers=d5.Servers(shards=shards))
    with d5.simulate(wanted, WIRED, UNEVEN) as group:
        for steps in (5, 1, 6):
            group.train(steps, progress=False)
        total = sum(executor(group, rank).total for rank in range(4))
        for rank in range(4):
            close(flat(group, rank), start_of(wanted) - ETA * share * total)


@pytest.mark.parametrize(("groups", "agents", "backups"), [(1, 4, 0), (1, 4, 1), (3, 6, 1)])
def test_backups_spare_the_wait_for_the_straggler(groups: int, agents: int, backups: int) -> None:
    """With a backup among agents, or groups, an epoch takes the time of those that are fast."""
    wanted = experiment(
        d5.optimizers.ParameterServerSGD(backups), agents=agents, servers=d5.Servers(groups=groups),
        slow=(d5.faults.Slowdown(agents - 1, 8),),
    )  # fmt: skip
    with d5.simulate(wanted, IDEAL, d5.simulation.ConstantTime(1e-3)) as group:
        group.train(8, progress=False)
        rows = [row for row in schedule(group) if row["name"] == "push_pull" and row["rank"] == 0]
    assert rows[-1]["t_mono"] * 1e-9 == pytest.approx(8 * (1e-3 if backups else 8e-3))


CONTRACTIONS = [
    d5.compression.TopK(2), d5.compression.TopK(0.3, bucket=5), d5.compression.ScaledSign(),
    d5.compression.OneBit(), d5.compression.QSGD(8), d5.compression.Threshold(0.2),
]  # fmt: skip


@pytest.mark.parametrize("compressor", CONTRACTIONS, ids=repr)
def test_pushes_and_residuals_are_the_gradients(compressor: Compressor) -> None:
    """Σ sent + Σ e_i = Σ g of all agents, in whatever order they come, as exactly as the model's float64."""
    wanted = experiment(d5.optimizers.ASGD(compressor), servers=d5.Servers(shards=2), slow=STRAGGLER)
    with d5.simulate(wanted, WIRED, UNEVEN) as group:
        group.train(12, progress=False)
        total = sum(executor(group, rank).total for rank in range(4))
        residual = sum(agent.connections.server.sending.residual for agent in group.agents)  # type: ignore[union-attr, misc]
        sent = (start_of(wanted) - flat(group)) / ETA
    assert np.abs(residual).max() > 1e-3
    np.testing.assert_allclose(sent + residual, total, rtol=0, atol=1e-12)


@final
@dataclass(frozen=True)
class Halving(Compressor):
    """v / 2: neither unbiased nor, as it says, a contraction."""

    def contraction(self, n: int) -> float | None:
        return None

    def compress(self, vector: Array, rng: np.random.Generator) -> Array:
        return np.asarray(vector / 2).view(np.uint8)

    def decompress(self, message: Array, n: int, dtype: Any) -> Array:
        return np.array(message.view(dtype))

    def message_bytes(self, n: int, dtype: Any) -> int:
        return n * int(np.dtype(dtype).itemsize)


@pytest.mark.parametrize(
    "rule", [d5.optimizers.EASGD(0.2, 3), d5.optimizers.SynchronousEASGD(0.2, 3)], ids=repr
)
def test_what_is_evaluated_is_the_centre(rule: d5.DistributedOptimizer) -> None:
    """Every agent's last loss is that of the centre, where Σ x_i + c = Σ x_i⁰ + c⁰ − η Σ g."""
    wanted = experiment(rule, evaluate=True, slow=STRAGGLER)
    with d5.simulate(wanted, WIRED, UNEVEN) as group:
        group.train(epochs=2, progress=False)
        centre = flat(group)
        local = [explored(agent) for agent in group.agents]
        total = sum(executor(group, rank).total for rank in range(4))
        losses = [row for row in group.metrics().to_pylist() if row["metric"] == "test_loss"]
    close(sum(local) + centre, 5 * start_of(wanted) - ETA * total)
    assert min(np.abs(own - centre).max() for own in local) > 1e-2
    test = dataset().test
    expected, _ = loss_and_gradient(centre, test.inputs, test.labels)
    last = [row["value"] for row in losses if row["step"] == 23]
    np.testing.assert_allclose(last, [expected] * 4, rtol=1e-12)
    assert len(losses) == 8


LOCAL = [
    d5.optimizers.EASGD(0.2, 3), d5.optimizers.SynchronousEASGD(0.2, 3),
    d5.optimizers.AsynchronousLocalSGD(5),
    d5.optimizers.AsynchronousDiLoCo(7, OUTER, delay=2), d5.optimizers.Downpour(3, 5),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("rule", LOCAL, ids=repr)
def test_an_evaluation_does_not_disturb_the_training(rule: d5.DistributedOptimizer) -> None:
    """Evaluated after each of three epochs, or never: centre and agents are the same to the last bit."""
    found = []
    for evaluate in (True, False):
        wanted = experiment(rule, d5.optimizers.Momentum(0.05, MU), evaluate=evaluate, slow=STRAGGLER)
        with d5.simulate(wanted, IDEAL, UNEVEN) as group:
            group.train(epochs=3, progress=False)
            own = [explored(agent) for agent in group.agents]
            found.append(np.stack([flat(group), *own]))
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - start_of(wanted)).max() > 0.1


def with_servers(distributed: d5.DistributedOptimizer, **servers: Any) -> d5.Experiment:
    return experiment(distributed, servers=d5.Servers(**servers))


ASGD = d5.optimizers.ASGD
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: d5.optimizers.StaleSynchronousSGD(-1), "bound is -1"),
    (lambda: d5.servers.StaleSynchronous(1.5), "bound is 1.5"),  # type: ignore[arg-type]
    (lambda: d5.optimizers.ParameterServerSGD(-1), "backups is -1"),
    (lambda: d5.servers.Synchronous(True), "backups is True"),
    (lambda: experiment(d5.optimizers.ParameterServerSGD(4)), "4 agents .*: take 3 at most"),
    (lambda: with_servers(d5.optimizers.ParameterServerSGD(2), groups=2), "among 2 .*: take 1 at most"),
    (lambda: with_servers(ASGD(), groups=5), "5 groups .* 4 agents .*: take at most 4"),
    (lambda: d5.Servers(groups=0), "groups is 0"),
    (lambda: d5.Servers(shards=1.5), "shards is 1.5"),  # type: ignore[arg-type]
    (lambda: d5.Servers(snapshot_seconds=0), "snapshot_seconds is 0"),
    (lambda: with_servers(d5.optimizers.AllreduceSGD()), "uses no parameter server"),
    (lambda: experiment(ASGD(), servers=2), "servers is 2"),
    (lambda: with_servers(d5.optimizers.EASGD(0.1), groups=2), "Elastic.*: take groups=1"),
    (lambda: with_servers(d5.optimizers.DelayCompensatedASGD(0.1), groups=2), "Delay.*: take groups=1"),
    (lambda: with_servers(d5.optimizers.EASGD(0.1), consistency=d5.servers.Synchronous(1)), "backups=0"),
    (
        lambda: with_servers(ASGD(), consistency=d5.servers.Descend()),
        "a Consistency such as",
    ),
    (lambda: with_servers(ASGD(), rule="elastic"), "must be a ServerRule such as"),
    (lambda: with_servers(ASGD(), optimizer=0.1), r"an? Optimizer such as SGD\(0.1\)"),
    (lambda: d5.optimizers.AsynchronousDiLoCo(4, d5.optimizers.SGD(0.5), delay=2), "goes with Nesterov"),
    (lambda: with_servers(ASGD(), rule=d5.servers.DelayedNesterov(2)), "goes with Nesterov"),
    (lambda: d5.optimizers.AsynchronousDiLoCo(4, OUTER, delay=0), "period is 0"),
    (lambda: d5.optimizers.DelayCompensatedASGD(-0.1), "lam is -0.1"),
    (lambda: d5.servers.DelayCompensated(np.inf), "lam is inf"),
    (lambda: d5.optimizers.DelayCompensatedASGD(0.1, 1.0), "decay is 1.0"),
    (lambda: d5.optimizers.EASGD(1.1), "alpha is 1.1"),
    (lambda: d5.optimizers.EASGD(0.1, 0), "period is 0"),
    (lambda: d5.optimizers.Downpour(0, 1), "push_period is 0"),
    (lambda: d5.optimizers.Downpour(1, 0), "fetch_period is 0"),
    (lambda: d5.optimizers.AsynchronousLocalSGD((2, 0)), "period is 0"),
    (lambda: d5.optimizers.AsynchronousLocalSGD(2, 0.5), "outer is 0.5"),  # type: ignore[arg-type]
    (lambda: ASGD(0.01), "compressor is 0.01"),  # type: ignore[arg-type]
    (lambda: trained(experiment(ASGD()), "fast"), "network is 'fast'"),  # type: ignore[arg-type]
    (lambda: trained(experiment(ASGD()), IDEAL, 0.1), "compute is 0.1"),  # type: ignore[arg-type]
    (lambda: trained(with_servers(ASGD(), shards=22)), "22 shards .* 21 .*: take at most 21"),
    (lambda: trained(experiment(d5.optimizers.AsynchronousLocalSGD((1, 2)))), "2 numbers for 4 agents"),
    (lambda: trained(with_servers(ASGD(d5.compression.TopK(5)), shards=7)), "k is 5"),
    (lambda: trained(experiment(ASGD(Halving()))), r"Halving.* no contraction: .*TopK\(0.01\)"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_does_not_fit_is_refused(make: Callable[[], object], words: str) -> None:
    """With what was found or what to do; before a step is done but where a step does it."""
    with pytest.raises((ConfigurationError, AgentError), match=words):
        make()
