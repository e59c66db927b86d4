"""Claims that every communicator keeps: each backend against NumPy on the members' arrays, stacked"""

import importlib.util
import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from d5ray.distributed.communicators.communicator import MAX_TAG, Communicator
from d5ray.distributed.communicators.shared_memory.arena import CELLS, MAX_CELL_BYTES
from d5ray.distributed.communicators.socket.transfer import INLINE_BYTES
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Complete, Ring, Topology
from d5ray.errors import ConfigurationError, PeerLost
from tests.conftest import wait_until
from tests.distributed.communicators.programs import perform, place, program
from tests.distributed.forming import Former, join, on_all
from tests.together import noticed

Array = np.ndarray[Any, Any]
Call = Callable[[Communicator], Any]
REAL_BACKENDS = ["reference", *(PROCESS_BACKENDS := ["shared_memory", "socket"]), "hierarchical"]
BACKENDS = [*REAL_BACKENDS, "simulated", *(["nccl"] if importlib.util.find_spec("cupy") else [])]
NODES: dict[str, tuple[str, ...]] = dict.fromkeys(BACKENDS, ()) | {"hierarchical": ("first", "second")}
FITS = CELLS * MAX_CELL_BYTES  # bytes that a small group's channel in shared memory holds


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- results ---------------------------------------------------------------------------------------------

TOPOLOGIES = [Complete(2), Complete(3), Ring(4), Ring(5), pytest.param(Ring(8), marks=pytest.mark.full)]


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=repr)
def test_every_operation_is_numpys(groups: Former, backend: str, topology: Topology) -> None:
    """In any order, of every size, type and kind of memory: slots, parities and channels never mix."""
    group = groups.members(backend, topology)
    cases = program(topology)
    if backend == "nccl":
        unknown = ("int16", "bool")
        cases = [case for case in cases if case.operation != "messages" and case.dtype not in unknown]

    def work(member: Communicator) -> int:
        for case in cases:
            perform(member, case)
        return len(cases)

    assert on_all(group, work) == [len(cases)] * topology.agents


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_tensors_are_exchanged_in_place(groups: Former, backend: str, dtype: str) -> None:
    """PyTorch tensors, of any shape and also trained parameters, are changed where they lie."""
    group = groups.members(backend, 2)
    kind = getattr(torch, dtype)

    def reduce(member: Communicator) -> tuple[Any, Any]:
        plain = torch.arange(6).reshape(2, 3).to(kind) + member.rank
        trained = torch.nn.Parameter(torch.ones(3) * (member.rank + 1))
        address = plain.data_ptr()
        member.allreduce(plain, "sum")
        member.allreduce(trained, "mean")
        assert plain.data_ptr() == address
        return plain, trained.detach()

    for plain, trained in on_all(group, reduce):
        assert plain.dtype == kind
        assert plain.double().tolist() == [[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]]
        assert trained.tolist() == [1.5, 1.5, 1.5]


def test_sums_overflow_and_means_that_a_half_can_hold_do_not(groups: Former, backend: str) -> None:
    """An overflow of a sum is infinite, ∞ − ∞ is not a number; shared memory does not even warn.

    The mean of what is infinite stays so.
    """
    if backend == "nccl":
        pytest.skip("a GPU computes by rules of its own")
    group = groups.members(backend, 2)
    quiet: dict[str, Any] = {} if backend == "shared_memory" else {"over": "ignore", "invalid": "ignore"}

    def work(member: Communicator) -> tuple[Array, Array, Array]:
        array = np.array([3e38, np.inf * (1 - 2 * member.rank), 1], np.float32)
        halves = [60_000, 50_016 + 9_984 * member.rank, -60_000, np.inf]
        means, parts = (np.array(halves, np.float16) for _ in range(2))
        with np.errstate(**quiet):
            member.allreduce(array)
            member.allreduce(means, "mean")
            return array, means, parts[member.reduce_scatter(parts, "mean")]

    for rank, (array, means, part) in enumerate(on_all(group, work)):
        assert np.isposinf(array[0]) and np.isnan(array[1]) and array[2] == 2
        assert means.tolist() == [60_000, 55_008, -60_000, np.inf]
        assert part.tolist() == means[2 * rank : 2 * rank + 2].tolist()


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_members_agree_to_the_last_bit(groups: Former, backend: str, size: int) -> None:
    """Sums of fractions round, but alike on all; near the exact sum; in shared memory in the ranks' order."""
    group = groups.members(backend, size)
    for elements, kind in product((5, 4_097, 300_001), ("ordinary", "allocated")):
        given = np.random.default_rng(elements).standard_normal((size, elements)).astype(np.float32)

        def reduce(member: Communicator, given: Array = given, kind: str = kind) -> Array:
            array = place(member, kind, given[member.rank])
            member.allreduce(array)
            return array

        found = on_all(group, reduce)
        assert len({array.tobytes() for array in found}) == 1
        np.testing.assert_allclose(found[0], given.astype(np.float64).sum(axis=0), rtol=1e-5, atol=1e-5)
        if backend == "shared_memory":
            assert found[0].tobytes() == given.cumsum(axis=0)[-1].tobytes()


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_nobody_passes_a_barrier_before_the_last(groups: Former, backend: str, size: int) -> None:
    """The earliest to leave a barrier leaves after the latest to reach it."""
    group = groups.members(backend, size)

    def wait(member: Communicator) -> tuple[float, float]:
        member.scheduler.sleep(0.02 * member.rank)
        reached = member.scheduler.now()
        member.barrier()
        return reached, member.scheduler.now()

    times = on_all(group, wait)
    assert min(left for _, left in times) >= max(reached for reached, _ in times)


