"""Claims about agents that gossip without waiting: what they keep, what they equal, that nobody is stuck"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import d5ray as d5
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.communicators.simple.solo import Absent
from d5ray.distributed.group.group import Group
from d5ray.distributed.one_sided.peers import reachable
from d5ray.distributed.simulation.peers import Meadow, SimulatedPeers
from d5ray.distributed.simulation.world import Simulation
from tests.distributed.in_numpy import (
    IDEAL,
    UNEVEN,
    dataset,
    experiment,
    flat,
    gradient_of,
    simulated_agents,
    start_of,
    together,
    trained,
)

ETA = 0.1
SLOW = (d5.faults.Slowdown(agent=1, factor=7.0),)


def peers_of(agent: TrainingAgent) -> SimulatedPeers:
    assert isinstance(agent.connections.peers, SimulatedPeers)
    return agent.connections.peers


def test_an_agent_alone_does_plain_sgd() -> None:
    """AD-PSGD, push-sum and random walks of one agent: x ← x − η g(x), step by step in float64."""
    for rule in (
        d5.optimizers.ADPSGD(),
        d5.optimizers.AsynchronousGradientPush(),
        d5.optimizers.OverlapSGP(1),
        d5.optimizers.RandomWalkGossip(),
    ):
        wanted = experiment(rule, d5.optimizers.SGD(ETA), agents=1)
        x = start_of(wanted)
        for step in range(15):
            x = x - ETA * gradient_of(wanted, 0, step, x)
        np.testing.assert_allclose(trained(wanted, steps=15)[0], x, rtol=0, atol=1e-12)


def weight(simulation: Simulation, agents: list[TrainingAgent]) -> float:
    """Σ w of all agents and of the messages that nobody has taken in."""
    messages = [each for box in simulation.meadow.mailboxes.values() for each in box.messages]
    rules: list[Any] = [agent.connections.optimizer for agent in agents]
    return float(sum(rule.w[0] for rule in rules) + sum(message.arrays[1][0] for message in messages))


def test_who_has_done_its_steps_gossips_on_until_all_have() -> None:
    """A straggler of factor 20 takes most of its steps when the others have none left: all end where it does,
    no message is left over, and Σ w = P on the agents alone."""
    wanted = experiment(
        d5.optimizers.AsynchronousGradientPush(), d5.optimizers.SGD(ETA), agents=None,
        topology=d5.topologies.DirectedRing(4),
        slow=(d5.faults.Slowdown(1, 20.0),), dataset=dataset(120),
    )  # fmt: skip
    with d5.simulate(wanted, IDEAL, UNEVEN) as group:
        group.train(40, progress=False)
        assert not any(mailbox.messages for mailbox in group._simulation.meadow.mailboxes.values())
        rules: list[Any] = [agent.connections.optimizer for agent in group.agents]
        assert sum(float(rule.w[0]) for rule in rules) == pytest.approx(4, abs=1e-12)
        models = np.stack([flat(group, rank) for rank in range(4)])
    way = np.linalg.norm(models.mean(axis=0) - start_of(wanted))
    assert np.linalg.norm(models - models.mean(axis=0), axis=1).max() < 0.1 * way  # 0.8 if they did not


@pytest.mark.parametrize("topology", [d5.topologies.OnePeerExponential(4), d5.topologies.Exponential(6)])
@pytest.mark.parametrize("slow", [(), SLOW], ids=["even", "straggler"])
def test_without_staleness_overlap_sgp_is_stochastic_gradient_push(topology: d5.Topology, slow: Any) -> None:
    """The same parameters on every agent after 20 steps, whoever is slow, to 1e-12."""
    found, expected = (
        trained(
            experiment(rule, d5.optimizers.Momentum(0.05, 0.9), agents=None, topology=topology, slow=slow),
            d5.simulation.UniformLinks(1e-3, 1e6), UNEVEN, steps=20,
        )
        for rule in (d5.optimizers.OverlapSGP(0), d5.optimizers.StochasticGradientPush())
    )  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_overlap_sgp_waits_for_letters_that_are_too_late_and_for_no_others() -> None:
    """With s = 2 an agent is at most ring distance + 2 … steps ahead: with a straggler of factor 10 the step
    time of all becomes the straggler's, and without staleness it does at once."""
    for staleness in (0, 2):
        wanted = experiment(
            d5.optimizers.OverlapSGP(staleness), d5.optimizers.SGD(ETA), agents=None,
            topology=d5.topologies.DirectedRing(3),
            slow=(d5.faults.Slowdown(0, 10.0),),
        )  # fmt: skip
        with d5.simulate(wanted, IDEAL, d5.simulation.ConstantTime(1e-3)) as group:
            group.train(30, progress=False)
            rows = group.metrics().to_pandas()
        last = rows[(rows.metric == "step_time") & (rows.step >= 20)]
        assert last.groupby("rank").value.median().to_numpy() == pytest.approx([1e-2] * 3, rel=1e-6)
        first = rows[(rows.metric == "step_time") & (rows["rank"] == 1) & (rows.step < staleness)]
        assert first.value.to_list() == pytest.approx([1e-3] * staleness)


