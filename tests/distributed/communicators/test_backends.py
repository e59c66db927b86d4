"""Claims about choosing a communicator, and about the one of a group of one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.simple.solo import Solo
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Complete, Ring
from d5ray.distributed.traffic import Traffic
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.training.optimizers.gradient_descent import SGD

ALONE = Group("solo", 0, rank=0, size=1)
LENET: dict[str, Any] = {"model": "lenet", "dataset": "digits", "optimizer": SGD(0.1)}
NAMES = ["auto", *backends.BACKENDS]


@pytest.fixture
def solo() -> Communicator:
    return backends.join("auto", ALONE, Complete(1))


# -- choosing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_group_of_one_is_solo_whatever_the_name(name: str) -> None:
    """Nothing is to be met, and so no store is needed; a wrong call is refused all the same."""
    backends.check_backend(name)
    assert ALONE.store is None
    solo = backends.join(name, ALONE, Ring(1))
    assert type(solo) is Solo
    with pytest.raises(ConfigurationError, match="rank 1 is not in this group"):
        solo.broadcast(np.ones(1), root=1)
    assert solo.traffic == Traffic()


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("sock", "did you mean 'socket'?"),
        ("carrier pigeon", "known: auto, hierarchical, nccl, shared_memory, socket"),
    ],
)
def test_an_unknown_backend_is_answered_with_the_nearest(name: str, end: str) -> None:
    """By the check and by join alike, also for a group of one."""
    for refuse in (backends.check_backend, lambda given: backends.join(given, ALONE, Complete(1))):
        with pytest.raises(ConfigurationError) as caught:
            refuse(name)
        assert str(caught.value) == f"there is no communicator named {name!r}: {end}"


def test_the_name_of_the_release_before_answers_with_a_warning() -> None:
    """And an experiment that says it is described, and so hashed, as it was."""
    with pytest.warns(DeprecationWarning, match="communicator='gloo' is 'socket' now"):
        backends.check_backend("gloo")
    with pytest.warns(DeprecationWarning, match="is 'socket' now"):
        assert type(backends.join("gloo", ALONE, Complete(1))) is Solo
    with pytest.warns(DeprecationWarning, match="is 'socket' now"):
        assert Experiment(**LENET, communicator="gloo").communicator == "gloo"


@pytest.mark.parametrize(
    ("nodes", "device", "backend"),
    [
        ((), "cpu", "shared_memory"),
        (("a", "a", "a"), "cpu", "shared_memory"),
        (("a", "b", "c"), "cpu", "socket"),
        (("a", "b", "a"), "cpu", "hierarchical"),
        (("a", "b", "a"), "cuda:0", "nccl"),
    ],
)
def test_the_backend_follows_from_where_the_members_are(
    nodes: tuple[str, ...], device: str, backend: str
) -> None:
    """One node, a node each, some nodes with several, a GPU each."""
    assert backends.chosen(Group("g", 0, 0, 3, nodes=nodes, device=device)) == backend


# -- alone -----------------------------------------------------------------------------------------------


OPERATIONS: dict[str, Callable[[Communicator, Any], None]] = {
    "sum": lambda solo, array: solo.allreduce(array),
    "mean": lambda solo, array: solo.allreduce(array, "mean"),
    "min": lambda solo, array: solo.allreduce(array, "min"),
    "max": lambda solo, array: solo.allreduce(array, "max"),
    "broadcast": lambda solo, array: solo.broadcast(array),
    "neighbor_average": lambda solo, array: solo.neighbor_average(array),
    "barrier": lambda solo, array: solo.barrier(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_of_one_is_the_identity(solo: Communicator, operation: str) -> None:
    """Bit for bit, NaN and infinities too; operations are counted and not a byte."""
    given = np.array([1.5, -0.0, np.nan, np.inf, 1 / 3])
    for array in (given.copy(), torch.from_numpy(given.copy())):
        OPERATIONS[operation](solo, array)
        assert np.asarray(array).tobytes() == given.tobytes()
    assert replace(solo.traffic, nanoseconds=0) == Traffic(operations=2)
    assert solo.traffic.nanoseconds > 0