@pytest.mark.parametrize("backend", REAL_BACKENDS)
def test_messages_of_every_size_pass_each_other(groups: Former, backend: str) -> None:
    """Both ends of a pair send at once, with a header and after it, more than a channel holds, or nothing."""
    group = groups.members(backend, 3)
    limits = [limit + more for limit in (INLINE_BYTES, FITS) for more in (-1, 0, 1)]
    for nbytes in (0, 1, *limits, 5 * FITS + 3, 20_000_000):  # at last more than sockets take
        rows = np.random.default_rng(nbytes).integers(0, 256, (3, nbytes), np.uint8)

        def talk(member: Communicator, rows: Array = rows) -> None:
            own, others = rows[member.rank], [rank for rank in range(3) if rank != member.rank]
            got = member.exchange_messages(dict.fromkeys(others, own), others)
            assert all(np.array_equal(got[rank], rows[rank]) for rank in others)
            following, before = others if member.rank != 1 else others[::-1]
            around = member.exchange_messages({following: own}, [before], length=own.size)[before]
            assert np.array_equal(around, rows[before])

        on_all(group, talk)


def test_messages_of_known_length_travel_without_it(groups: Former, backend: str) -> None:
    """With the length agreed, exactly the messages' bytes are counted; without, eight more for each."""
    if backend == "nccl":
        pytest.skip("messages lie in host memory")
    group = groups.form(backend, 2)
    message = np.arange(100, dtype=np.uint8)

    def swap(member: Communicator) -> tuple[int, int]:
        other = 1 - member.rank
        before = member.traffic.bytes_sent
        got = member.exchange_messages({other: message + member.rank}, [other], length=100)
        assert np.array_equal(got[other], message + other)
        known = member.traffic.bytes_sent
        member.exchange_messages({other: message}, [other])
        return known - before, member.traffic.bytes_sent - known

    assert on_all(group, swap) == [(100, 108), (100, 108)]


# -- groups and handles ----------------------------------------------------------------------------------


def test_subgroups_have_ranks_in_the_order_given(groups: Former, backend: str) -> None:
    """[2, 0] of four: rank 2 is its rank 0; sums, roots and pairs are the members' alone, and counted.

    Here `ray.util.collective` returns each member's own value on such a sub-group, without an error.
    """
    group = groups.members(backend, 4)

    def work(member: Communicator) -> tuple[float, float, float, float]:
        ranks = [2, 0] if member.rank in (0, 2) else [3, 1]
        part = member.subgroup(ranks)
        assert part.rank == ranks.index(member.rank) and part.size == 2
        summed, rooted, passed, everyone = (np.array([float(member.rank)]) for _ in range(4))
        alone, before = member.subgroup([member.rank]), member.traffic.bytes_sent
        for each in (alone.allreduce, alone.all_gather, alone.all_to_all, alone.broadcast):
            each(summed)  # stays as it is
        alone.neighbor_average(summed)
        assert alone.reduce_scatter(summed) == slice(0, 1)
        if backend not in ("reference", "nccl"):  # which count what they keep
            assert member.traffic.bytes_sent == before
        alone.close()
        part.allreduce(summed, "sum")
        assert part.traffic is member.traffic and member.traffic.bytes_sent > before
        part.broadcast(rooted, root=0)
        part.send(passed, 1) if part.rank == 0 else part.recv(passed, 0)
        member.allreduce(everyone, "sum")
        part.close()
        return summed[0], rooted[0], passed[0], everyone[0]

    even, odd = (2.0, 2.0, 2.0, 6.0), (4.0, 3.0, 3.0, 6.0)
    assert on_all(group, work) == [even, odd] * 2


