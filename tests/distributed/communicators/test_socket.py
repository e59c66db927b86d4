"""Claims about the communicator over sockets beyond those of all: what is counted, who is told what"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.point_to_point import collectives
from d5ray.distributed.communicators.point_to_point.collectives import CollectiveCost
from d5ray.distributed.communicators.socket.communicator import Sockets
from d5ray.distributed.communicators.socket.transfer import INLINE_BYTES
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Complete
from d5ray.distributed.traffic import Traffic
from d5ray.errors import ConfigurationError, PeerLost
from tests.distributed.forming import Former, former, on_all
from tests.patience import patience
from tests.together import together

Array = np.ndarray[Any, Any]
SMALL, LARGE = 7, 3 * INLINE_BYTES // 4 + 1  # elements of float32 that go with their header and after it
NOTICED_SECONDS = 5.0  # within which everyone must know what went wrong
Work = Callable[[Communicator], Any]


@pytest.fixture(scope="module")
def groups() -> Iterator[Former]:
    with former() as made:
        yield made


# -- traffic ---------------------------------------------------------------------------------------------


def moved(group: list[Communicator], work: Work) -> list[CollectiveCost]:
    """What each member counted in this work."""

    def one(member: Communicator) -> CollectiveCost:
        before = Traffic(**vars(member.traffic))
        work(member)
        after = member.traffic
        return CollectiveCost(
            after.bytes_sent - before.bytes_sent,
            after.bytes_received - before.bytes_received,
            after.messages_sent - before.messages_sent,
            after.rounds - before.rounds,
        )

    return on_all(group, one)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("elements", [SMALL, LARGE])
def test_payload_alone_is_counted(groups: Former, size: int, elements: int) -> None:
    """To the byte what the algorithms' formulas say: headers are the sockets' affair."""
    group = groups.members("socket", size)
    array = np.ones(elements, np.float32)
    reduced = moved(group, lambda member: member.allreduce(array.copy(), "mean"))
    assert reduced == [collectives.allreduce_cost(rank, size, elements, 4) for rank in range(size)]
    cast = moved(group, lambda member: member.broadcast(array.copy(), 1))
    assert cast == [collectives.broadcast_cost(rank, size, 1, 4 * elements) for rank in range(size)]
    waited = moved(group, lambda member: member.barrier())
    assert waited == [collectives.recursive_doubling_cost(rank, size, 0) for rank in range(size)]


# -- lost peers ------------------------------------------------------------------------------------------


def test_who_waits_for_a_busy_member_learns_of_another_ones_loss(groups: Former) -> None:
    """Rank 0 waits for rank 1, which computes; rank 2 leaves, rank 3 raises: rank 0 does not wait for 1."""
    group = groups.form("socket", 4)
    computed = threading.Event()

    def live(member: Communicator) -> tuple[int | None, float]:
        begin = time.monotonic()
        if member.rank == 2:
            time.sleep(0.2)
            member.close()
            return 2, 0.0
        if member.rank == 1:
            computed.wait(patience(20))
        array = np.ones(LARGE)
        with pytest.raises(PeerLost) as caught:
            if member.rank == 0:
                member.recv(array, 1)
            else:
                member.recv(array, 2)
        if member.rank == 3:
            member._membership.fail(PeerLost(2, "told to all"))  # type: ignore[attr-defined]
        if member.rank == 0:
            computed.set()
        return caught.value.rank, time.monotonic() - begin

    found = on_all(group, live, seconds=20)
    assert [rank for rank, _ in found] == [2, 2, 2, 2]
    assert found[0][1] < patience(NOTICED_SECONDS)
    assert computed.is_set()


def test_a_kept_error_keeps_no_connection_open(groups: Former) -> None:
    """Who keeps the error, its traceback too, and does not close, does not keep the others waiting."""
    group = groups.form("socket", 3)
    kept: list[BaseException] = []

    def live(member: Communicator) -> int | None:
        if member.rank == 2:
            time.sleep(0.1)
            member.close()
            return 2
        try:
            for _ in range(10_000):
                member.allreduce(np.ones(LARGE))
        except PeerLost as error:
            kept.append(error)
            return error.rank
        return None

    begin = time.monotonic()
    assert on_all(group, live, seconds=20) == [2, 2, 2]
    assert time.monotonic() - begin < patience(NOTICED_SECONDS + 1)
    assert len(kept) == 2


# -- joining ---------------------------------------------------------------------------------------------


def test_a_group_without_a_store_is_refused() -> None:
    """With what to give."""
    with pytest.raises(ConfigurationError, match="'g' has no store: give the address of a Rendezvous"):
        backends.join("socket", Group("g", 0, 0, 2), Complete(2))


@pytest.mark.full
def test_who_joins_learns_that_another_gave_up(groups: Former) -> None:
    """Rank 0 gives up waiting for rank 2 after a second; rank 1, which would wait for a minute, is told."""

    def join(rank: int) -> float:
        seconds = 1.0 if rank == 0 else 60.0
        group = Group("gave up", 0, rank, 3, groups.rendezvous.address, timeout_seconds=seconds)
        begin = time.monotonic()
        with pytest.raises(PeerLost):
            Sockets(group, Complete(3))
        return time.monotonic() - begin

    assert max(together(join, 2)) < 1.0 + patience(NOTICED_SECONDS)
