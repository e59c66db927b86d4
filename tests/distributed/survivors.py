"""A member in a process of its own, for tests in which another one is killed"""

from typing import Any

import numpy as np

from d5ray.distributed.communicators import backends
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Complete
from d5ray.errors import PeerLost


def until_somebody_is_lost(backend: str, group: Group, elements: int, answers: Any) -> None:
    """Reduce, say "ready", reduce on until somebody is lost, say who; then form the next epoch's group."""
    communicator = backends.join(backend, group, Complete(group.size))
    array = communicator.allocate(elements, "float32")
    try:
        for turn in range(1_000_000):
            communicator.allreduce(array)
            if turn == 20:
                answers.send("ready")
    except PeerLost as error:
        answers.send(error.rank)
        communicator.close()
    survivors = [rank for rank in range(group.size) if rank != 1]
    again = Group(
        group.name, 1, survivors.index(group.rank), len(survivors), group.store, timeout_seconds=20.0
    )
    communicator = backends.join(backend, again, Complete(again.size))
    total = np.full(10, float(group.rank), dtype=np.float32)
    communicator.allreduce(total)
    answers.send(total.tolist())
    communicator.barrier()
    communicator.close()