def test_collectives_of_two_groups_may_interleave(groups: Former, backend: str) -> None:
    """A ring group and its two halves, used in turn a hundred times, do not mix up their arrays."""
    group = groups.members(backend, 4)

    def work(member: Communicator) -> float:
        half = member.subgroup([0, 1] if member.rank < 2 else [2, 3])
        total = 0.0
        for turn in range(100):
            array = np.full(64, float(member.rank + turn))
            (half if turn % 2 else member).allreduce(array, "sum")
            total += float(array.sum()) / 64
        half.close()
        return total

    whole = sum(6 + 4 * turn for turn in range(0, 100, 2))
    halves = [sum(1 + 2 * turn for turn in range(1, 100, 2)), sum(5 + 2 * turn for turn in range(1, 100, 2))]
    assert on_all(group, work) == [whole + halves[0]] * 2 + [whole + halves[1]] * 2


def test_background_operations_run_beside_the_foreground(groups: Former, backend: str) -> None:
    """Three allreduces started, a broadcast and a barrier meanwhile, then waited for: all are right."""
    group = groups.members(backend, 3)

    def work(member: Communicator) -> list[float]:
        arrays = [np.full(5000, float(member.rank + 10 * turn)) for turn in range(3)]
        handles = [member.start.allreduce(array, "sum") for array in arrays]
        root = np.array([float(member.rank)])
        member.broadcast(root, root=2)
        member.barrier()
        for handle in handles:
            handle.wait()
            assert handle.done()
        return [array[0] for array in arrays] + [arrays[2][-1], root[0]]

    assert on_all(group, work) == [[3.0, 33.0, 63.0, 63.0, 2.0]] * 3


def test_background_traffic_is_counted_when_waited_for(groups: Former, backend: str) -> None:
    """The bytes of a started operation are those of the same operation called directly."""
    group = groups.form(backend, 2)

    def work(member: Communicator) -> tuple[int, int]:
        array = np.ones(1000)
        member.allreduce(array)
        direct = member.traffic.bytes_sent
        member.start.allreduce(array).wait()
        return direct, member.traffic.bytes_sent - direct

    for direct, started in on_all(group, work):
        assert direct == started > 0


# -- what is refused -------------------------------------------------------------------------------------


def refusals() -> dict[str, tuple[Callable[[Communicator], Any], str]]:
    strided = np.zeros((4, 4))[:, ::2]
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    return {
        "strides": (lambda c: c.allreduce(strided), "not contiguous"),
        "transposed tensor": (lambda c: c.broadcast(torch.zeros(2, 3).T), "not contiguous"),
        "read-only": (lambda c: c.allreduce(fixed), "read-only"),
        "a list": (lambda c: c.allreduce([1.0]), "found a list"),
        "mean of integers": (lambda c: c.allreduce(np.zeros(3, dtype=int), "mean"), "floating type"),
        "average of integers": (lambda c: c.neighbor_average(np.zeros(3, dtype=int)), "floating type"),
        "unknown reduction": (lambda c: c.allreduce(np.zeros(3), "median"), "cannot 'median'"),
        "root out of range": (lambda c: c.broadcast(np.zeros(3), root=5), "rank 5 is not in this group"),
        "negative rank": (lambda c: c.send(np.zeros(3), -1), "rank -1 is not in this group"),
        "itself": (lambda c: c.send(np.zeros(3), c.rank), "this member itself"),
        "parts": (lambda c: c.all_to_all(np.zeros(7)), "2 equal parts, found 7 elements"),
        "tag": (lambda c: c.send(np.zeros(3), 1 - c.rank, tag=-1), "the tag is -1"),
        "large tag": (lambda c: c.send(np.zeros(3), 1 - c.rank, tag=MAX_TAG), f"the tag is {MAX_TAG}"),
        "no integer": (lambda c: c.broadcast(np.zeros(3), root=0.0), "rank 0.0 is not"),
        "sub-group of others": (lambda c: c.subgroup([1 - c.rank]), "let the members alone form it"),
        "sub-group with twice the same": (lambda c: c.subgroup([c.rank, c.rank]), "every member once"),
    }


