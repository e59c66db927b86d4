"""A stage in a process of its own, for tests in which another one is killed"""

from typing import Any

from d5ray.distributed.communicators import backends
from d5ray.distributed.group.group import Group
from d5ray.distributed.pipeline.schedules import OneFOneB
from d5ray.distributed.topologies.topology import Complete
from d5ray.errors import PeerLost
from tests.distributed.pipelines import batch, network, pipeline


def train_until_a_stage_is_lost(backend: str, group: Group, answers: Any) -> None:
    """Say "trains" after some passes, go on until a stage is lost, say which."""
    communicator = backends.join(backend, group, Complete(group.size))
    try:
        with pipeline(network(), communicator, OneFOneB(), 4) as executor:
            for turn in range(1_000_000):
                executor.inference_and_backprop(*batch(8))
                if turn == 5:
                    answers.send("trains")
    except PeerLost as error:
        answers.send(error.rank)
    communicator.close()
