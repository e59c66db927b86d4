"""Claims about every server optimizer under every schedule: random links, computing times and stragglers"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import d5ray as d5
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.simulation.world import Simulation
from d5ray.experiment import Experiment
from tests.distributed.in_numpy import (
    Array,
    dataset,
    experiment,
    simulated_agents,
    start_of,
    together,
)

ETA, ALPHA, BETA = 0.1, 0.4, 0.6
SGD = d5.optimizers.SGD(ETA)
NODES = 32


@final
@dataclass(frozen=True)
class DrawnLinks(d5.simulation.Links):
    """Every pair of nodes has a latency from 1 µs to 10 ms and 1 kB/s to 1 GB/s, each way its own."""

    seed: int

    @cached_property
    def _drawn(self) -> Array:  # (2, NODES, NODES)
        rng = np.random.default_rng(self.seed)
        return np.asarray(10 ** rng.uniform([[[-6]], [[-9]]], [[[-2]], [[-3]]], (2, NODES, NODES)))

    def latency(self, source: int, target: int) -> float:
        return float(self._drawn[0, source, target])

    def seconds_per_byte(self, source: int, target: int) -> float:
        return float(self._drawn[1, source, target])


@dataclass(frozen=True)
class World:
    """Who trains where."""

    agents: int
    steps: int
    shards: int
    groups: int
    links: d5.simulation.Links
    compute: d5.simulation.ComputeTime
    slow: tuple[Any, ...]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    agents = draw(st.integers(1, 5))
    rank = st.integers(0, agents - 1)
    slowness = st.one_of(
        st.builds(d5.faults.Slowdown, rank, st.sampled_from((1.5, 4.0, 50.0))),
        st.builds(d5.faults.ExponentialSlowdown, st.sampled_from((0.5, 5.0)), st.none() | rank),
        st.builds(d5.faults.HeavyTailedSlowdown, st.sampled_from((1.1, 2.0)), st.none() | rank),
    )
    return World(
        agents,
        steps=draw(st.integers(1, 6)),
        shards=draw(st.integers(1, 3)),
        groups=draw(st.integers(1, agents)),
        links=draw(
            st.builds(DrawnLinks, st.integers(0, 10**6))
            | st.sampled_from((d5.simulation.UniformLinks(), d5.simulation.UniformLinks(0.0, 1e30)))
        ),
        compute=draw(
            st.builds(d5.simulation.LogNormalTime, st.just(1e-3), st.floats(0, 2))
            | st.just(d5.simulation.ConstantTime())
        ),
        slow=tuple(draw(st.lists(slowness, max_size=3))),
    )


@dataclass
class Books:
    """What a training left behind."""

    wanted: Experiment
    simulation: Simulation
    agents: list[TrainingAgent]

    @property
    def shards(self) -> list[Any]:
        assert self.simulation.servers is not None
        return [place.shard for place in self.simulation.servers.root]

    @property
    def x(self) -> Array:
        """What the servers hold (n,)."""
        return np.concatenate([shard.x for shard in self.shards])

    @property
    def start(self) -> Array:
        return start_of(self.wanted)

    @property
    def gradients(self) -> Array:
        """The sum of all that were computed (n,)."""
        executors: list[Any] = [agent.executor for agent in self.agents]
        return np.asarray(sum(executor._inner.total for executor in executors))

    def own(self, name: str) -> Array:
        """The sum of an array that every optimizer has (n,)."""
        return np.asarray(sum(getattr(agent.connections.optimizer, name) for agent in self.agents))

    def held(self, name: str) -> Array:
        """What the servers' base optimizer or rule remembers (n,)."""
        return np.concatenate([(shard.held.state | shard.held.own)[name] for shard in self.shards])

    @property
    def changes(self) -> Array:
        """Σ Δ of all periods that were completed, the base optimizer being SGD (n,)."""
        return np.asarray(ETA * self.gradients - (self.own("begin") - self.own("explored")))


def mean(books: Books) -> Array:
    return books.start - ETA / len(books.agents) * books.gradients


def every(books: Books) -> Array:
    return books.start - ETA * books.gradients


def accrued(books: Books) -> Array:
    return books.start - ETA * (books.gradients - books.own("accrued"))


def elastic(books: Books) -> Array:
    """Σ x_i + c is what it was, less η Σ g."""
    return (len(books.agents) + 1) * books.start - ETA * books.gradients - books.own("explored")


def outer(books: Books) -> Array:
    return books.start - ALPHA * books.changes