def test_wrong_arguments_are_refused_before_anything_is_sent(groups: Former, backend: str) -> None:
    """An error that says what was found, on each member; nothing is counted, and the group works on."""
    group = groups.members(backend, 2)
    before = [member.traffic.operations for member in group]
    for call, words in refusals().values():
        for member in group:
            with pytest.raises(ConfigurationError, match=words):
                call(member)
    assert [member.traffic.operations for member in group] == before

    def reduce(member: Communicator) -> float:
        array = np.ones(1)
        member.allreduce(array)
        return float(array[0])

    assert on_all(group, reduce) == [2.0, 2.0]


F32, TOO_LONG = np.float32, 2 * FITS  # elements


def odd_one(usual: Call, odd: Call) -> list[Call]:
    """What four members call, of which the last calls something else."""
    return [usual, usual, usual, odd]


def pair(first: Call, second: Call) -> list[Call]:
    """Two members that do not fit together, and a third at a barrier."""
    return [first, second, lambda c: c.barrier()]


CONFLICTS: dict[str, tuple[list[Call], list[str]]] = {  # what each rank calls, words of the error
    "sizes": (
        odd_one(lambda c: c.allreduce(np.zeros(10, F32)), lambda c: c.allreduce(np.zeros(20, F32))),
        ["allreduce sum of 10 × float32", "rank 3: allreduce sum of 20 × float32"],
    ),
    "large sizes": (
        odd_one(lambda c: c.allreduce(np.zeros(10**6, F32)), lambda c: c.allreduce(np.zeros(10**6 + 1, F32))),
        ["allreduce sum of 1,000,000 × float32", "rank 3: allreduce sum of 1,000,001 × float32"],
    ),
    "types of as many bytes": (
        odd_one(lambda c: c.allreduce(np.zeros(20_000)), lambda c: c.allreduce(np.zeros(40_000, F32))),
        ["allreduce sum of 20,000 × float64", "rank 3: allreduce sum of 40,000 × float32"],
    ),
    "reductions": (
        odd_one(lambda c: c.allreduce(np.zeros(10)), lambda c: c.allreduce(np.zeros(10), "max")),
        ["allreduce sum of 10 × float64", "rank 3: allreduce max of 10 × float64"],
    ),
    "roots": (
        odd_one(lambda c: c.broadcast(np.zeros(10), 0), lambda c: c.broadcast(np.zeros(10), 1)),
        ["broadcast 0 of 10 × float64", "rank 3: broadcast 1 of 10 × float64"],
    ),
    "a circle of roots": (
        [lambda c: c.broadcast(np.zeros(10), (c.rank + 1) % 3) for _ in range(3)],
        ["rank ", "broadcast ", "of 10 × float64"],
    ),
    "operations": (
        odd_one(lambda c: c.allreduce(np.zeros(10)), lambda c: c.all_gather(np.zeros(10))),
        ["allreduce sum of 10 × float64", "rank 3: all_gather of 10 × float64"],
    ),
    "one operation too few": (
        odd_one(lambda c: (c.allreduce(np.ones(2)), c.barrier()), lambda c: c.barrier()),
        ["allreduce sum of 2", "rank 3: barrier of 0 × nothing"],
    ),
    "a collective and neighbours": (
        pair(lambda c: c.barrier(), lambda c: c.neighbor_average(np.zeros(5, F32))),
        ["rank 0: barrier of 0 × nothing", "rank 1: neighbors of 5 × float32"],
    ),
    "a collective and a message": (
        pair(lambda c: c.allreduce(np.zeros(10)), lambda c: c.recv(np.zeros(3), 0, tag=4)),
        ["rank 0: allreduce sum of 10 × float64", "rank 1: send/recv 4 of 3 × float64"],
    ),
    "a message that does not fit and a collective": (
        pair(lambda c: c.send(np.zeros(TOO_LONG), 1), lambda c: c.broadcast(np.zeros(10), 0)),
        [f"rank 0: send/recv 0 of {TOO_LONG:,} × float64", "rank 1: broadcast 0 of 10 × float64"],
    ),
    "two receive": (
        pair(lambda c: c.recv(np.zeros(2), 1, tag=1), lambda c: c.recv(np.zeros(2), 0, tag=2)),
        ["rank 0: send/recv 1 of 2 × float64", "rank 1: send/recv 2 of 2 × float64"],
    ),
    "both send what does not fit": (
        pair(lambda c: c.send(np.zeros(TOO_LONG), 1), lambda c: c.send(np.zeros(TOO_LONG), 0)),
        ["send/recv 0", "rank"],  # that they wait for each other, or that the one sends and the other too
    ),
    "tags": (
        pair(lambda c: c.send(np.ones(2), 1, tag=3), lambda c: c.recv(np.ones(2), 0, tag=4)),
        ["rank 0: send/recv 3 of", "rank 1: send/recv 4 of 2 × float64"],
    ),
    "lengths of an array": (
        pair(lambda c: c.send(np.zeros(10), 1), lambda c: c.recv(np.zeros(11), 0)),
        ["rank 0: send/recv 0 of 10 × float64", "rank 1: send/recv 0 of 11 × float64"],
    ),
    "types of a pair": (
        pair(lambda c: c.pair_average(np.zeros(10), 1), lambda c: c.pair_average(np.zeros(10, F32), 0)),
        ["rank 0: exchange of 10 × float64", "rank 1: exchange of 10 × float32"],
    ),
    "a pair and neighbours": (
        pair(lambda c: c.pair_average(np.zeros(10), 1), lambda c: c.neighbor_average(np.zeros(10))),
        ["rank 0: exchange of 10 × float64", "rank 1: neighbors of 10 × float64"],
    ),
    "bytes of known length": (
        pair(
            lambda c: c.exchange_messages({1: np.zeros(5, np.uint8)}, [1], length=5),
            lambda c: c.exchange_messages({0: np.zeros(90_000, np.uint8)}, [0], length=90_000),
        ),
        ["rank 0: messages of 5 × uint8", "rank 1: messages of 90,000 × uint8"],
    ),
}


