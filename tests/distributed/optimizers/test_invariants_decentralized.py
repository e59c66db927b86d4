"""What must hold of the rules that speak with neighbours alone: means, exactness, consensus, and drift"""

from dataclasses import dataclass, replace
from typing import Any, final

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.distributed.compression.compressor import Compressor
from d5ray.distributed.compression.precision import Identity
from d5ray.distributed.compression.random_k import RandomK
from d5ray.distributed.compression.top_k import TopK
from d5ray.distributed.optimizers.allreduce import AllreduceSGD
from d5ray.distributed.optimizers.choco_sgd import ChocoSGD
from d5ray.distributed.optimizers.consistent_neighbors import ConsistentNeighbors
from d5ray.distributed.optimizers.dpsgd import DPSGD, AdaptThenCombine
from d5ray.distributed.optimizers.exact_diffusion import ExactDiffusion
from d5ray.distributed.optimizers.gradient_tracking import GradientTracking
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.optimizers.stochastic_gradient_push import StochasticGradientPush
from d5ray.distributed.topologies.circulant import DirectedRing, Exponential, OnePeerExponential
from d5ray.distributed.topologies.custom import Custom
from d5ray.distributed.topologies.graph import CommunicationGraph, Matrix
from d5ray.distributed.topologies.mixing import Mixing, Uniform
from d5ray.distributed.topologies.requirements import check_topology
from d5ray.distributed.topologies.time_varying import TimeVarying
from d5ray.distributed.topologies.topology import Complete, Ring, Topology
from d5ray.distributed.topologies.undirected import Hypercube, Star, Torus, Tree
from d5ray.errors import ConfigurationError
from d5ray.training.optimizers.gradient_descent import SGD, Momentum
from tests.distributed.quadratic import (
    SIZE,
    Array,
    Quadratics,
    batches_of,
    course,
    noise,
    quadratics,
    train,
    zeros,
)

ETA = 0.1
IRREGULAR = networkx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2), (2, 3), (3, 4), (4, 0), (1, 4)])
Rule = DistributedOptimizer


@final
@dataclass(frozen=True)
class Given(Mixing):
    """These weights."""

    weights: tuple[tuple[float, ...], ...]

    def matrix(self, topology: CommunicationGraph, round: int) -> Matrix:
        return np.array(self.weights)


def given_weights(matrix: Array) -> Topology:
    return Complete(len(matrix), mixing=Given(tuple(map(tuple, matrix.tolist()))))


def doubly_stochastic(agents: int, seed: int, symmetric: bool = False) -> Array:
    """A random one: a weighted mean of permutations (Birkhoff), of the identity too."""
    rng = np.random.default_rng([agents, seed])
    permutations = [np.eye(agents)[rng.permutation(agents)] for _ in range(4)]
    if symmetric:
        permutations += [matrix.T for matrix in permutations]
    shares = rng.dirichlet(np.ones(4))
    shares = np.concatenate([shares, shares]) / 2 if symmetric else shares
    return np.asarray(0.5 * np.eye(agents) + 0.5 * np.einsum("k,kij->ij", shares, permutations))


def flat(agents: int, seed: int = 3) -> Quadratics:
    """Different starts and no objective: what remains is mixing."""
    start = quadratics(agents, seed).start
    return Quadratics(np.zeros((agents, SIZE, SIZE)), np.zeros((agents, SIZE)), start)


def bowls(agents: int) -> Quadratics:
    """½ ‖x‖² for everyone, from one start."""
    identity = np.tile(np.eye(SIZE), (agents, 1, 1))
    return Quadratics(identity, np.zeros((agents, SIZE)), np.zeros((agents, SIZE)))


# -- means ---------------------------------------------------------------------------------------------------

KEEPING = [
    DPSGD(), AdaptThenCombine(), GradientTracking(), ExactDiffusion(), StochasticGradientPush(),
    ChocoSGD(TopK(2), 0.4), ChocoSGD(RandomK(3), 0.3), ChocoSGD(Identity(), 1.0),
]  # fmt: skip


