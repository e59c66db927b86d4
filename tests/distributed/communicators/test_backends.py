"""Claims about choosing a communicator, and about the one of a group of one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import MAX_TAG, Communicator
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
    """Nothing is to be met, and so no store is needed."""
    assert ALONE.store is None
    assert type(backends.join(name, ALONE, Ring(1))) is Solo


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("sock", "did you mean 'socket'?"),
        ("SOCKET", "did you mean 'socket'?"),
        ("Auto", "did you mean 'auto'?"),
        ("carrier pigeon", "known: auto, hierarchical, nccl, reference, shared_memory, socket"),
        ("", "known: auto, hierarchical, nccl, reference, shared_memory, socket"),
    ],
)
def test_an_unknown_backend_is_answered_with_the_nearest(name: str, end: str) -> None:
    """By the check and by join alike, also for a group of one."""
    for refuse in (backends.check_backend, lambda given: backends.join(given, ALONE, Complete(1))):
        with pytest.raises(ConfigurationError) as caught:
            refuse(name)
        assert str(caught.value) == f"there is no communicator named {name!r}: {end}"


@pytest.mark.parametrize("name", NAMES)
def test_a_known_backend_passes_the_check(name: str) -> None:
    """As an experiment names it; only the name with another ending is refused."""
    backends.check_backend(name)
    with pytest.raises(ConfigurationError):
        backends.check_backend(name + "-x")


def test_the_name_of_the_release_before_answers_with_a_warning() -> None:
    """And an experiment that says it is described, and so hashed, as it was."""
    with pytest.warns(DeprecationWarning, match="communicator='gloo' is 'socket' now"):
        backends.check_backend("gloo")
    with pytest.warns(DeprecationWarning, match="is 'socket' now"):
        assert type(backends.join("gloo", ALONE, Complete(1))) is Solo
    with pytest.warns(DeprecationWarning, match="is 'socket' now"):
        assert Experiment(**LENET, communicator="gloo").communicator == "gloo"


@pytest.mark.parametrize(("rank", "size"), [(1, 1), (-1, 1), (4, 4)])
def test_a_rank_outside_the_group_is_refused(rank: int, size: int) -> None:
    """With the ranks that there are."""
    with pytest.raises(ConfigurationError) as caught:
        Solo(replace(ALONE, rank=rank, size=size), Complete(size))
    assert str(caught.value) == (f"rank {rank} is not in a group of {size}: its ranks are 0 to {size - 1}")


def test_a_topology_of_another_size_is_refused() -> None:
    """With both numbers and what to take."""
    with pytest.raises(
        ConfigurationError, match=r"Ring\(agents=3\) has 3 .* 1 members: take a topology of 1"
    ):
        backends.join("auto", ALONE, Ring(3))


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


def test_an_experiment_cannot_name_the_oracle() -> None:
    """Its agents are processes, the oracle's members are threads of one."""
    with pytest.raises(ConfigurationError, match="'reference' joins threads of one process"):
        backends.check_for_agents("reference")
    backends.check_for_agents("hierarchical")


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
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_every_operation_of_one_is_the_identity(
    solo: Communicator, kind: str, dtype: str, operation: str
) -> None:
    """Bit for bit, NaN and infinities too; one operation is counted and not a byte."""
    given = np.array([1.5, -0.0, np.nan, np.inf, 1 / 3], dtype)
    array: Any = torch.from_numpy(given.copy()) if kind == "torch" else given.copy()
    OPERATIONS[operation](solo, array)
    assert np.asarray(array).tobytes() == given.tobytes()
    assert replace(solo.traffic, nanoseconds=0) == Traffic(operations=1)
    assert solo.traffic.nanoseconds > 0


def test_operations_add_up_and_bytes_stay_zero(solo: Communicator) -> None:
    """Three times every operation."""
    for _ in range(3):
        for operation in OPERATIONS.values():
            operation(solo, np.ones(1000))
    assert replace(solo.traffic, nanoseconds=0) == Traffic(operations=3 * len(OPERATIONS))


ARRAY = np.ones(1)
WHOLE = np.ones(1, np.int64)
REFUSED: list[tuple[Callable[[Communicator], None], str]] = [
    (lambda solo: solo.allreduce(ARRAY, "product"), "allreduce cannot 'product': choose one of sum, mean"),
    (lambda solo: solo.allreduce(WHOLE, "mean"), "allreduce 'mean' divides, but the array is of int64"),
    (lambda solo: solo.neighbor_average(WHOLE), "neighbor_average divides, but the array is of int64"),
    (lambda solo: solo.broadcast(ARRAY, root=1), "rank 1 is not in this group: its ranks are 0 to 0"),
    (lambda solo: solo.broadcast(ARRAY, root=-1), "rank -1 is not in this group"),
    (lambda solo: solo.broadcast(ARRAY, root=0.0), "rank 0.0 is not in this group"),  # type: ignore[arg-type]
    (lambda solo: solo.send(ARRAY, to=1), "rank 1 is not in this group"),
    (lambda solo: solo.send(ARRAY, to=0), "rank 0 is this member itself: name another one"),
    (lambda solo: solo.recv(ARRAY, source=0), "rank 0 is this member itself: name another one"),
    (lambda solo: solo.recv(ARRAY, source=2), "rank 2 is not in this group"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_makes_no_sense_is_refused_and_not_counted(
    solo: Communicator, call: Callable[[Communicator], None], message: str
) -> None:
    """A wrong rank, operation or type is an error for a group of one as well."""
    with pytest.raises(ConfigurationError) as caught:
        call(solo)
    assert message in str(caught.value)
    assert solo.traffic == Traffic()


@pytest.mark.parametrize("tag", [-1, MAX_TAG, 0.5, "1", None])
def test_a_wrong_tag_is_refused(tag: Any) -> None:
    """Before anything is sent; checked on the one pair that rank 0 of two could be."""
    pair = Solo(Group("pair", 0, rank=0, size=2), Complete(2))
    with pytest.raises(ConfigurationError) as caught:
        pair.send(ARRAY, to=1, tag=tag)
    assert str(caught.value) == (f"the tag is {tag!r}: it must be an integer from 0 to {MAX_TAG - 1}")
    assert pair.traffic == Traffic()
