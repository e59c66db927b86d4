"""Claims about collectives made of messages: their results, bits and bytes; members are threads"""

import queue
from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.distributed.communicators.point_to_point import collectives
from d5ray.distributed.communicators.point_to_point.collectives import (
    CollectiveCost,
    Flat,
    Pieces,
    parts,
)
from d5ray.distributed.communicators.point_to_point.communicator import OngoingCollective, PointToPoint
from d5ray.distributed.communicators.point_to_point.reduction import reduction
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Complete
from d5ray.distributed.traffic import Traffic
from tests.patience import patience
from tests.together import together

SIZES = (2, 3, 4, 5, 6, 7, 8)
ELEMENTS = (0, 1, 3, 8, 1001)
WAIT_SECONDS = patience(20)


@final
class Mailboxes(PointToPoint):
    """Messages as copies in queues, one for every ordered pair of members."""

    backend = "mailboxes"

    def __init__(self, rank: int, size: int, boxes: "dict[tuple[int, int], queue.Queue[Any]]") -> None:
        super().__init__(Group("mailboxes", 0, rank, size), Complete(size))
        self._boxes = boxes

    def _close(self) -> None:
        pass

    def _transfer(self, outgoing: Pieces, incoming: Pieces, conversation: OngoingCollective) -> None:
        peers = [rank for _, rank in (*outgoing, *incoming)]
        assert self.rank not in peers
        assert len({rank for _, rank in outgoing}) == len(outgoing)
        assert len({rank for _, rank in incoming}) == len(incoming)
        for flat, to in outgoing:
            self._boxes[self.rank, to].put((conversation.call, conversation.number, flat.copy()))
        for flat, source in incoming:
            call, number, theirs = self._boxes[source, self.rank].get(timeout=WAIT_SECONDS)
            assert (call, number) == (conversation.call, conversation.number)
            flat[:] = theirs  # of equal size, or NumPy complains


def group(size: int) -> list[Mailboxes]:
    boxes: dict[tuple[int, int], queue.Queue[Any]] = {
        (source, to): queue.Queue() for source in range(size) for to in range(size)
    }
    return [Mailboxes(rank, size, boxes) for rank in range(size)]


@pytest.fixture(params=["doubling", "direct"])
def algorithm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both algorithms of an allreduce, for arrays of every size."""
    monkeypatch.setattr(collectives, "doubling_is_faster", lambda size, nbytes: request.param == "doubling")
    return str(request.param)


def fractions(size: int, elements: int) -> Flat:
    """(size, elements) float32 whose sums round."""
    rows = np.random.default_rng([size, elements]).standard_normal((size, elements)).astype(np.float32)
    assert elements < 2 or len({row.tobytes() for row in rows}) == size
    return rows


def counted(size: int, work: Callable[[Mailboxes], None]) -> list[CollectiveCost]:
    """What each member moved in this work."""

    def one(rank: int) -> CollectiveCost:
        work(members[rank])
        traffic = members[rank].traffic
        assert replace(traffic, nanoseconds=0, operations=0) == Traffic(
            traffic.bytes_sent, traffic.bytes_received, traffic.messages_sent, traffic.rounds
        )
        return CollectiveCost(
            traffic.bytes_sent, traffic.bytes_received, traffic.messages_sent, traffic.rounds
        )

    members = group(size)
    costs = together(one, size)
    assert sum(cost.bytes_sent for cost in costs) == sum(cost.bytes_received for cost in costs)
    return costs


# -- results ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("operation", ["sum", "mean", "min", "max"])
def test_allreduce_is_numpys_reduction(algorithm: str, size: int, operation: str) -> None:
    """For every number of members and of elements, fewer elements than members too."""
    members = group(size)
    for elements in ELEMENTS:
        rows = fractions(size, elements)

        def reduce(rank: int, rows: Flat = rows) -> Flat:
            array: Flat = rows[rank].copy()
            members[rank].allreduce(array, operation)
            return array

        expected = getattr(rows.astype(np.float64), operation)(axis=0)
        for found in together(reduce, size):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
def test_all_members_have_the_same_bits(algorithm: str, size: int) -> None:
    """Sums that round depend on their order; directly it is that of the ranks, whoever sums a part."""
    members = group(size)
    rows = fractions(size, 1001)

    def reduce(rank: int) -> Flat:
        array: Flat = rows[rank].copy()
        members[rank].allreduce(array, "sum")
        return array

    found = together(reduce, size)
    assert len({array.tobytes() for array in found}) == 1
    in_order = rows[0].copy()
    for row in rows[1:]:
        in_order += row
    if algorithm == "direct" or size == 2:
        assert found[0].tobytes() == in_order.tobytes()
    if size > 3:  # the claim is not empty: another order gives other bits
        assert rows[::-1].cumsum(axis=0)[-1].tobytes() != in_order.tobytes()


# -- what it costs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("elements", ELEMENTS)
def test_traffic_is_what_the_formulas_say(size: int, elements: int) -> None:
    """To the byte, for every collective at every member."""
    array = np.ones(elements, np.float32)
    nbytes = array.nbytes
    whole = np.ones(elements * size, np.float64)

    def expected(cost: Callable[..., CollectiveCost], *arguments: int) -> list[CollectiveCost]:
        return [cost(rank, size, *arguments) for rank in range(size)]

    for root in range(size):
        found = counted(size, lambda member, root=root: member.broadcast(array.copy(), root))  # type: ignore[misc]
        assert found == expected(collectives.broadcast_cost, root, nbytes)
    assert counted(size, lambda member: member.all_gather(array.copy())) == expected(
        collectives.all_gather_cost, elements, 4
    )
    assert counted(size, lambda member: member.reduce_scatter(array.copy()) and None) == expected(
        collectives.reduce_scatter_cost, elements, 4
    )
    assert (
        counted(size, lambda member: member.all_to_all(whole.copy()))
        == [collectives.all_to_all_cost(size, whole.size, 8)] * size
    )
    assert counted(size, lambda member: member.barrier()) == expected(collectives.recursive_doubling_cost, 0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("elements", ELEMENTS)
def test_an_allreduces_traffic_is_what_its_formula_says(algorithm: str, size: int, elements: int) -> None:
    """Of both algorithms; `allreduce_cost` is that of the one which is taken."""
    cost: Callable[[int], CollectiveCost] = {
        "doubling": lambda rank: collectives.recursive_doubling_cost(rank, size, 4 * elements),
        "direct": lambda rank: collectives.direct_allreduce_cost(rank, size, elements, 4),
    }[algorithm]
    found = counted(size, lambda member: member.allreduce(np.ones(elements, np.float32), "mean"))
    assert found == [cost(rank) for rank in range(size)]
    assert found == [collectives.allreduce_cost(rank, size, elements, 4) for rank in range(size)]


@settings(derandomize=True, deadline=None, max_examples=100)
@given(elements=st.integers(0, 10**6), size=st.integers(1, 1000))
def test_parts_are_those_of_the_communicator(elements: int, size: int) -> None:
    """`Communicator.bounds` says the same; they cover the array and differ by one element at most."""
    lengths = [part.stop - part.start for part in parts(elements, size)]
    assert sum(lengths) == elements and max(lengths) - min(lengths) <= 1
    assert Mailboxes(0, size, {}).bounds(elements) == tuple(parts(elements, size))


# -- element by element ------------------------------------------------------------------------------------


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