@pytest.mark.parametrize("rule", KEEPING, ids=repr)
@settings(derandomize=True, deadline=None, max_examples=8)
@given(agents=st.integers(2, 8), seed=st.integers(0, 999))
def test_the_mean_of_parameters_follows_the_mean_gradient(rule: Rule, agents: int, seed: int) -> None:
    """x̄⁺ = x̄ − η ḡ for any doubly stochastic W, with the gradients at each agent's own parameters."""
    symmetric = isinstance(rule, (ExactDiffusion, ChocoSGD))
    topology = given_weights(doubly_stochastic(agents, seed, symmetric))
    check_topology(topology, rule.needs, repr(rule))
    problem, samples = quadratics(agents, seed), noise(agents, 6, seed=seed)
    got = course(rule, SGD(ETA), topology, problem, batches_of(samples))
    for before, after, sample in zip(got, got[1:], samples, strict=False):
        gradients = problem.gradients(before) + sample.mean(axis=1)
        expected = before.mean(axis=0) - ETA * gradients.mean(axis=0)
        np.testing.assert_allclose(after.mean(axis=0), expected, rtol=1e-12, atol=1e-13)


VARYING = [OnePeerExponential(8), OnePeerExponential(6), TimeVarying((Ring(4), Star(4), Hypercube(4)))]


@pytest.mark.parametrize("topology", VARYING, ids=repr)
@pytest.mark.parametrize("rule", KEEPING[:3], ids=repr)
def test_the_mean_follows_the_mean_gradient_on_changing_graphs(rule: Rule, topology: Topology) -> None:
    """x̄⁺ = x̄ − η ḡ where every round has a W of its own."""
    problem, samples = quadratics(topology.agents), noise(topology.agents, 8)
    got = course(rule, SGD(ETA), topology, problem, batches_of(samples))
    for before, after, sample in zip(got, got[1:], samples, strict=False):
        gradients = problem.gradients(before) + sample.mean(axis=1)
        expected = before.mean(axis=0) - ETA * gradients.mean(axis=0)
        np.testing.assert_allclose(after.mean(axis=0), expected, rtol=1e-12, atol=1e-13)


# -- W = 11ᵀ/n -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agents", [2, 4, 7])
def test_with_a_full_mean_adapt_then_combine_is_allreduce(agents: int) -> None:
    """Momentum too, whose local velocities have the allreduced one as their mean."""
    problem, samples = quadratics(agents, same_start=True), noise(agents, 12)
    for base in (SGD(ETA), Momentum(0.05, 0.9)):
        ours = course(AdaptThenCombine(), base, Complete(agents), problem, batches_of(samples))
        theirs = course(AllreduceSGD(), base, Complete(agents), problem, batches_of(samples))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("agents", [2, 4, 7])
def test_with_a_full_mean_dpsgd_differs_from_allreduce_from_step_two_on(agents: int) -> None:
    """Its gradients are taken before the mean: the mean model agrees after one step, and never again."""
    problem, samples = quadratics(agents, same_start=True), noise(agents, 12)
    ours = course(DPSGD(), SGD(ETA), Complete(agents), problem, batches_of(samples)).mean(axis=1)
    theirs = course(AllreduceSGD(), SGD(ETA), Complete(agents), problem, batches_of(samples)).mean(axis=1)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-13)
    assert np.abs(ours[2:] - theirs[2:]).max(axis=1).min() > 1e-4


# -- constant learning rate: bias, and none ------------------------------------------------------------------


def test_dpsgd_keeps_a_bias_that_solves_its_fixed_point() -> None:
    """x = W x − η A (x − c): a linear system, whose solution is not the minimum."""
    agents, topology = 4, Ring(4)
    problem = quadratics(agents)
    got = course(DPSGD(), SGD(ETA), topology, problem, batches_of(zeros(agents, 500)))[-1]
    mixing = np.kron(np.eye(agents) - topology.weights(), np.eye(SIZE))
    hessian = np.zeros_like(mixing)
    for rank in range(agents):
        block = slice(rank * SIZE, (rank + 1) * SIZE)
        hessian[block, block] = problem.curvatures[rank]
    fixed = np.linalg.solve(mixing + ETA * hessian, ETA * hessian @ problem.centres.reshape(-1))
    np.testing.assert_allclose(got, fixed.reshape(agents, SIZE), rtol=1e-9)
    assert np.abs(got - problem.minimum).max() > 0.1


