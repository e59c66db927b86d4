"""What becomes of running statistics: kept, averaged, or rank 0's, on arrays that differ between agents"""

import numpy as np
import pytest
import torch

from d5ray.distributed.buffers import BufferPolicy, FromRankZero, LocalBuffers, SynchronizedBuffers
from d5ray.distributed.optimizers.allreduce import AllreduceSGD
from d5ray.distributed.optimizers.dpsgd import DPSGD
from d5ray.distributed.topologies.topology import Complete, Ring
from d5ray.training.optimizers.gradient_descent import SGD
from tests.distributed.quadratic import Array, Framework, form, quadratics, train
from tests.together import together

AGENTS = 3
STATISTICS = np.array([[1.0, 10.0], [2.0, -4.0], [6.0, 3.0]])  # (agents, m)
COUNTS = np.array([[7, 1], [6, 0], [6, 1]])  # a counter and a boolean
MEANS = np.array([[3.0, 3.0]] * AGENTS)
EXPECTED: list[tuple[BufferPolicy, Array, Array]] = [
    (LocalBuffers(), STATISTICS, COUNTS),
    (SynchronizedBuffers(), MEANS, COUNTS[[0, 0, 0]]),
    (FromRankZero(), STATISTICS[[0, 0, 0]], COUNTS[[0, 0, 0]]),
]


@pytest.mark.parametrize("array", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize(("policy", "statistics", "counts"), EXPECTED, ids=[repr(p) for p, _, _ in EXPECTED])
def test_settling(policy: BufferPolicy, statistics: Array, counts: Array, array: Framework) -> None:
    """The flat statistics and each counter, in place, on every agent; without statistics, the counters."""
    group = form(Complete(AGENTS))

    def settle(rank: int) -> tuple[Array, Array]:
        flat = STATISTICS[rank].copy()
        count, seen = np.array(COUNTS[rank, 0]), np.array([bool(COUNTS[rank, 1])])
        policy.settle(group[rank], array(flat), (array(count), array(seen)))
        return flat, np.array([int(count), int(seen[0])])

    settled = together(settle, AGENTS)
    np.testing.assert_array_equal([flat for flat, _ in settled], statistics)
    np.testing.assert_array_equal([count for _, count in settled], counts)


@pytest.mark.parametrize("policy", [LocalBuffers(), SynchronizedBuffers(), FromRankZero()], ids=repr)
def test_a_model_without_such_state_exchanges_nothing(policy: BufferPolicy) -> None:
    """Not even a message of length zero."""
    group = form(Complete(2))
    together(lambda rank: policy.settle(group[rank], np.zeros(0), ()), 2)
    assert group[0].traffic.operations == 0


def test_an_optimizer_settles_its_executors_state() -> None:
    """AllreduceSGD, of one model, averages; DPSGD, whose models differ, keeps."""

    def settled(optimizer: "AllreduceSGD | DPSGD") -> Array:
        optimizer._executor.buffers[...] = optimizer.communication.rank
        optimizer.settle()
        return np.array(optimizer._executor.buffers)

    problem = quadratics(3)
    averaged = train(AllreduceSGD(), SGD(0.1), Ring(3), problem, [], settled)
    kept = train(DPSGD(), SGD(0.1), Ring(3), problem, [], settled)
    np.testing.assert_array_equal(averaged, [[[1.0, 1.0]]] * 3)
    np.testing.assert_array_equal(kept, [[[0.0, 0.0]], [[1.0, 1.0]], [[2.0, 2.0]]])
