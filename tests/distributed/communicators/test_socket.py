"""Claims about the communicator over sockets beyond those of all: what is counted, who is told what"""

import threading
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.point_to_point import collectives
from d5ray.distributed.communicators.point_to_point.collectives import parts, reduction
from d5ray.distributed.communicators.socket.communicator import Sockets
from d5ray.distributed.communicators.socket.transfer import INLINE_BYTES
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Complete
from d5ray.errors import PeerLost
from tests.distributed.communicators.collective_costs import CollectiveCost, costs_of
from tests.distributed.forming import Former, on_all
from tests.patience import patience
from tests.together import NOTICED_SECONDS, together

Array = np.ndarray[Any, Any]
SIZES = [2, 3, 4, 5, 7, 8]
SMALL, LARGE = 7, 3 * INLINE_BYTES // 4 + 1  # elements of float32 that go with their header and after it
Work = Callable[[Communicator], Any]


# -- traffic ---------------------------------------------------------------------------------------------


def moved(group: list[Communicator], work: Work) -> list[CollectiveCost]:
    """What each member counted in this work."""

    def one(member: Communicator) -> CollectiveCost:
        before = dict(vars(member.traffic))
        work(member)
        return CollectiveCost(*(vars(member.traffic)[name] - before[name] for name in CollectiveCost._fields))

    return on_all(group, one)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("algorithm", ["doubling", "direct"])
def test_an_allreduce_has_the_bits_and_the_bytes_of_its_algorithm(
    groups: Former, monkeypatch: pytest.MonkeyPatch, size: int, algorithm: str
) -> None:
    """Directly, sums are in the order of the ranks, whoever sums a part; payload alone is counted."""
    monkeypatch.setattr(collectives, "doubling_is_faster", lambda size, nbytes: algorithm == "doubling")
    group = groups.members("socket", size)
    for elements in (0, 1, SMALL, LARGE):
        rows = np.random.default_rng([size, elements]).standard_normal((size, elements)).astype(np.float32)
        found = rows.copy()
        costs = moved(group, lambda member, found=found: member.allreduce(found[member.rank]))  # type: ignore[misc]
        in_order = rows.cumsum(axis=0)[-1]
        assert (found == found[0]).all()
        np.testing.assert_allclose(found[0], in_order, rtol=1e-5, atol=1e-5)
        if algorithm == "direct" or size == 2:
            assert found[0].tobytes() == in_order.tobytes()
        if size > 3 and elements > 3:  # the claim is not empty: another order gives other bits
            assert rows[::-1].cumsum(axis=0)[-1].tobytes() != in_order.tobytes()
        assert costs == [costs_of(rank, size, elements, 4)[algorithm] for rank in range(size)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("elements", [0, 1, SMALL, LARGE])
def test_traffic_is_what_the_formulas_say(groups: Former, size: int, elements: int) -> None:
    """To the byte, for every collective at every member: headers are the sockets' affair."""
    group, array = groups.members("socket", size), np.ones(elements, np.float32)
    whole = np.ones(size * elements, np.float32)
    calls: list[tuple[str, Work, int, int]] = [
        ("all_gather", lambda c: c.all_gather(array.copy()), elements, 0),
        ("reduce_scatter", lambda c: c.reduce_scatter(array.copy()), elements, 0),
        ("all_to_all", lambda c: c.all_to_all(whole.copy()), size * elements, 0),
        ("doubling", lambda c: c.barrier(), 0, 0),
    ]
    for root in range(size):
        calls.append(("broadcast", lambda c, root=root: c.broadcast(array.copy(), root), elements, root))  # type: ignore[misc]
    for name, work, count, root in calls:
        assert moved(group, work) == [costs_of(rank, size, count, 4, root)[name] for rank in range(size)]


@settings(derandomize=True, deadline=None, max_examples=100)
@given(elements=st.integers(0, 10**6), size=st.integers(1, 1000))
def test_parts_cover_an_array(elements: int, size: int) -> None:
    """They differ by one element at most."""
    lengths = [part.stop - part.start for part in parts(elements, size)]
    assert sum(lengths) == elements and max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("operation", ["sum", "min", "max"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_halves_are_reduced_to_the_same_bits_as_numpys(dtype: Any, operation: str) -> None:
    """Every pair of 300 values, infinities and NaN among them; the result may be written over a source."""
    special = [0.0, 1.0, np.inf, -np.inf, np.nan, 65504.0, -65504.0, 1e-7]
    values = np.array([*special, *np.random.default_rng(0).standard_normal(292) * 100]).astype(dtype)
    one, other = (grid.reshape(-1).copy() for grid in np.meshgrid(values, values))
    ufunc = {"sum": np.add, "min": np.minimum, "max": np.maximum}[operation]
    with np.errstate(over="ignore", invalid="ignore"):
        expected = ufunc(one, other)
    reduction(operation, one.dtype)(one, other, one)
    nan = np.isnan(expected.astype(np.float32))
    assert nan.any() and np.array_equal(np.isnan(one.astype(np.float32)), nan)
    assert one[~nan].tobytes() == expected[~nan].tobytes()


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