def test_a_walking_model_merges_by_age() -> None:
    """x ← (a x + b y) / (a + b), a ← max(a, b): against the formula, with messages of the test's own."""
    wanted = experiment(
        d5.optimizers.RandomWalkGossip(), d5.optimizers.SGD(ETA), agents=None, topology=d5.topologies.Ring(3)
    )
    with simulated_agents(wanted, IDEAL, UNEVEN) as (simulation, agents):
        y, b = np.arange(21.0), np.array([3.0])

        def post() -> None:
            peers_of(agents[1]).send(0, y, b)
            simulation.clock.sleep(1.0)

        together(simulation, [post])
        x = agents[0].executor.numpy_parameters()
        merged = (x + 3 * y) / 4
        g = gradient_of(wanted, 0, 0, merged)
        together(simulation, [partial(agents[0].train, 1)])
        np.testing.assert_allclose(agents[0].executor.numpy_parameters(), merged - ETA * g, atol=1e-12)
        rule: Any = agents[0].connections.optimizer
        assert rule.age == [4.0]


@dataclass(frozen=True)
class World:
    """Who gossips with whom, how slowly."""

    graph: int  # seed of a connected random graph
    agents: int
    steps: int
    latency: float
    bandwidth: float
    seed: int
    factor: float


def connected(world: World) -> d5.Topology:
    """A random connected graph: a random tree with a few more edges."""
    rng = np.random.default_rng(world.graph)
    graph = networkx.Graph()
    graph.add_nodes_from(range(world.agents))
    for rank in range(1, world.agents):
        graph.add_edge(rank, int(rng.integers(rank)))
    for _ in range(int(rng.integers(3))):
        a, b = rng.choice(world.agents, 2, replace=False)
        graph.add_edge(int(a), int(b))
    return d5.topologies.Custom(graph)


@pytest.mark.parametrize(
    "rule",
    [d5.optimizers.ADPSGD(), d5.optimizers.AsynchronousGradientPush(), d5.optimizers.OverlapSGP(1),
     d5.optimizers.RandomWalkGossip()],
    ids=repr,
)  # fmt: skip
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(
    world=st.builds(
        World, graph=st.integers(0, 10**6), agents=st.integers(2, 7), steps=st.integers(1, 6),
        latency=st.sampled_from((0.0, 1e-5, 1e-3, 3e-2)), bandwidth=st.sampled_from((1e4, 1e6, 1e12)),
        seed=st.integers(0, 1000), factor=st.sampled_from((1.0, 4.0, 40.0)),
    )
)  # fmt: skip
def test_nobody_waits_for_ever_and_nothing_is_lost(rule: d5.DistributedOptimizer, world: World) -> None:
    """Random graphs, links, paces and stragglers: no deadlock; sums are what the gradients make them."""
    wanted = experiment(
        rule, d5.optimizers.SGD(ETA), agents=None, topology=connected(world), seed=world.seed,
        slow=(d5.faults.Slowdown(world.agents - 1, world.factor),),
    )  # fmt: skip
    links = d5.simulation.UniformLinks(world.latency, world.bandwidth)
    with simulated_agents(wanted, links, UNEVEN) as (simulation, agents):
        outcomes = together(simulation, [partial(agent.train, world.steps) for agent in agents])
        assert [outcome.completed for outcome in outcomes] == [True] * world.agents
        assert not any(window.waiting or window.taken for window in simulation.meadow.windows.values())
        if isinstance(rule, d5.optimizers.ADPSGD):
            gradients = np.sum([a.executor._inner.total for a in agents], axis=0)  # type: ignore[attr-defined]
            found = np.sum([peers_of(agent).window for agent in agents], axis=0)
            expected = world.agents * start_of(wanted) - ETA * gradients
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
        elif not isinstance(rule, d5.optimizers.RandomWalkGossip):
            together(simulation, [partial(simulation.clock.sleep, 1e3)])  # messages under way arrive
            assert weight(simulation, agents) == pytest.approx(world.agents, abs=1e-10)


def test_the_graph_closes_over_a_gap() -> None:
    """Neighbours of one that is gone become each other's, however many are gone in a row."""
    ring = d5.topologies.Ring(6)
    assert reachable(ring, 1, 0, {2}) == (0, 3)
    assert reachable(ring, 1, 0, {2, 3}) == (0, 4)
    assert reachable(d5.topologies.DirectedRing(5), 0, 0, {1, 2}) == (3,)
    assert reachable(d5.topologies.Ring(2), 0, 0, {1}) == ()


def test_windows_of_the_dead_are_free() -> None:
    """An agent that dies while it holds its window, on the way to another's, leaves no lock behind."""
    simulation = Simulation.of(d5.simulation.UniformLinks(1e-3, 1e9), d5.simulation.ConstantTime(), 0)
    meadow: Meadow = simulation.meadow
    clock = simulation.clock
    peers = [
        SimulatedPeers(meadow, np.full(2, float(r)), Absent(Group("all", 1, r, 3), d5.topologies.Complete(3)))
        for r in range(3)
    ]
    first = clock.start(lambda: peers[0].average(1), "first")
    second = clock.start(lambda: clock.sleep(0.002), "second")

    def die() -> None:
        clock.kill(first)
        meadow.lose(0)

    clock.at(0.0005, die)
    clock.run([second])
    assert meadow.windows[0].taken is None and meadow.windows[1].taken is None
    third = clock.start(lambda: peers[1].average(2), "third")
    clock.run([third])
    np.testing.assert_array_equal(peers[1].window, [1.5, 1.5])
