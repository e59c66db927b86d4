"""Claims about replicas that are pipelines: distributed optimizers train them as they train single places"""

import copy
from typing import Any

import numpy as np
import pytest

import d5ray as d5
import d5ray.frameworks.numpy as in_numpy
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.kits.parallel.pipeline.schedules import OneFOneB
from d5ray.networks.network import Network
from d5ray.training.batches.batch import Batch
from tests.distributed.forming import Former, on_all
from tests.kits.parallel.pipelines import batch, cut, named, network, one_pass, pipeline

RATE, STEPS, MICRO_BATCHES, SEED = 0.1, 3, 3, 5


def _batches(replica: int) -> list[Batch]:
    return [
        Batch(*batch(7, seed=10 * replica + step), weight=1.0, step=step, epoch=0, ends_epoch=False)
        for step in range(STEPS)
    ]


def _oracle(whole: Network) -> dict[str, Any]:
    """Two places with the whole network, each with its own samples and draws, by their mean gradient."""
    executors = [in_numpy.from_pieces(cut(whole, 1)) for _ in range(2)]
    for replica, executor in enumerate(executors):
        executor.draw_from(SEED, replica)
    for step in range(STEPS):
        for replica, executor in enumerate(executors):
            own = _batches(replica)[step]
            one_pass(executor, own.inputs, own.labels, MICRO_BATCHES)
        mean = np.mean([executor.gradients for executor in executors], axis=0)
        for executor in executors:
            executor.parameters[...] -= RATE * mean
    return named(executors[0], executors[0].parameters)


@pytest.mark.parametrize("backend", ["shared_memory", "simulated"])
@pytest.mark.parametrize(
    "rule",
    [
        d5.optimizers.AllreduceSGD(),
        d5.optimizers.OverlappedAllreduceSGD(bucket_bytes=200),
        d5.optimizers.ShardedAllreduceSGD(),
    ],
    ids=repr,
)
def test_two_replicas_of_two_stages_train_as_two_places(
    groups: Former, backend: str, rule: d5.DistributedOptimizer
) -> None:
    whole = network()
    expected = _oracle(whole)

    def own(member: Communicator) -> None:
        replica, stage = divmod(member.rank, 2)
        stages = member.subgroup((2 * replica, 2 * replica + 1))
        replicas = member.subgroup((stage, stage + 2))
        with pipeline(whole, stages, OneFOneB(), MICRO_BATCHES) as executor:
            executor.draw_from(SEED, replica)
            optimizer = copy.copy(rule)
            optimizer.bind(
                executor=executor,
                base=d5.optimizers.SGD(RATE),
                communication=replicas,
                rng=np.random.default_rng(0),
            )
            for each in _batches(replica):
                optimizer.step(each)
            replicas.barrier()
            for name, value in named(executor, executor.parameters).items():
                np.testing.assert_allclose(value, expected[name], rtol=1e-10, atol=1e-12, err_msg=name)
        replicas.close()

    on_all(groups.form(backend, 4), own)
