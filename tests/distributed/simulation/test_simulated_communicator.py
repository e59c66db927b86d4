"""Claims about the simulated communicator beyond those of every backend: its order of sums, what it costs"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.simulation.clock import VirtualClock
from d5ray.distributed.simulation.communicator import SimulatedCommunicator, SimulatedNetwork
from d5ray.distributed.simulation.links import Links, Wires
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import PeerLost
from d5ray.topologies import Complete, DirectedRing, OnePeerExponential, Ring, Star, TimeVarying, Torus, Tree
from tests.distributed.forming import on_all

Array = np.ndarray[Any, Any]
ALPHA, BETA = 1 / 4, 1 / 4096  # s and s/byte
LINKS = d5.simulation.UniformLinks(ALPHA, 1 / BETA)
SIZES = [1, 2, 3, 4, 5, 7, 8]
ELEMENTS = 840  # float64; a multiple of every size
PAYLOAD = 8 * ELEMENTS

Form = Callable[..., list[Communicator]]


@pytest.fixture
def form() -> Iterator[Form]:
    """Makes the group of a simulation of its own, by rank."""
    clocks: list[VirtualClock] = []

    def made(topology: Topology | int, links: Links = LINKS, timeout: float = 1e6) -> list[Communicator]:
        graph = Complete(topology) if isinstance(topology, int) else topology
        clocks.append(VirtualClock())
        network = SimulatedNetwork(clocks[-1], Wires(links))
        size = graph.agents
        return [
            network.join(Group("simulated", 0, rank, size, timeout_seconds=timeout), graph, range(size))
            for rank in range(size)
        ]

    yield made
    for clock in clocks:
        clock.close()


def seconds(member: Communicator) -> float:
    """The virtual time."""
    return member.scheduler.now() * 1e-9


def given(size: int, elements: int = ELEMENTS, dtype: str = "float64") -> Array:
    """(size, elements): other fractions on every member."""
    return np.random.default_rng([size, elements]).standard_normal((size, elements)).astype(dtype)


def in_order(arrays: Array) -> Array:
    """((x₀ + x₁) + x₂) + …"""
    total: Array = arrays[0].copy()
    for array in arrays[1:]:
        total = total + array
    return total


@pytest.mark.parametrize("size", SIZES)
def test_sums_are_formed_in_the_order_of_the_ranks(form: Form, size: int) -> None:
    """To the last bit, on all members, and whoever came first; of a sub-group by the ranks in it."""
    arrays = given(size, dtype="float32")
    expected = in_order(arrays)
    if size > 3:
        assert not np.array_equal(expected, in_order(arrays[::-1]))  # the order matters

    def work(member: Communicator) -> tuple[Array, ...]:
        member.scheduler.sleep(float((member.rank + 2) % size))
        summed, averaged, scattered, backwards = (arrays[member.rank].copy() for _ in range(4))
        member.allreduce(summed)
        member.allreduce(averaged, "mean")
        own = member.reduce_scatter(scattered)
        member.subgroup(list(range(size))[::-1]).allreduce(backwards)
        return summed, averaged, scattered[own], backwards

    for rank, (summed, averaged, scattered, backwards) in enumerate(on_all(form(size), work)):
        assert np.array_equal(summed, expected)
        assert np.array_equal(averaged, expected / np.float32(size))
        assert np.array_equal(scattered, np.split(expected, size)[rank])
        assert np.array_equal(backwards, in_order(arrays[::-1]))


@pytest.mark.parametrize("topology", [Ring(5), Star(5), Tree(7)], ids=repr)
def test_weighted_sums_are_formed_in_the_order_of_the_ranks(form: Form, topology: Topology) -> None:
    """To the last bit x − ((w₀ (x − x₀) + w₁ (x − x₁)) + …), where equal weights are multiplied last."""
    arrays, weights = given(topology.agents, dtype="float32"), topology.weights()

    def work(member: Communicator) -> Array:
        member.scheduler.sleep(float((3 * member.rank + 1) % topology.agents))
        array: Array = arrays[member.rank].copy()
        member.neighbor_average(array)
        return array

    for rank, found in enumerate(on_all(form(topology), work)):
        others = np.array([other for other in np.flatnonzero(weights[rank]) if other != rank])
        row, apart = weights[rank, others], arrays[rank] - arrays[others]
        shared = len(set(row)) == 1
        scale = row.astype(np.float32)[:, None]
        summed = in_order(apart) * scale[0] if shared else in_order(scale * apart)
        assert np.array_equal(found, arrays[rank] - summed)


def rounds(size: int) -> int:
    """⌈log₂ P⌉."""
    return math.ceil(math.log2(size))


Cost = Callable[[int, int], tuple[int, float]]  # of P members and n bytes: rounds, and bytes that come


def halved(P: int, n: int) -> tuple[int, float]:
    return rounds(P), n * (P - 1) / P


def doubled(P: int, n: int) -> tuple[int, float]:
    return rounds(P), rounds(P) * n


def cheaper(P: int, n: int) -> tuple[int, float]:
    """An allreduce of large arrays halves and doubles, one of small arrays only doubles."""
    both = tuple(2 * each for each in halved(P, n))
    return min((both, doubled(P, n)), key=lambda cost: ALPHA * cost[0] + BETA * cost[1])  # type: ignore[return-value]


COSTS: dict[str, tuple[Callable[[Any, Array], object], Cost]] = {
    "allreduce": (lambda member, array: member.allreduce(array), cheaper),
    "reduce_scatter": (lambda member, array: member.reduce_scatter(array), halved),
    "all_gather": (lambda member, array: member.all_gather(array), halved),
    "all_to_all": (lambda member, array: member.all_to_all(array), lambda P, n: (P - 1, n * (P - 1) / P)),
    "broadcast": (lambda member, array: member.broadcast(array, root=member.size - 1), doubled),
    "barrier": (lambda member, array: member.barrier(), lambda P, n: (rounds(P), 0)),
}


@pytest.mark.parametrize("elements", [0, 840, 8400])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("operation", COSTS)
def test_a_collective_ends_when_its_cost_has_passed_since_the_last_came(
    form: Form, operation: str, size: int, elements: int
) -> None:
    """For all members at the same time, which is the closed form later; and as much traffic as it says."""
    call, cost = COSTS[operation]

    def work(member: Communicator) -> tuple[float, float, tuple[int, ...]]:
        member.scheduler.sleep(10.0 + (member.rank + 2) % size)
        begin, traffic = seconds(member), member.traffic
        call(member, np.ones(elements))
        assert traffic.nanoseconds == pytest.approx((seconds(member) - begin) * 1e9)
        moved = traffic.bytes_sent, traffic.bytes_received, traffic.messages_sent, traffic.rounds
        return begin, seconds(member), moved

    times = on_all(form(size), work)
    last = max(begin for begin, *_ in times)
    assert last == 10.0 + size - 1
    in_rounds, in_bytes = cost(size, 8 * elements)
    expected = last + ALPHA * in_rounds + BETA * in_bytes
    assert [end for _, end, _ in times] == pytest.approx([expected] * size, rel=1e-9)
    traffic = [(int(in_bytes), int(in_bytes), in_rounds, in_rounds)] * size
    if operation != "broadcast":
        assert [moved for *_, moved in times] == traffic
    else:
        sent = [(0, 8 * elements)] * (size - 1) + [((size - 1) * 8 * elements, 0)]
        assert [moved[:2] for *_, moved in times] == sent


def test_a_collective_costs_by_the_slowest_link_among_its_members(form: Form) -> None:
    """In racks of two: a barrier of one rack takes its own latency, of both racks that between them."""
    links = d5.simulation.GroupedLinks(
        2, within=d5.simulation.UniformLinks(1 / 64, 1e9), between=d5.simulation.UniformLinks(1.0, 1e9)
    )

    def work(member: Communicator) -> tuple[float, float, float]:
        begin = seconds(member)
        member.subgroup([0, 1] if member.rank < 2 else [3, 2]).barrier()
        within = seconds(member)
        member.subgroup([2, 0] if member.rank % 2 == 0 else [1, 3]).barrier()
        between = seconds(member)
        member.barrier()
        return within - begin, between - within, seconds(member) - between

    for times in on_all(form(4, links), work):
        assert times == pytest.approx((1 / 64, 1.0, 2.0))


TOPOLOGIES: list[Topology] = [
    Complete(1), Complete(5), Ring(6), Torus(3, 2), Star(5), Tree(7), DirectedRing(4),
    d5.topologies.Exponential(6), OnePeerExponential(8), TimeVarying((Ring(4), Complete(4), Star(4))),
]  # fmt: skip


def arrivals(topology: Topology) -> list[float]:
    """When everyone has its neighbours' arrays, if all begin at 0.

    Members send to the next rank first, one array every βn; who receives takes what reaches it first.
    """
    byte, agents = BETA * PAYLOAD, topology.agents
    reached: dict[int, list[float]] = {rank: [] for rank in range(agents)}
    for source in range(agents):
        targets = sorted(topology.out_neighbors(source, 0), key=lambda to: (to - source) % agents)
        for sent_before, target in enumerate(targets):
            reached[target].append(ALPHA + sent_before * byte)
    ends = []
    for times in reached.values():
        free = 0.0
        for first_byte in sorted(times):
            free = max(free, first_byte) + byte
        ends.append(free)
    return ends


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=repr)
def test_messages_to_neighbours_go_over_the_wires(form: Form, topology: Topology) -> None:
    """Each member goes on when its last neighbour's array has arrived; bytes are counted on each link."""

    def mix(member: Communicator) -> tuple[float, tuple[int, int, int, int]]:
        member.neighbor_average(np.ones(ELEMENTS))
        traffic = member.traffic
        return seconds(member), (
            traffic.bytes_sent, traffic.bytes_received, traffic.messages_sent, traffic.rounds
        )  # fmt: skip

    group = form(topology)
    assert isinstance(group[0], SimulatedCommunicator)
    found = on_all(group, mix)
    assert [end for end, _ in found] == pytest.approx(arrivals(topology), abs=1e-8)
    out = [len(topology.out_neighbors(rank, 0)) for rank in range(topology.agents)]
    came = [len(topology.in_neighbors(rank, 0)) for rank in range(topology.agents)]
    assert [moved for _, moved in found] == [
        (sent * PAYLOAD, received * PAYLOAD, sent, 1) for sent, received in zip(out, came, strict=True)
    ]
    links = {(i, j) for i in range(topology.agents) for j in topology.out_neighbors(i, 0)}
    assert group[0]._network.wires.carried == dict.fromkeys(links, PAYLOAD)