EXACT = [
    (GradientTracking(), Ring(4)), (GradientTracking(), Exponential(6)),
    (GradientTracking(), OnePeerExponential(4)), (ExactDiffusion(), Ring(4)), (ExactDiffusion(), Star(5)),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("rule", "topology"), EXACT, ids=[f"{a!r}-{b!r}" for a, b in EXACT])
def test_the_exact_minimum_at_a_constant_learning_rate(rule: Rule, topology: Topology) -> None:
    """Every agent ends at the minimum of the sum, within 1e-12, though the agents' own minima differ."""
    problem = quadratics(topology.agents)
    got = course(rule, SGD(0.1), topology, problem, batches_of(zeros(topology.agents, 800)))[-1]
    np.testing.assert_allclose(got, np.tile(problem.minimum, (topology.agents, 1)), rtol=0, atol=1e-12)
    assert np.abs(problem.centres - problem.minimum).max() > 0.5


@pytest.mark.parametrize("topology", [Ring(5), Exponential(6), OnePeerExponential(8)], ids=repr)
def test_the_mean_of_trackers_is_the_mean_gradient(topology: Topology) -> None:
    """ȳ = ḡ after every step, with noise and on changing graphs."""
    agents = topology.agents
    problem, samples = quadratics(agents), noise(agents, 20)
    got = course(
        GradientTracking(), SGD(ETA), topology, problem, batches_of(samples),
        watch=lambda optimizer: np.stack([optimizer.x, optimizer.y]),
    )  # fmt: skip
    for before, after, sample in zip(got[:, :, 0], got[1:, :, 1], samples, strict=False):
        gradients = problem.gradients(before) + sample.mean(axis=1)
        np.testing.assert_allclose(after.mean(axis=0), gradients.mean(axis=0), rtol=1e-12, atol=1e-13)


# -- push-sum ------------------------------------------------------------------------------------------------


DIRECTED = [Custom(IRREGULAR), Custom(IRREGULAR.reverse())]


@pytest.mark.parametrize("topology", [*DIRECTED, DirectedRing(4), OnePeerExponential(6)], ids=repr)
def test_push_sum_conserves_weight_and_numerator(topology: Topology) -> None:
    """Σ w = n, and Σ u⁺ = Σ u − η Σ g(z), on every graph; z = u / w."""
    agents = topology.agents
    problem, samples = quadratics(agents), noise(agents, 15)
    got = course(
        StochasticGradientPush(), SGD(ETA), topology, problem, batches_of(samples),
        watch=lambda optimizer: np.concatenate([optimizer.x, optimizer.u, optimizer.w]),
    )  # fmt: skip
    z, u, w = got[:, :, :SIZE], got[:, :, SIZE : 2 * SIZE], got[:, :, 2 * SIZE :]
    np.testing.assert_allclose(w.sum(axis=1), agents, rtol=1e-13)
    np.testing.assert_allclose(z, u / w, rtol=1e-13)
    for step, sample in enumerate(samples):
        gradients = problem.gradients(z[step]) + sample.mean(axis=1)
        expected = u[step].sum(axis=0) - ETA * gradients.sum(axis=0)
        np.testing.assert_allclose(u[step + 1].sum(axis=0), expected, rtol=1e-12, atol=1e-12)
    uneven = topology in DIRECTED
    assert (np.abs(w[-1] - 1).max() > 0.1) == uneven


