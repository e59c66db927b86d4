"""Claims about the communicator over sockets beyond those of all: sizes, disagreement, who is told what"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.point_to_point import collectives
from d5ray.distributed.communicators.point_to_point.collectives import CollectiveCost
from d5ray.distributed.communicators.socket.communicator import Sockets
from d5ray.distributed.communicators.socket.transfer import INLINE_BYTES
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Complete, Ring
from d5ray.distributed.traffic import Traffic
from d5ray.errors import ConfigurationError, PeerLost
from tests.distributed.forming import Former, former, on_all
from tests.patience import patience
from tests.together import together

Array = np.ndarray[Any, Any]
SIZES = [2, 3, 4]
SMALL, LARGE = 7, 3 * INLINE_BYTES // 4 + 1  # elements of float32 that go with their header and after it
NOTICED_SECONDS = 5.0  # within which everyone must know what went wrong
Work = Callable[[Communicator], Any]


@pytest.fixture(scope="module")
def groups() -> Iterator[Former]:
    with former() as made:
        yield made


def data(size: int, elements: int, dtype: str = "float32") -> Array:
    """(size, elements): integers, others for every member."""
    numbers = np.random.default_rng([size, elements]).integers(-100, 100, (size, elements))
    numbers[:, 0] = np.arange(size)
    return numbers.astype(dtype)


# -- messages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nbytes", [0, 1, INLINE_BYTES - 1, INLINE_BYTES, INLINE_BYTES + 1, 10 * INLINE_BYTES]
)
def test_messages_of_every_size_arrive(groups: Former, nbytes: int) -> None:
    """With their header and after it, both ways at once, one way, and with none in between."""
    group = groups.members("socket", 3)
    rows = data(3, max(nbytes, 1), "uint8")[:, :nbytes]

    def talk(member: Communicator) -> list[Array]:
        own = rows[member.rank].copy()
        got = [np.zeros_like(own) for _ in range(3)]
        following, before = (member.rank + 1) % 3, (member.rank - 1) % 3
        around = member.exchange_messages({following: own}, [before], length=nbytes)[before]
        everyone = member.all_gather_messages(own)
        if member.rank == 0:
            member.send(own, following)
            member.recv(got[0], before)
        else:
            member.recv(got[0], before)
            member.send(own, following)
        return [around, got[0], *everyone]

    for rank, (around, passed, *everyone) in enumerate(on_all(group, talk)):
        assert np.array_equal(around, rows[rank - 1]) and np.array_equal(passed, rows[rank - 1])
        assert np.array_equal(np.stack(everyone), rows)


def test_read_only_messages_are_sent(groups: Former) -> None:
    """Bytes that cannot be written, small and large."""
    group = groups.members("socket", 2)
    for count in (10, 2 * INLINE_BYTES):
        message = np.frombuffer(bytes(range(10)) * (count // 10), dtype=np.uint8)
        assert not message.flags.writeable
        for first, second in on_all(group, lambda member, m=message: member.all_gather_messages(m)):  # type: ignore[misc]
            assert np.array_equal(first, message) and np.array_equal(second, message)


def test_groups_of_the_same_members_in_other_orders_do_not_mix(groups: Former) -> None:
    """Four members form {0, 1, 2, 3}, {3, 1} and {0, 2} with ranks permuted; their operations interleave."""
    store = groups.rendezvous.address
    orders = {"whole": [2, 0, 3, 1], "odd": [3, 1], "even": [0, 2]}
    for elements in (SMALL, LARGE):
        numbers = data(4, elements, "float64")

        def join(name: str, member: int, elements: int = elements) -> Communicator:
            order = orders[name]
            group = Group(f"{name}-{elements}", 0, order.index(member), len(order), store, timeout_seconds=30)
            return backends.join("socket", group, Complete(len(order)))

        def work(member: int, numbers: Array = numbers) -> tuple[Array, Array, Array, int]:
            all_of_us, us_two = join("whole", member), join("odd" if member % 2 else "even", member)
            total, mine, rooted = (numbers[member].copy() for _ in range(3))
            for _ in range(3):
                us_two.allreduce(mine)
                all_of_us.allreduce(total)
            all_of_us.broadcast(rooted, root=0)
            all_of_us.barrier()
            us_two.close()
            all_of_us.close()
            return total, mine, rooted, us_two.rank

        for member, (total, mine, rooted, rank) in enumerate(together(work, 4)):
            np.testing.assert_array_equal(total, numbers.sum(axis=0) * 16)
            np.testing.assert_array_equal(mine, numbers[member % 2 :: 2].sum(axis=0) * 4)
            np.testing.assert_array_equal(rooted, numbers[2])
            assert rank == [0, 1, 1, 0][member]


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


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("elements", [1, SMALL, LARGE])
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


@pytest.mark.parametrize("agents", [3, 4])
def test_a_neighbor_average_counts_one_payload_an_edge_and_direction(groups: Former, agents: int) -> None:
    """Each member of a ring sends its array to both neighbours, in one round."""
    group = groups.members("socket", Ring(agents))
    found = moved(group, lambda member: member.neighbor_average(np.ones(250, np.float32)))
    assert found == [CollectiveCost(2000, 2000, 2, 1)] * agents


def test_time_spent_includes_the_wait_for_others(groups: Former) -> None:
    """Rank 0 waits 100 ms for rank 1: its traffic says so."""
    group = groups.members("socket", 2)

    def meet(member: Communicator) -> int:
        member.barrier()
        before = member.traffic.nanoseconds
        time.sleep(0.1 * member.rank)
        member.barrier()
        return member.traffic.nanoseconds - before

    assert 0.09e9 < on_all(group, meet)[0] < 10e9


# -- disagreement ----------------------------------------------------------------------------------------

CALLS: dict[str, tuple[int, list[Work], list[str]]] = {  # group size, what each rank calls, words for each
    "a short and a long array": (
        2,
        [lambda c: c.allreduce(np.ones(1)), lambda c: c.allreduce(np.ones(1_000_000))],
        ["allreduce sum of 1 × float64", "allreduce sum of 1,000,000 × float64"],
    ),
    "arrays of as many bytes": (
        2,
        [lambda c: c.allreduce(np.ones(20_000)), lambda c: c.allreduce(np.ones(40_000, np.float32))],
        ["of 20,000 × float64", "of 40,000 × float32"],
    ),
    "one who is not the root": (
        2,
        [lambda c: c.broadcast(np.ones(LARGE), 0), lambda c: c.broadcast(np.ones(LARGE), 1)],
        ["broadcast 0 of", "broadcast 1 of"],
    ),
    "a broadcast while others are done": (  # rank 1 has gone on to the barrier when it learns of it
        4,
        [lambda c: (c.broadcast(np.ones(2), 0), c.barrier())] * 3
        + [lambda c: (c.broadcast(np.ones(2), 1), c.barrier())],
        ["", "broadcast 0 of 2 × float64", "", "broadcast 1 of 2 × float64"],
    ),
    "one operation too few": (
        3,
        [lambda c: (c.allreduce(np.ones(2)), c.barrier())] * 2 + [lambda c: c.barrier()],
        ["allreduce sum of 2", "", "barrier of 0 × nothing"],
    ),
    "tags": (
        2,
        [lambda c: c.send(np.ones(2), 1, tag=3), lambda c: c.recv(np.ones(2), 0, tag=4)],
        ["send/recv 3 of 2 × float64", "send/recv 4 of 2 × float64"],
    ),
    "a pair's sizes": (
        2,
        [lambda c: c.send(np.ones(LARGE), 1), lambda c: c.recv(np.ones(SMALL), 0)],
        [f"of {LARGE:,} × float64", f"of {SMALL} × float64"],
    ),
    "a message and an allreduce": (
        2,
        [lambda c: c.send(np.ones(LARGE), 1), lambda c: c.allreduce(np.ones(LARGE))],
        ["send/recv 0 of", "allreduce sum of"],
    ),
    "lengths of messages": (
        2,
        [
            lambda c: c.exchange_messages({1: np.zeros(100, np.uint8)}, [], length=100),
            lambda c: c.exchange_messages({}, [0], length=90_000),
        ],
        ["messages of 100 × uint8", "messages of 90,000 × uint8"],
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_who_calls_something_else_is_named_on_all(groups: Former, case: str) -> None:
    """Each member raises an error with both calls, within seconds; again with the next operation."""
    size, calls, words = CALLS[case]
    group = groups.form("socket", size)

    def call(member: Communicator) -> str:
        with pytest.raises(ConfigurationError, match="called different operations") as caught:
            calls[member.rank](member)
            member.barrier()
        with pytest.raises(ConfigurationError) as again:
            member.allreduce(np.ones(1))
        assert str(again.value) == str(caught.value)
        return str(caught.value)

    begin = time.monotonic()
    found = on_all(group, call, seconds=20)
    assert time.monotonic() - begin < patience(NOTICED_SECONDS)
    assert len(set(found)) == 1
    for rank, mine in enumerate(words):
        if mine:
            assert f"rank {rank}: " in found[0]
            assert mine in found[0].split(f"rank {rank}: ")[1].split(";")[0]


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (
            lambda c: c.send(np.ones(2), 1 - c.rank),
            r"rank (0|1) sends in .* to rank (1|0), which waits for nothing",
        ),
        (
            lambda c: c.recv(np.ones(2), 1 - c.rank),
            r"rank (0|1) waits in .* for rank (1|0), which sends nothing",
        ),
    ],
)
def test_two_that_both_send_or_both_receive_are_told(groups: Former, work: Work, message: str) -> None:
    """Instead of waiting for each other."""

    def call(member: Communicator) -> str:
        with pytest.raises(ConfigurationError, match=message) as caught:
            work(member)
        return str(caught.value)

    assert len(set(on_all(groups.form("socket", 2), call))) == 1


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


@pytest.mark.full
def test_members_that_finish_early_do_not_disturb_the_others(groups: Former) -> None:
    """Each leaves as soon as its last operation is done; nobody misses anything, thirty times."""
    for _ in range(30):
        group = groups.form("socket", 4)
        rows = data(4, LARGE)

        def live(member: Communicator, rows: Array = rows) -> Array:
            array: Array = rows[member.rank].copy()
            member.allreduce(array)
            member.broadcast(array, 1)
            member.close()
            return array

        for array in on_all(group, live):
            assert np.array_equal(array, rows.sum(axis=0))


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


def test_who_has_left_is_told_so(groups: Former) -> None:
    """Its own rank, whatever it calls."""
    group = groups.form("socket", 2)
    group[1].close()
    calls: list[Work] = [
        lambda c: c.barrier(),
        lambda c: c.allreduce(np.ones(3)),
        lambda c: c.send(np.ones(1), 0),
    ]
    for call in calls:
        with pytest.raises(PeerLost, match="this member has left the group") as caught:
            call(group[1])
        assert caught.value.rank == 1
    group[1].close()


def test_an_operation_in_the_background_ends_when_the_other_one_closes(groups: Former) -> None:
    """Rank 0 has it under way; rank 1 never joins it, and leaves."""
    group = groups.form("socket", 2)

    def live(member: Communicator) -> int | None:
        start = member.start
        if member.rank == 1:
            time.sleep(0.1)
            member.close()
            return 1
        with pytest.raises(PeerLost) as caught:
            start.allreduce(np.ones(3)).wait()
        return caught.value.rank

    begin = time.monotonic()
    assert on_all(group, live, seconds=20) == [1, 1]
    assert time.monotonic() - begin < patience(NOTICED_SECONDS)


@pytest.mark.full
def test_a_silent_member_is_named_after_the_time_out(groups: Former) -> None:
    """Ranks 0 and 2 wait for rank 1, which stays but calls nothing: both name it, after the time-out."""
    seconds = 2.0
    group = groups.form("socket", 3, timeout_seconds=seconds)
    done = threading.Barrier(3)

    def live(member: Communicator) -> float:
        begin = time.monotonic()
        if member.rank != 1:
            with pytest.raises(PeerLost, match="took no part in recv 0 of 3 × float64 for 2 s") as caught:
                member.recv(np.ones(3), 1)
            assert caught.value.rank == 1
        waited = time.monotonic() - begin
        done.wait(patience(20))
        return waited

    waited = on_all(group, live)
    for rank in (0, 2):
        assert seconds * 0.9 <= waited[rank] < seconds + patience(NOTICED_SECONDS)


def _reduce_until_lost(group: Group, elements: int, answers: Any) -> None:
    """A member in a process of its own."""
    communicator = backends.join("socket", group, Complete(group.size))
    array = torch.ones(elements)
    try:
        for turn in range(10**6):
            communicator.allreduce(array, "max")
            if turn == 3:
                answers.send("ready")
    except PeerLost as error:
        answers.send(error.rank)
    communicator.close()


def _answer(pipe: Any, seconds: float) -> Any:
    assert pipe.poll(seconds), f"a member says nothing within {seconds:g} s"
    return pipe.recv()


@pytest.mark.parametrize("elements", [1, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_a_stopped_and_killed_process_is_named_by_all(elements: int) -> None:
    """Rank 2 of 4 is stopped, so that all others wait for it, amid 40 MB or at the start; then it dies."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(4)]  # a queue's lock would die with who holds it
    rendezvous = Rendezvous()
    groups = [Group("stopped", 0, rank, 4, rendezvous.address, timeout_seconds=60.0) for rank in range(4)]
    members = [
        context.Process(target=_reduce_until_lost, args=(group, elements, answers), daemon=True)
        for group, (_, answers) in zip(groups, pipes, strict=True)
    ]
    try:
        for member in members:
            member.start()
        assert [_answer(pipe, 60) for pipe, _ in pipes] == ["ready"] * 4
        assert members[2].pid is not None
        os.kill(members[2].pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(members[2].pid, signal.SIGKILL)
        begin = time.monotonic()
        lost = {rank: _answer(pipes[rank][0], 20) for rank in (0, 1, 3)}
        assert time.monotonic() - begin < patience(NOTICED_SECONDS)
        assert lost == {0: 2, 1: 2, 3: 2}
        for rank in (0, 1, 3):
            members[rank].join(20)
            assert members[rank].exitcode == 0
    finally:
        for member in members:
            if member.is_alive():
                member.kill()
            member.join(5)
        rendezvous.close()
        for both in pipes:
            for end in both:
                end.close()


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