def test_pairs_take_latency_and_time_per_byte(form: Form) -> None:
    """A sender goes on at once; a receiver α + βn after the sender sent, or at once if that has passed."""

    def work(member: Communicator) -> list[float]:
        array = np.full(ELEMENTS, float(member.rank))
        times = []
        if member.rank == 0:
            member.scheduler.sleep(5.0)
            for tag in (0, 1):
                member.send(array, 1, tag)
                times.append(seconds(member))
        elif member.rank == 1:
            for tag, wait in ((0, 0.0), (1, 100.0)):
                member.scheduler.sleep(wait)
                member.recv(array, 0, tag)
                times.append(seconds(member))
        member.scheduler.sleep(500.0 - seconds(member))
        if member.rank > 1:
            member.pair_average(array, 5 - member.rank)
            assert array.tolist() == [2.5] * ELEMENTS
            times.append(seconds(member) - 500.0)
        return times

    alone = ALPHA + BETA * PAYLOAD
    got = on_all(form(4), work)
    assert got[0] == pytest.approx([5.0, 5.0])
    assert got[1] == pytest.approx([5.0 + alone, 5.0 + alone + 100.0])
    assert got[2] == got[3] == pytest.approx([alone])


@pytest.mark.parametrize("compute", [0.0, 1.0, 3.0, 20.0])
def test_operations_in_the_background_hide_behind_computation(form: Form, compute: float) -> None:
    """Two that cost c, started at 0 and 1 s, run one after the other: all is over at max(1 + compute, 2c)."""
    arrays, (in_rounds, in_bytes) = given(4, ELEMENTS), cheaper(4, PAYLOAD)
    cost = ALPHA * in_rounds + BETA * in_bytes
    assert 1.0 < cost < 4.0

    def work(member: Communicator) -> tuple[float, float, float, Array]:
        first, second = arrays[member.rank].copy(), 2 * arrays[member.rank]
        handles = [member.start.allreduce(first)]
        member.scheduler.sleep(1.0)
        handles.append(member.start.allreduce(second, "max"))
        member.scheduler.sleep(compute)
        begin, before = seconds(member), member.traffic.nanoseconds
        for handle in handles:
            handle.wait()
        waited = (member.traffic.nanoseconds - before) * 1e-9
        assert waited == pytest.approx(seconds(member) - begin, abs=1e-8)
        assert np.array_equal(second, 2 * arrays.max(axis=0))
        return begin, seconds(member), waited, first

    end = max(1.0 + compute, 2 * cost)
    for begin, over, waited, first in on_all(form(4), work):
        assert (begin, over) == pytest.approx((1.0 + compute, end), abs=1e-8)
        assert waited == pytest.approx(end - begin, abs=1e-8)
        assert np.array_equal(first, in_order(arrays))


