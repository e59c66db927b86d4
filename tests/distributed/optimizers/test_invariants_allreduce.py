"""What must hold of the rules that exchange gradients: agents are one process on the union of samples"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np
import pytest

from d5ray.distributed.optimizers.allreduce import AllreduceSGD
from d5ray.distributed.optimizers.growing_batch import GrowingBatch
from d5ray.distributed.optimizers.local_sgd import ModelAveraging
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.optimizers.overlapped_allreduce import OverlappedAllreduceSGD
from d5ray.distributed.optimizers.sharded_allreduce import ShardedAllreduceSGD
from d5ray.distributed.topologies.topology import Complete
from d5ray.training.batches.batch import Batch
from d5ray.training.optimizers.gradient_descent import SGD, Momentum, Nesterov
from d5ray.training.optimizers.optimizer import Optimizer, State
from tests.distributed.quadratic import SIZE, Array, batch_of, batches_of, course, noise, quadratics

BASES: list[Optimizer] = [SGD(0.1), Momentum(0.05, 0.9), Nesterov(0.05, 0.9)]
SHARES = [
    [[4], [3], [1]],
    [[4, 4], [4, 4], [3, 2]],
    [[4, 4, 4], [1, 1, 0], [4, 4, 4], [1, 0, 0]],
    [[2] * 8, [2, 2, 2, 2, 2, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0, 0], [2] * 8],
]  # fmt: skip
Rule = DistributedOptimizer


def shared(shares: list[list[int]]) -> tuple[list[Array], list[list[Batch]]]:
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


@pytest.mark.parametrize("base", BASES, ids=lambda base: type(base).__name__)
@pytest.mark.parametrize("shares", SHARES, ids=repr)
@pytest.mark.parametrize(
    "rule",
    [AllreduceSGD(), OverlappedAllreduceSGD(1), OverlappedAllreduceSGD(30), ShardedAllreduceSGD(),
     ModelAveraging()],
    ids=repr,
)  # fmt: skip
def test_agents_are_one_process_on_the_union(rule: Rule, shares: list[list[int]], base: Optimizer) -> None:
    """Uneven and empty shares: every agent follows the mean over all samples of the step."""
    unions, batches = shared(shares)
    agents = len(shares[0])
    problem = quadratics(agents, same_start=True, same_data=True)
    got = course(rule, base, Complete(agents), problem, batches)
    expected = course(
        AllreduceSGD(), base, Complete(1), problem.only(0), [[batch_of(union)] for union in unions]
    )
    np.testing.assert_allclose(got, np.repeat(expected, agents, axis=1), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("base", BASES, ids=lambda base: type(base).__name__)
@pytest.mark.parametrize("shares", SHARES[1:], ids=repr)
def test_a_growing_batch_is_one_process_on_the_union_of_its_steps(
    shares: list[list[int]], base: Optimizer
) -> None:
    """Batches of 1, 1, 2, 2, 4 steps' samples, remainders included; between updates nothing moves."""
    unions, batches = shared([shares[step % len(shares)] for step in range(10)])
    agents = len(shares[0])
    problem = quadratics(agents, same_start=True, same_data=True)
    got = course(GrowingBatch(milestones=(2, 6)), base, Complete(agents), problem, batches)
    ends = [0, 1, 2, 4, 6, 10]
    grown = [[batch_of(np.concatenate(unions[a:b]))] for a, b in pairwise(ends)]
    expected = course(AllreduceSGD(), base, Complete(1), problem.only(0), grown)
    np.testing.assert_allclose(got[ends], np.repeat(expected, agents, axis=1), rtol=1e-12, atol=1e-13)
    for step in sorted({*range(11)} - {*ends}):
        np.testing.assert_array_equal(got[step], got[step - 1])


@pytest.mark.parametrize("base", BASES, ids=lambda base: type(base).__name__)
@pytest.mark.parametrize("agents", [1, 2, 4, 5, 8])
@pytest.mark.parametrize("rule", [ShardedAllreduceSGD(), OverlappedAllreduceSGD(20)], ids=repr)
def test_sharded_and_overlapped_are_allreduce_bit_for_bit(rule: Rule, agents: int, base: Optimizer) -> None:
    """Over the reference communicator, which sums in one order; with more agents than parameters, too."""
    problem, batches = quadratics(agents, same_start=True), batches_of(noise(agents, 15))
    ours = course(rule, base, Complete(agents), problem, batches)
    theirs = course(AllreduceSGD(), base, Complete(agents), problem, batches)
    np.testing.assert_array_equal(ours, theirs)


@final
@dataclass(frozen=True)
class Remembering(Optimizer):
    """Notes how much state it was asked for."""

    asked: list[int]
    learning_rate: float = 0.1

    def state(self, x: Any) -> State:
        self.asked.append(len(x))
        return {}

    def update(self, x: Any, gradient: Any, state: State) -> None:
        assert len(x) == len(gradient)
        x -= self.learning_rate * gradient


@pytest.mark.parametrize("agents", [1, 2, 4, 8])
def test_sharded_state_is_that_of_the_own_slice(agents: int) -> None:
    """Once each, and all agents' together have the size of the model."""
    base = Remembering([])
    problem = quadratics(agents, same_start=True)
    course(ShardedAllreduceSGD(), base, Complete(agents), problem, batches_of(noise(agents, 3)))
    slices = [SIZE * (rank + 1) // agents - SIZE * rank // agents for rank in range(agents)]
    assert sorted(base.asked) == sorted(slices)
    assert sum(base.asked) == SIZE


def test_overlapped_buckets_are_exchanged_one_by_one() -> None:
    """Buckets of 1, 3 and 2 parameters: three exchanges a step on every agent, with samples or without."""
    problem = quadratics(3, same_start=True)
    _, batches = shared([[2, 2, 2], [1, 0, 0], [2, 2, 2]])
    for bucket_bytes, exchanges in ((1, 3), (9, 2), (1000, 1)):
        seen = course(
            OverlappedAllreduceSGD(bucket_bytes), SGD(0.1), Complete(3), problem, batches,
            watch=lambda optimizer: np.array(optimizer.communication.traffic.messages_sent),
        )  # fmt: skip
        np.testing.assert_array_equal(np.diff(seen, axis=0), exchanges)