@pytest.mark.parametrize("topology", DIRECTED, ids=["irregular", "reversed"])
def test_push_sum_finds_the_mean_where_weights_alone_do_not(topology: Topology) -> None:
    """Without an objective z → the mean of the starts; u itself does not."""
    problem = flat(topology.agents)
    mean = problem.start.mean(axis=0)
    got = course(
        StochasticGradientPush(), SGD(ETA), topology, problem, batches_of(zeros(topology.agents, 150)),
        watch=lambda optimizer: np.stack([optimizer.x, optimizer.u]),
    )[-1]  # fmt: skip
    np.testing.assert_allclose(got[:, 0], np.tile(mean, (topology.agents, 1)), rtol=1e-11, atol=1e-12)
    assert np.abs(got[:, 1] - mean).max() > 0.1


@pytest.mark.parametrize("topology", [Ring(4), Exponential(6), OnePeerExponential(8), Complete(3)], ids=repr)
def test_push_with_doubly_stochastic_weights_is_adapt_then_combine(topology: Topology) -> None:
    """w stays 1."""
    problem, samples = quadratics(topology.agents), noise(topology.agents, 15)
    for base in (SGD(ETA), Momentum(0.05, 0.9)):
        ours = course(StochasticGradientPush(), base, topology, problem, batches_of(samples))
        theirs = course(AdaptThenCombine(), base, topology, problem, batches_of(samples))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


# -- consensus -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agents", "rounds", "exact"), [(2, 1, True), (4, 2, True), (8, 3, True), (6, 3, False)]
)
@pytest.mark.parametrize("rule", [DPSGD(), AdaptThenCombine(), StochasticGradientPush()], ids=repr)
def test_one_peer_exponential_agrees_after_log2_rounds(
    rule: Rule, agents: int, rounds: int, exact: bool
) -> None:
    """Of n = 2^k agents, k rounds are 11ᵀ/n; not one round less, and not for n = 6."""
    problem = flat(agents)
    got = course(rule, SGD(ETA), OnePeerExponential(agents), problem, batches_of(zeros(agents, rounds)))
    away = np.abs(got - problem.start.mean(axis=0)).max(axis=(1, 2))
    assert (away[-1] < 1e-14) == exact
    assert away[-2] > 0.1
    if not exact:
        assert away[-1] > 0.01


# -- CHOCO ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topology", [Ring(4), Star(5), Torus(2, 3)], ids=repr)
def test_choco_without_compression_is_adapt_then_combine(topology: Topology) -> None:
    """C = I and γ = 1 give W x."""
    problem, samples = quadratics(topology.agents), noise(topology.agents, 15)
    ours = course(ChocoSGD(Identity(), 1.0), SGD(ETA), topology, problem, batches_of(samples))
    theirs = course(AdaptThenCombine(), SGD(ETA), topology, problem, batches_of(samples))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("compressor", [TopK(2), RandomK(3), Identity()], ids=repr)
@pytest.mark.parametrize("topology", [Ring(5), Star(4)], ids=repr)
def test_chocos_replicas_of_an_agent_are_equal_everywhere(topology: Topology, compressor: Compressor) -> None:
    """What j and its neighbours hold for x̂_j is the same to the bit, after every step."""
    agents = topology.agents
    seen = train(
        ChocoSGD(compressor, 0.3), SGD(ETA), topology, quadratics(agents), batches_of(noise(agents, 8)),
        watch=lambda optimizer: {rank: x.copy() for rank, x in optimizer.replicas.items()},
    )  # fmt: skip
    for step in range(1, 9):
        for rank in range(agents):
            assert set(seen[rank][step]) == {rank, *topology.neighbors(rank)}
            assert np.abs(seen[rank][step][rank]).max() > 0
            for neighbor in topology.neighbors(rank):
                np.testing.assert_array_equal(seen[rank][step][neighbor], seen[neighbor][step][neighbor])


@pytest.mark.parametrize(
    ("compressor", "gamma"), [(TopK(2), 0.4), (TopK(1), 0.2), (RandomK(2), 0.15)], ids=repr
)
def test_choco_gossip_reaches_the_mean_through_compression(compressor: Compressor, gamma: float) -> None:
    """Without an objective every x_i → the mean of the starts, which every step keeps."""
    problem = flat(4)
    mean = problem.start.mean(axis=0)
    got = course(ChocoSGD(compressor, gamma), SGD(ETA), Ring(4), problem, batches_of(zeros(4, 400)))
    np.testing.assert_allclose(got.mean(axis=1), np.tile(mean, (401, 1)), rtol=0, atol=1e-13)
    assert np.abs(got[-1] - mean).max() < 1e-6 < 0.1 < np.abs(got[5] - mean).max()