def outer_nesterov(books: Books) -> Array:
    """x_T = x₀ − α/(1 − β) (Σ Δ − β² v_T): the sum over v_t = β v_{t−1} + Δ_t of α (Δ_t + β v_t)."""
    return books.start - ALPHA / (1 - BETA) * (books.changes - BETA**2 * books.held("velocity"))


def delayed(period: int) -> Callable[[Books], Array]:
    def expected(books: Books) -> Array:
        """The same of Σ Δ/N, whose momentum lacks what has not come to a whole N yet."""
        whole = (books.changes - books.held("sum")) / period
        momenta = (whole - BETA * books.held("momentum")) / (1 - BETA)  # their sum
        return books.start - ALPHA * (books.changes / period + BETA * momenta)

    return expected


def delayed_by_all(books: Books) -> Array:
    """As many pushes as there are agents come into the momentum at a time."""
    return delayed(len(books.agents))(books)


@dataclass(frozen=True)
class Case:
    """An optimizer, what its servers must hold at the end, and how many updates they must have made."""

    rule: d5.DistributedOptimizer
    expected: Callable[[Books], Array]
    updates: Callable[[int, int], int] = lambda agents, steps: agents * steps


NESTEROV = d5.optimizers.Nesterov(ALPHA, BETA)
CASES = {
    "parameter server": Case(d5.optimizers.ParameterServerSGD(), mean, lambda agents, steps: steps),
    "ASGD": Case(d5.optimizers.ASGD(), every),
    "stale-synchronous 0": Case(d5.optimizers.StaleSynchronousSGD(0), mean),
    "stale-synchronous 2": Case(d5.optimizers.StaleSynchronousSGD(2), mean),
    "Downpour": Case(d5.optimizers.Downpour(2, 3), accrued, lambda agents, steps: agents * (steps // 2)),
    "EASGD": Case(d5.optimizers.EASGD(0.15, 2), elastic, lambda agents, steps: agents * (-(-steps // 2))),
    "synchronous EASGD": Case(
        d5.optimizers.SynchronousEASGD(0.15, 2), elastic, lambda agents, steps: -(-steps // 2)
    ),
    "asynchronous local SGD": Case(
        d5.optimizers.AsynchronousLocalSGD(2, d5.optimizers.SGD(ALPHA)), outer, lambda agents,
        steps: agents * (steps // 2)
    ),
    "asynchronous DiLoCo": Case(
        d5.optimizers.AsynchronousDiLoCo(2, NESTEROV), delayed_by_all, lambda agents,
        steps: agents * (steps // 2)
    ),
    "undelayed DiLoCo": Case(
        d5.optimizers.AsynchronousDiLoCo(2, NESTEROV, delay=1), delayed(1), lambda agents,
        steps: agents * (steps // 2)
    ),
    "DiLoCo at a plain server": Case(
        d5.optimizers.AsynchronousLocalSGD(2, NESTEROV), outer_nesterov, lambda agents,
        steps: agents * (steps // 2)
    ),
    "delayed DiLoCo": Case(d5.optimizers.AsynchronousDiLoCo(1, NESTEROV, delay=3), delayed(3)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@settings(derandomize=True, deadline=None, max_examples=60)
@given(world=worlds())
def test_no_schedule_loses_or_doubles_a_gradient(name: str, world: World) -> None:
    """And none stands still: agents of any speed behind links of any kind, with any number of shards."""
    case = CASES[name]
    grouped = isinstance(case.rule, d5.optimizers.ParameterServerSGD)
    wanted = experiment(
        case.rule, SGD, agents=world.agents, slow=world.slow,
        dataset=dataset(world.agents * 2 * world.steps), timeout_seconds=1e6,
        servers=d5.Servers(shards=world.shards, groups=world.groups if grouped else 1),
    )  # fmt: skip
    with simulated_agents(wanted, world.links, world.compute) as (simulation, agents):
        outcomes = together(simulation, [partial(agent.train, world.steps) for agent in agents])
        assert [outcome.status for outcome in outcomes] == ["completed"] * world.agents, outcomes
        if case.rule.asynchronous:
            together(simulation, [agent.conclude for agent in agents])
        books = Books(wanted, simulation, agents)
        np.testing.assert_allclose(books.x, case.expected(books), rtol=0, atol=1e-12)
        updates = case.updates(world.agents, world.steps)
        assert [shard.version for shard in books.shards] == [updates] * world.shards
        for agent in agents:
            np.testing.assert_array_equal(agent.executor.parameters, books.x)
