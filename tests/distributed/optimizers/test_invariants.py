"""What recursions do not show: uneven shares, exact minima, what agents hold and send, topologies refused"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import networkx
import numpy as np
import pytest

import d5ray as d5
from d5ray.compression import TopK
from d5ray.distributed.topologies.requirements import check_topology
from d5ray.errors import ConfigurationError
from d5ray.optimizers import (
    DPSGD,
    SGD,
    AdaptThenCombine,
    AllreduceSGD,
    ChocoSGD,
    ConsistentNeighbors,
    ExactDiffusion,
    GradientTracking,
    GrowingBatch,
    Momentum,
    OverlappedAllreduceSGD,
    ShardedAllreduceSGD,
    StochasticGradientPush,
)
from d5ray.topologies import Complete, Custom, DirectedRing, Exponential, OnePeerExponential, Ring, Star
from tests.distributed.quadratic import (
    SIZE,
    Array,
    batch_of,
    batches_of,
    course,
    noise,
    quadratics,
    zeros,
)

SHARES = [
    [[4], [3], [1]],
    [[4, 4], [4, 4], [3, 2]],
    [[4, 4, 4], [1, 1, 0], [4, 4, 4], [1, 0, 0]],
    [[2] * 8, [2, 2, 2, 2, 2, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0, 0], [2] * 8],
]
Rule = d5.DistributedOptimizer


def shared(shares: list[list[int]]) -> tuple[list[Array], list[list[d5.Batch]]]:
    """The union of each step's samples (samples, SIZE), and the agents' batches, weighted as `Draw` says."""
    rng = np.random.default_rng(5)
    unions = [rng.standard_normal((sum(counts), SIZE)) for counts in shares]
    batches = [
        [
            batch_of(own, step, weight=len(own) * len(counts) / len(union))
            for own in np.split(union, np.cumsum(counts)[:-1])
        ]
        for step, (counts, union) in enumerate(zip(shares, unions, strict=True))
    ]
    return unions, batches


@pytest.mark.parametrize("shares", SHARES, ids=repr)
@pytest.mark.parametrize(
    "rule",
    [AllreduceSGD(), OverlappedAllreduceSGD(1), OverlappedAllreduceSGD(30), ShardedAllreduceSGD(),
     d5.optimizers.ModelAveraging(), GrowingBatch(milestones=(2, 6))],
    ids=repr,
)  # fmt: skip
def test_agents_are_one_process_on_the_union(rule: Rule, shares: list[list[int]]) -> None:
    """Uneven and empty shares: every agent follows the mean over all samples of the step, or of several."""
    unions, batches = shared([shares[step % len(shares)] for step in range(10)])
    agents, base = len(shares[0]), Momentum(0.05, 0.9)
    problem = quadratics(agents, same_start=True, same_data=True)
    got = course(rule, base, Complete(agents), problem, batches)
    ends = [0, 1, 2, 4, 6, 10] if isinstance(rule, GrowingBatch) else list(range(11))
    grown = [[batch_of(np.concatenate(unions[a:b]))] for a, b in pairwise(ends)]
    expected = course(AllreduceSGD(), base, Complete(1), problem.only(0), grown)
    np.testing.assert_allclose(got[ends], np.repeat(expected, agents, axis=1), rtol=1e-12, atol=1e-13)
    for step in {*range(11)} - {*ends}:
        np.testing.assert_array_equal(got[step], got[step - 1])


@final
@dataclass(frozen=True)
class Remembering(d5.Optimizer):
    """Notes how much state it was asked for."""

    asked: list[int]
    learning_rate: float = 0.1

    def state(self, x: Any) -> dict[str, Any]:
        self.asked.append(len(x))
        return {}

    def update(self, x: Any, gradient: Any, state: Any) -> None:
        x -= self.learning_rate * gradient


@pytest.mark.parametrize("agents", [1, 4, 8])
def test_sharded_state_is_that_of_the_own_slice(agents: int) -> None:
    """Once each, and all agents' together have the size of the model."""
    base, problem = Remembering([]), quadratics(agents, same_start=True)
    course(ShardedAllreduceSGD(), base, Complete(agents), problem, batches_of(noise(agents, 3)))
    slices = [SIZE * (rank + 1) // agents - SIZE * rank // agents for rank in range(agents)]
    assert sorted(base.asked) == sorted(slices) and sum(slices) == SIZE


@pytest.mark.parametrize(("bucket_bytes", "exchanges"), [(1, 3), (9, 2), (1000, 1)])
def test_overlapped_buckets_are_exchanged_one_by_one(bucket_bytes: int, exchanges: int) -> None:
    """Tensors of 2, 3 and 1 parameters: as many exchanges a step on every agent, with samples or without."""
    _, batches = shared([[2, 2, 2], [1, 0, 0], [2, 2, 2]])
    seen = course(
        OverlappedAllreduceSGD(bucket_bytes), SGD(0.1), Complete(3), quadratics(3, same_start=True), batches,
        watch=lambda optimizer: np.array(optimizer.communication.traffic.messages_sent),
    )  # fmt: skip
    np.testing.assert_array_equal(np.diff(seen, axis=0), exchanges)


@pytest.mark.parametrize(
    ("rule", "topology"),
    [(GradientTracking(), Ring(4)), (GradientTracking(), OnePeerExponential(4)), (ExactDiffusion(), Star(5))],
    ids=repr,
)
def test_the_exact_minimum_at_a_constant_learning_rate(rule: Rule, topology: d5.Topology) -> None:
    """Every agent ends at the minimum of the sum, within 1e-12, though the agents' own minima differ."""
    problem = quadratics(topology.agents)
    got = course(rule, SGD(0.1), topology, problem, batches_of(zeros(topology.agents, 800)))[-1]
    np.testing.assert_allclose(got, np.tile(problem.minimum, (topology.agents, 1)), rtol=0, atol=1e-12)
    assert np.abs(problem.centres - problem.minimum).max() > 0.5


IRREGULAR = Custom(networkx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)]))
STARS = Star(4, mixing=d5.topologies.Uniform())
TURNS = d5.topologies.TimeVarying((Ring(4), Complete(4)))


@pytest.mark.parametrize(
    ("rule", "topology", "words"),
    [
        (DPSGD(), STARS, "doubly stochastic"),
        (DPSGD(), Custom(networkx.Graph([(0, 1), (2, 3)])), "reach every other"),
        (AdaptThenCombine(), IRREGULAR, "doubly stochastic"),
        (GradientTracking(), IRREGULAR, "doubly stochastic"),
        (StochasticGradientPush(), STARS, "columns that sum to one"),
        (StochasticGradientPush(), Custom(networkx.DiGraph([(0, 1), (1, 2)])), "reach every other"),
        (ExactDiffusion(), Exponential(6), "symmetric"),
        (ExactDiffusion(), TURNS, "one that stays"),
        (ChocoSGD(TopK(2), 0.4), TURNS, "one that stays"),
        (ChocoSGD(TopK(2), 0.4), DirectedRing(4), "symmetric"),
        (ConsistentNeighbors(), DirectedRing(4), "both ways"),
    ],
    ids=repr,
)
def test_a_topology_that_does_not_fit_is_refused(rule: Rule, topology: d5.Topology, words: str) -> None:
    """Before anything starts, with what the rule needs."""
    with pytest.raises(ConfigurationError, match=words):
        check_topology(topology, rule.needs, type(rule).__name__)