@pytest.mark.parametrize(
    ("backend", "case"),
    [
        (backend, case)
        for case, (calls, _) in CONFLICTS.items()
        for backend in (BACKENDS if calls[0] is calls[1] else PROCESS_BACKENDS)
        if (backend, case) != ("shared_memory", "tags")  # it keeps what was sent until it is received
    ],
)
def test_members_that_call_different_things_are_named_on_all(groups: Former, backend: str, case: str) -> None:
    """All members raise within seconds, with both calls in the words."""
    calls, words = CONFLICTS[case]
    group = groups.form(backend, len(calls))

    def call(member: Communicator) -> str:
        with pytest.raises(ConfigurationError) as caught:
            calls[member.rank](member)
            member.barrier()
        return str(caught.value)

    with noticed():
        for text in on_all(group, call, seconds=20):
            assert all(expected in text for expected in words), text


def test_slow_peers_are_no_conflict(groups: Former, backend: str) -> None:
    """One waits in a receive, the other is busy for a while before it sends: nobody is to blame."""
    group = groups.members(backend, 2)

    def work(member: Communicator) -> float:
        array = np.full(3, float(member.rank))
        for turn in range(3):
            if member.rank == turn % 2:
                member.scheduler.sleep(0.15)
                member.send(array, 1 - member.rank, tag=turn)
            else:
                member.recv(array, 1 - member.rank, tag=turn)
            before = member.traffic.nanoseconds
            member.scheduler.sleep(0.1 * member.rank)
            member.barrier()
            assert member.rank or member.traffic.nanoseconds - before > 0.09e9  # time includes waits
        return float(array[0])

    assert on_all(group, work) == [0.0, 0.0]


@pytest.mark.parametrize("backend", ["shared_memory", "socket", "hierarchical"])
def test_a_failure_that_one_member_tells_ends_the_waits_of_all(groups: Former, backend: str) -> None:
    """The last rank fails the group and does no more: all others raise its words, whoever they wait for."""
    group = groups.form(backend, 4)

    def call(member: Communicator) -> str:
        if member.rank == 3:
            membership = getattr(member, "membership", None) or member._membership  # type: ignore[attr-defined]
            membership.fail(ConfigurationError("a reason"))
            return "a reason"
        with pytest.raises(ConfigurationError) as raised:
            member.allreduce(np.zeros(10))
        return str(raised.value)

    with noticed():
        assert on_all(group, call, seconds=20) == ["a reason"] * 4


@pytest.mark.parametrize("backend", REAL_BACKENDS)
def test_a_topology_of_another_size_is_refused(groups: Former, backend: str) -> None:
    """A ring of four for a group of two."""
    with pytest.raises(ConfigurationError, match=r"has 4 agents.*has 2 members"):
        join(backend, Group("x", 0, 0, 2, groups.rendezvous.address, nodes=("a", "b")), Ring(4))
    with pytest.raises(ConfigurationError, match="rank 2 is not in a group of 2"):
        join(backend, Group("x", 0, 2, 2, groups.rendezvous.address), Complete(2))