# -- the slide's listing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("agents", [4, 8])
def test_consistent_neighbors_diverges_where_dpsgd_does_not(agents: int) -> None:
    """½ ‖x‖² with noise on a ring: the alternating difference grows by 1 + η/3 a step, from noise alone."""
    eta, steps = 0.3, 150
    samples = noise(agents, steps)
    drifting = course(ConsistentNeighbors(), SGD(eta), Ring(agents), bowls(agents), batches_of(samples))
    alternating = np.resize([1.0, -1.0], agents)
    difference = np.zeros(SIZE)
    for sample in samples:
        difference = (1 + eta / 3) * difference + eta / 3 * alternating @ sample.mean(axis=1)
    np.testing.assert_allclose(alternating @ drifting[-1], difference, rtol=1e-9)
    assert np.abs(drifting[-1]).max() > 1e4
    staying = course(DPSGD(), SGD(eta), Ring(agents), bowls(agents), batches_of(samples))
    assert np.abs(staying).max() < 1.5


def test_consistent_neighbors_never_forgets_a_difference_between_two_agents() -> None:
    """n = 2: both take the same step, (g_0 + g_1)/3, so x_0 − x_1 stays; D-PSGD ends it."""
    samples = noise(2, 60)
    start = np.array([np.full(SIZE, 2.0), np.full(SIZE, -1.0)])
    problem = replace(bowls(2), start=start)
    got = course(ConsistentNeighbors(), SGD(0.3), Ring(2), problem, batches_of(samples))
    np.testing.assert_allclose(got[:, 0] - got[:, 1], 3.0, rtol=1e-12)
    mixed = course(DPSGD(), SGD(0.3), Ring(2), problem, batches_of(samples))
    assert np.abs(mixed[20:, 0] - mixed[20:, 1]).max() < 1.5


# -- needs ---------------------------------------------------------------------------------------------------


WRONG: list[tuple[Rule, Any, str]] = [
    (DPSGD(), Star(4, mixing=Uniform()), "doubly stochastic"),
    (AdaptThenCombine(), Custom(IRREGULAR), "doubly stochastic"),
    (GradientTracking(), Custom(IRREGULAR), "doubly stochastic"),
    (DPSGD(), Custom(networkx.Graph([(0, 1), (2, 3)])), "reach every other"),
    (StochasticGradientPush(), Star(4, mixing=Uniform()), "columns that sum to one"),
    (StochasticGradientPush(), Custom(networkx.DiGraph([(0, 1), (1, 2)])), "reach every other"),
    (ExactDiffusion(), Exponential(6), "symmetric"),
    (ExactDiffusion(), TimeVarying((Ring(4), Complete(4))), "one that stays"),
    (ChocoSGD(TopK(2), 0.4), TimeVarying((Ring(4), Complete(4))), "one that stays"),
    (ChocoSGD(TopK(2), 0.4), DirectedRing(4), "symmetric"),
    (ConsistentNeighbors(), DirectedRing(4), "both ways"),
]


@pytest.mark.parametrize(("rule", "topology", "words"), WRONG)
def test_a_topology_that_does_not_fit_is_refused(rule: Rule, topology: Topology, words: str) -> None:
    """Before anything starts, with what the rule needs."""
    with pytest.raises(ConfigurationError, match=words):
        check_topology(topology, rule.needs, type(rule).__name__)


@pytest.mark.parametrize("rule", KEEPING, ids=repr)
@pytest.mark.parametrize("topology", [Ring(4), Complete(2), Tree(7), Torus(3, 3), Star(5)], ids=repr)
def test_an_undirected_topology_fits_every_rule(rule: Rule, topology: Topology) -> None:
    """Metropolis-Hastings weights are symmetric and doubly stochastic."""
    check_topology(topology, rule.needs, type(rule).__name__)