CALLS: dict[str, Callable[[Communicator], object]] = {
    "allreduce": lambda member: member.allreduce(np.ones(3)),
    "barrier": lambda member: member.barrier(),
    "recv": lambda member: member.recv(np.ones(3), 1 - member.rank),
    "neighbor_average": lambda member: member.neighbor_average(np.ones(3)),
    "started": lambda member: member.start.allreduce(np.ones(3)).wait(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_silent_member_is_lost_after_the_time_out_in_virtual_time(form: Form, call: str) -> None:
    """After 600 virtual seconds exactly, and next to no real ones; whoever comes later is told at once."""
    begin = time.monotonic()

    def work(member: Communicator) -> float:
        member.scheduler.sleep(1.0 if member.rank == 0 else 1000.0)
        with pytest.raises(PeerLost, match=r"nobody answered .* 600 s|longer than 600 s"):
            CALLS[call](member)
        return seconds(member)

    assert on_all(form(2, timeout=600.0), work) == pytest.approx([601.0, 1000.0])
    assert time.monotonic() - begin < 5.0


@pytest.mark.parametrize("size", [2, 5])
def test_a_collective_that_all_joined_is_complete_though_one_leaves_right_after_it(
    form: Form, size: int
) -> None:
    """Everyone has the sum; only the next call finds that a peer is gone."""

    def work(member: Communicator) -> tuple[float, int | None]:
        array = np.array([float(member.rank)])
        member.allreduce(array)
        if member.rank == 0:
            member.close()
            return float(array[0]), 0
        with pytest.raises(PeerLost) as raised:
            member.barrier()
        return float(array[0]), raised.value.rank

    assert on_all(form(size), work) == [(sum(range(size)), 0)] * size