@pytest.mark.full
@pytest.mark.parametrize("backend", REAL_BACKENDS)
def test_a_member_that_never_comes_is_not_waited_for_for_ever(groups: Former, backend: str) -> None:
    """Joining ends with `PeerLost` after the group's time-out, and leaves no connection and no thread."""
    lonely = Group(backend, 0, 0, 2, groups.rendezvous.address, timeout_seconds=1.0, nodes=NODES[backend])
    before = set(threading.enumerate())
    with noticed(), pytest.raises(PeerLost):
        join(backend, lonely, Complete(2))
    wait_until(lambda: set(threading.enumerate()) <= before, 5)


@pytest.mark.full
def test_a_silent_member_is_named_after_the_time_out(groups: Former, backend: str) -> None:
    """Who does not take part within the time-out is lost to the others, and not before."""
    group = groups.form(backend, 2, timeout_seconds=1.0)

    def work(member: Communicator) -> float:
        begin = member.scheduler.now()
        with pytest.raises(PeerLost) as caught:
            member.allreduce(np.ones(3))
        assert caught.value.rank in (1, None)
        return (member.scheduler.now() - begin) / 1e9

    with noticed():
        assert on_all(group[:1], work)[0] >= 0.9


@pytest.mark.parametrize("size", [2, 4])
def test_who_leaves_is_named(groups: Former, backend: str, size: int) -> None:
    """Everyone who waits for the member that left gets `PeerLost` with its rank, at once."""
    group = groups.form(backend, size)

    def work(member: Communicator) -> int | None:
        if member.rank == 1:
            member.scheduler.sleep(0.1)
            member.close()
            return 1
        try:
            for _ in range(100):
                member.allreduce(np.ones(1000))
        except PeerLost as error:
            return error.rank
        return None

    assert on_all(group, work, seconds=20) == [1] * size


def test_who_leaves_a_group_leaves_its_subgroups(groups: Former, backend: str) -> None:
    """Who waits in one of them gets `PeerLost`, as in the group."""

    def work(member: Communicator) -> None:
        if member.rank == 2:
            return
        part = member.subgroup([0, 1])
        part.barrier()
        if member.rank == 0:
            member.close()
        else:
            with pytest.raises(PeerLost):
                part.barrier()

    with noticed():
        on_all(groups.form(backend, 3), work)


def test_who_has_left_is_told_so(groups: Former, backend: str) -> None:
    """Its own rank, whatever it calls; what it had started in the background ends, and what it starts too."""

    def work(member: Communicator) -> None:
        background = member.subgroup([1, 0]).in_background()
        array = np.full(10, float(member.rank))
        background.run(lambda pair: (pair.barrier(), pair.allreduce(array))).wait()
        assert array[0] == 1 and member.traffic.operations == 2 and member.traffic.bytes_sent > 0
        member.barrier()
        if member.rank == 1:
            return
        started = background.allreduce(array)
        member.close()
        calls: list[Call] = [  # in the reference, what is sent waits for who receives it
            lambda c: c.barrier(), lambda c: c.allreduce(np.ones(3)), lambda c: c.send(np.ones(1), 1),
            lambda c: c.neighbor_average(np.ones(3)),
        ]  # fmt: skip
        for call in calls[: 2 if backend == "reference" else None]:
            with pytest.raises(PeerLost) as caught:
                call(member)
            assert caught.value.rank == 0 or "this member has left" in str(caught.value)
        for handle in (background.barrier(), *([started] if backend != "nccl" else [])):
            with pytest.raises(PeerLost):
                handle.wait()

    with noticed():
        on_all(groups.form(backend, 2), work)


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_who_finishes_early_does_not_disturb_the_others(groups: Former, backend: str) -> None:
    """Each leaves as soon as its last operation is done; nobody misses anything, ten times."""
    rows = np.random.default_rng(0).integers(-9, 9, (4, INLINE_BYTES)).astype(np.float32)

    def live(member: Communicator) -> Array:
        array: Array = rows[member.rank].copy()
        member.allreduce(array)
        member.broadcast(array, 1)
        member.close()
        return array

    for _ in range(10):
        for array in on_all(groups.form(backend, 4), live):
            assert np.array_equal(array, rows.sum(axis=0))
