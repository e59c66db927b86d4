"""Every distributed optimizer is its matrix recursion: agents in threads against stacked NumPy"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import networkx
import numpy as np
import pytest

import d5ray as d5
from d5ray.compression import Identity, TopK
from d5ray.distributed.topologies.requirements import check_topology
from d5ray.optimizers import SGD, ChocoSGD, HierarchicalAveraging, Momentum, Nesterov, PostLocalSGD
from d5ray.topologies import Complete, Custom, DirectedRing, OnePeerExponential, Ring, Star, Torus, Tree
from tests.distributed.quadratic import Array, Quadratics, batches_of, course, noise, quadratics

STEPS = 14
ETA, MU = 0.05, 0.8
BASES: list[d5.Optimizer] = [SGD(ETA), Momentum(ETA, MU), Nesterov(ETA, MU)]


@dataclass
class Mover:
    """What a base optimizer adds to x (…) for a gradient (…), of all agents at once."""

    eta: float
    mu: float = 0.0
    nesterov: bool = False
    v: Array = field(default_factory=lambda: np.zeros(1))

    def __call__(self, gradients: Array) -> Array:
        self.v = self.mu * self.v + gradients
        return -self.eta * (gradients + self.mu * self.v if self.nesterov else self.v)


def mover(base: d5.Optimizer) -> Mover:
    return Mover(base.learning_rate, getattr(base, "momentum", 0.0), isinstance(base, Nesterov))


@dataclass(frozen=True)
class World:
    """What a recursion is made of; arrays of all agents are (agents, SIZE)."""

    problem: Quadratics
    topology: d5.Topology
    samples: Array  # (steps, agents, batch, SIZE)
    move: Mover

    @property
    def x(self) -> Array:
        return self.problem.start.copy()

    @property
    def steps(self) -> range:
        return range(len(self.samples))

    def g(self, x: Array, t: int) -> Array:
        return np.asarray(self.problem.gradients(x) + self.samples[t].mean(axis=1))

    def w(self, t: int) -> Array:
        return self.topology.weights(t)

    def mean(self, x: Array) -> Array:
        return np.tile(x.mean(axis=0), (len(x), 1))


Recursion = Callable[[World], Iterator[Array]]


def allreduce(world: World) -> Iterator[Array]:
    x = world.x
    for t in world.steps:
        x = x + world.move(world.mean(world.g(x, t)))
        yield x


def growing(world: World) -> Iterator[Array]:
    """k = 1 before step 3, then 2; the pair that step 8 falls into ends with it, then k = 4."""
    x, gathered = world.x, []
    ends = {0: 1, 1: 1, 2: 1, 4: 2, 6: 2, 8: 2, 12: 4}
    for t in world.steps:
        gathered.append(world.mean(world.g(x, t)))
        if t in ends:
            assert len(gathered) == ends[t]
            x, gathered = x + world.move(np.mean(gathered, axis=0)), []
        yield x


def model_averaging(world: World) -> Iterator[Array]:
    x = world.x
    for t in world.steps:
        x = world.mean(x + world.move(world.g(x, t)))
        yield x


def periods(period: int, outer: Callable[[Array, Array], Array]) -> Recursion:
    """Local steps; after a period the common model is outer(common model before, mean of the local ones)."""

    def recursion(world: World) -> Iterator[Array]:
        x = common = world.x
        for t in world.steps:
            x = x + world.move(world.g(x, t))
            if t % period == period - 1:
                x = common = outer(common, world.mean(x))
            yield x

    return recursion


def post_local(synchronous: int, period: int) -> Recursion:
    def recursion(world: World) -> Iterator[Array]:
        x = world.x
        for t in world.steps:
            g = world.g(x, t)
            x = x + world.move(world.mean(g) if t < synchronous else g)
            if t >= synchronous and (t - synchronous) % period == period - 1:
                x = world.mean(x)
            yield x

    return recursion


def hierarchical(size: int, period: int, global_period: int) -> Recursion:
    def recursion(world: World) -> Iterator[Array]:
        x = world.x
        for t in world.steps:
            x = x + world.move(world.g(x, t))
            if t % global_period == global_period - 1:
                x = world.mean(x)
            elif t % period == period - 1:
                groups = np.split(x, range(size, len(x), size))
                x = np.concatenate([world.mean(group) for group in groups])
            yield x

    return recursion


def diloco(period: int) -> Recursion:
    def recursion(world: World) -> Iterator[Array]:
        outer = Mover(0.7, 0.9, nesterov=True)
        return periods(period, lambda x, mean: x + outer(x - mean))(world)

    return recursion


def slowmo(period: int, beta: float, alpha: float) -> Recursion:
    def recursion(world: World) -> Iterator[Array]:
        u = np.zeros(1)
        gamma = world.move.eta

        def outer(x: Array, mean: Array) -> Array:
            nonlocal u
            u = beta * u + (x - mean) / gamma
            return x - alpha * gamma * u

        return periods(period, outer)(world)

    return recursion


def bmuf(period: int, mu: float, zeta: float) -> Recursion:
    def recursion(world: World) -> Iterator[Array]:
        change = np.zeros(1)

        def outer(x: Array, mean: Array) -> Array:
            nonlocal change
            change = mu * change + zeta * (mean - x)
            return x + change

        return periods(period, outer)(world)

    return recursion


def dpsgd(world: World) -> Iterator[Array]:
    x = world.x
    for t in world.steps:
        x = world.w(t) @ x + world.move(world.g(x, t))
        yield x


def adapt_then_combine(world: World) -> Iterator[Array]:
    x = world.x
    for t in world.steps:
        x = world.w(t) @ (x + world.move(world.g(x, t)))
        yield x


def consistent_neighbors(world: World) -> Iterator[Array]:
    x = world.x
    closed = world.topology.adjacency() + np.eye(len(x))
    for t in world.steps:
        x = x + world.move(closed @ world.g(x, t) / 3)
        yield x


def diging(world: World) -> Iterator[Array]:
    x = world.x
    g = y = world.g(x, 0)
    for t in world.steps:
        x = world.w(t) @ x + world.move(y)
        if t + 1 < len(world.steps):
            after = world.g(x, t + 1)
            y = world.w(t) @ y + after - g
            g = after
        yield x


def exact_diffusion(world: World) -> Iterator[Array]:
    x = psi = world.x
    for t in world.steps:
        adapted = x + world.move(world.g(x, t))
        x = (np.eye(len(x)) + world.w(t)) / 2 @ (adapted + x - psi)
        psi = adapted
        yield x


def push(world: World) -> Iterator[Array]:
    u, z, w = world.x, world.x, np.ones((len(world.x), 1))
    for t in world.steps:
        u = world.w(t) @ (u + world.move(world.g(z, t)))
        w = world.w(t) @ w
        z = u / w
        yield z


def choco(compress: Callable[[Array], Array], gamma: float) -> Recursion:
    def recursion(world: World) -> Iterator[Array]:
        x = world.x
        known = np.zeros_like(x)
        for t in world.steps:
            x = x + world.move(world.g(x, t))
            known = known + np.array([compress(row) for row in x - known])
            x = x + gamma * (world.w(t) - np.eye(len(x))) @ known
            yield x

    return recursion


def top_two(row: Array) -> Array:
    kept = np.zeros_like(row)
    for index in sorted(range(len(row)), key=lambda i: -abs(row[i]))[:2]:
        kept[index] = row[index]
    return kept


IRREGULAR = networkx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2), (2, 3), (3, 4), (4, 0), (1, 4)])
# who talks with whom does not matter; more agents than parameters too
CENTRAL = [Complete(1), Complete(2), Ring(5), Complete(8)]
SYMMETRIC = [Complete(1), Complete(2), Ring(4), Star(5), Tree(7), Torus(2, 3)]
DOUBLY = [
    *SYMMETRIC, d5.topologies.Hypercube(8), d5.topologies.Exponential(6), DirectedRing(3),
    OnePeerExponential(4), OnePeerExponential(6), d5.topologies.TimeVarying((Ring(4), Complete(4), Star(4))),
]  # fmt: skip
PUSH = [Custom(IRREGULAR), Custom(IRREGULAR.reverse()), *DOUBLY]
RULES: list[tuple[d5.DistributedOptimizer, Recursion, list[d5.Topology]]] = [
    (d5.optimizers.AllreduceSGD(), allreduce, CENTRAL),
    (d5.optimizers.OverlappedAllreduceSGD(bucket_bytes=20), allreduce, CENTRAL),
    (d5.optimizers.ShardedAllreduceSGD(), allreduce, CENTRAL),
    (d5.optimizers.GrowingBatch(milestones=(3, 8)), growing, CENTRAL),
    (d5.optimizers.ModelAveraging(), model_averaging, CENTRAL),
    *((d5.optimizers.LocalSGD(n), periods(n, lambda common, mean: mean), CENTRAL) for n in (1, 5)),
    *((PostLocalSGD(*own), post_local(*own), CENTRAL) for own in ((5, 4), (0, 4), (20, 4))),
    *((HierarchicalAveraging(*own), hierarchical(*own), CENTRAL)
      for own in ((2, 2, 6), (3, 1, 4), (5, 3, 3), (1, 1, 4), (8, 4, 20))),
    (d5.optimizers.DiLoCo(5), diloco(5), CENTRAL),
    (d5.optimizers.SlowMo(4), slowmo(4, 0.7, 1.0), CENTRAL),
    (d5.optimizers.SlowMo(4, 0.6, 0.9), slowmo(4, 0.6, 0.9), CENTRAL),
    (d5.optimizers.BMUF(4), bmuf(4, 0.9, 1.0), CENTRAL),
    (d5.optimizers.BMUF(4, 0.6, 0.9), bmuf(4, 0.6, 0.9), CENTRAL),
    (d5.optimizers.DPSGD(), dpsgd, DOUBLY),
    (d5.optimizers.AdaptThenCombine(), adapt_then_combine, DOUBLY),
    (d5.optimizers.ConsistentNeighbors(), consistent_neighbors, SYMMETRIC[1:]),
    (d5.optimizers.GradientTracking(), diging, DOUBLY),
    (d5.optimizers.ExactDiffusion(), exact_diffusion, SYMMETRIC),
    (d5.optimizers.StochasticGradientPush(), push, PUSH),
    (ChocoSGD(Identity(), 1.0), choco(np.copy, 1.0), SYMMETRIC),
    (ChocoSGD(TopK(2), 0.4), choco(top_two, 0.4), SYMMETRIC),
]  # fmt: skip
CASES = [
    pytest.param(rule, recursion, topology, id=f"{rule!r}-{topology!r}")
    for rule, recursion, topologies in RULES
    for topology in topologies
]


@pytest.mark.parametrize("base", BASES, ids=lambda base: type(base).__name__)
@pytest.mark.parametrize(("rule", "recursion", "topology"), CASES)
def test_a_rule_is_its_matrix_recursion(
    rule: d5.DistributedOptimizer, recursion: Recursion, topology: d5.Topology, base: d5.Optimizer
) -> None:
    """x of all agents after each of 14 steps, from different minima and starts, with seeded noise."""
    check_topology(topology, rule.needs, type(rule).__name__)
    problem = quadratics(topology.agents, same_start=not rule.needs)
    samples = noise(topology.agents, STEPS)
    got = course(rule, base, topology, problem, batches_of(samples))
    expected = [problem.start, *recursion(World(problem, topology, samples, mover(base)))]
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
    assert np.abs(got[-1] - got[0]).max(axis=1).min() > 0.1  # everyone moved
    if rule.one_model:
        equal = [at for at in range(STEPS + 1) if rule.equal_after(at)]
        np.testing.assert_array_equal(got[equal], np.broadcast_to(got[equal][:, :1], got[equal].shape))
