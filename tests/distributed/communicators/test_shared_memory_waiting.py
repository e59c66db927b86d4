"""Claims about messages and waits in shared memory: who waits for whom, and how a wait ends"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.shared_memory.arena import CELLS, MAX_CELL_BYTES
from d5ray.distributed.communicators.shared_memory.doorbell import NAP_SECONDS
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Ring
from d5ray.errors import ConfigurationError, PeerLost
from tests.distributed.forming import Former, former, on_all
from tests.distributed.stores import written
from tests.patience import patience
from tests.together import together

NOTICED_SECONDS = 5.0
FITS = CELLS * MAX_CELL_BYTES  # bytes that a small group's channel holds


@pytest.fixture(scope="module")
def groups() -> Iterator[Former]:
    with former() as made:
        yield made


# -- messages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, FITS - 1, FITS, FITS + 1, 5 * FITS + 3])
def test_both_ends_of_a_pair_send_at_once(groups: Former, length: int) -> None:
    """Messages longer than the channel pass each other: neither end waits for the other to be done."""
    group = groups.members("shared_memory", 2)
    data = [np.random.default_rng(rank).integers(0, 256, length, np.uint8) for rank in range(2)]

    def swap(member: Communicator) -> bool:
        other = 1 - member.rank
        got = member.exchange_messages({other: data[member.rank]}, [other])[other]
        return bool(np.array_equal(got, data[other]))

    assert on_all(group, swap) == [True, True]


def test_a_message_that_fits_is_sent_before_it_is_received(groups: Former) -> None:
    """The sender goes on while the receiver sleeps; a longer message waits for its receiver."""
    group = groups.members("shared_memory", 2)
    asleep = threading.Event()

    def work(member: Communicator) -> list[float]:
        fits, longer = np.full(FITS // 8, 1.0), np.full(FITS // 4, 2.0)
        if member.rank == 0:
            begin = time.monotonic()
            member.send(fits, 1)
            first = time.monotonic() - begin
            asleep.set()
            member.send(longer, 1)
            return [first, time.monotonic() - begin - first]
        asleep.wait(patience(10))
        time.sleep(0.3)
        member.recv(fits, 0)
        member.recv(longer, 0)
        return [float(fits.sum()), float(longer.sum())]

    (first, second), sums = on_all(group, work)
    assert first < 0.2 < second
    assert sums == [FITS // 8, 2.0 * (FITS // 4)]


def test_messages_are_received_by_tag_in_any_order(groups: Former) -> None:
    """Six messages with three tags, received backwards by tag: those of one tag come in the order sent."""
    group = groups.members("shared_memory", 2)

    def work(member: Communicator) -> list[int]:
        array, got = np.zeros(50_000, np.int64), []
        for turn in range(2):
            for tag in (3, 1, 2) if member.rank == 0 else ():
                array[:] = 10 * tag + turn
                member.send(array, 1, tag)
        for tag in (2, 1, 3) if member.rank == 1 else ():
            for _ in range(2):
                member.recv(array, 0, tag)
                assert (array == array[0]).all()
                got.append(int(array[0]))
        return got

    assert on_all(group, work)[1] == [20, 21, 10, 11, 30, 31]


def test_one_slow_receiver_does_not_hold_up_the_others(groups: Former) -> None:
    """Rank 0 sends 1 and 2 at once more than a channel holds; 2 has all of it before 1 begins to receive."""
    group = groups.members("shared_memory", 3)
    received = threading.Event()
    message = np.random.default_rng(0).integers(0, 256, 3 * FITS, np.uint8)

    def work(member: Communicator) -> bool:
        if member.rank == 0:
            member.exchange_messages({1: message, 2: message}, [], length=message.size)
            return True
        if member.rank == 1:
            assert received.wait(patience(10))
        got = member.exchange_messages({}, [0], length=message.size)[0]
        if member.rank == 2:
            received.set()
        return bool(np.array_equal(got, message))

    assert on_all(group, work) == [True] * 3


@pytest.mark.parametrize("elements", [10, FITS // 8])
def test_neighbors_wait_for_neighbors_alone(groups: Former, elements: int) -> None:
    """On a ring of five, 0 comes late: 2 and 3, which are not its neighbours, finish their round before it.

    That is if the array fits into a channel: of a longer one, 1 and 4 can send no more while they wait for 0.
    """
    group = groups.members("shared_memory", Ring(5))
    done = threading.Barrier(3)

    def work(member: Communicator) -> float:
        array = np.full(elements, 3.0 * member.rank)
        if member.rank == 0:
            done.wait(patience(10))
        member.neighbor_average(array)
        if member.rank in (2, 3):
            done.wait(patience(10))
        assert (array == array[0]).all()
        return float(array[0])

    assert on_all(group, work) == pytest.approx([5.0, 3.0, 6.0, 9.0, 7.0])


def test_rounds_with_neighbors_do_not_mix(groups: Former) -> None:
    """Fifty rounds without a barrier, of several lengths, with pairs in between: the matrices' product."""
    group = groups.members("shared_memory", Ring(4))
    weights = Ring(4).weights()
    lengths = [1, 70_000, 3, 40_000]

    def work(member: Communicator) -> list[np.ndarray[Any, Any]]:
        arrays = [np.full(length, float(member.rank)) for length in lengths]
        for turn in range(50):
            member.neighbor_average(arrays[turn % 4])
            member.pair_average(arrays[turn % 4], member.rank ^ 1)
        return arrays

    pairs = np.kron(np.eye(2), np.full((2, 2), 0.5))
    found = on_all(group, work)
    for which in range(4):
        rounds = len(range(which, 50, 4))
        expected = np.linalg.matrix_power(pairs @ weights, rounds) @ np.arange(4.0)
        for rank in range(4):
            np.testing.assert_allclose(found[rank][which], expected[rank], rtol=1e-12)


# -- waits ------------------------------------------------------------------------------------------------


def test_a_long_wait_sleeps(groups: Former) -> None:
    """Half a second takes less than a tenth of it in processor time, and the wait ends at once."""
    group = groups.members("shared_memory", 2)
    arrived: list[float] = []

    def work(member: Communicator) -> float:
        member.barrier()
        if member.rank == 1:
            time.sleep(0.5)
            arrived.append(time.monotonic())
        begin = time.thread_time()
        member.barrier()
        if member.rank == 0:
            assert time.monotonic() - arrived[0] < 0.1
        return time.thread_time() - begin

    assert on_all(group, work)[0] < 0.05


def test_a_sleeper_is_woken(groups: Former) -> None:
    """A peer comes 5 ms late, time after time: waits end when it comes, not with the sleeper's own nap."""
    group = groups.members("shared_memory", 2)
    assert NAP_SECONDS > 0.015
    arrived = [0.0] * 40

    def work(member: Communicator) -> float:
        late = []
        for turn in range(len(arrived)):
            member.barrier()
            if member.rank == 1:
                time.sleep(0.005)
                arrived[turn] = time.perf_counter()
            member.barrier()
            late.append(time.perf_counter() - arrived[turn])
        return float(np.median(late))

    assert on_all(group, work)[0] < 0.008


@pytest.mark.full
def test_who_has_all_it_needs_goes_on_when_another_leaves(groups: Former) -> None:
    """1 and 2 of three leave as soon as they have sent: 0 still receives both messages."""
    group = groups.form("shared_memory", 3)
    left = threading.Barrier(3)

    def work(member: Communicator) -> float:
        array = np.full(1000, float(member.rank))
        if member.rank:
            member.send(array, 0)
            member.close()
        left.wait(patience(10))
        if member.rank:
            return 0.0
        time.sleep(1.5)  # the news has come
        got = np.zeros(1000)
        member.recv(got, 1)
        member.recv(array, 2)
        return float(got[0] + array[-1])

    assert on_all(group, work)[0] == 3.0


def test_whoever_has_left_learns_that(groups: Former) -> None:
    """Every operation of a member that closed raises `PeerLost` with its own rank."""
    group = groups.form("shared_memory", 2)
    group[1].close()
    array = np.zeros(4)
    operations: list[Callable[[], Any]] = [
        lambda: group[1].allreduce(array),
        lambda: group[1].neighbor_average(array),
        lambda: group[1].send(array, 0),
        lambda: group[1].allocate(4, "float32"),
        group[1].barrier,
    ]
    for operation in operations:
        with pytest.raises(PeerLost, match="this member has left the group") as caught:
            operation()
        assert caught.value.rank == 1


def test_closing_ends_a_wait_in_the_background(groups: Former) -> None:
    """A started operation that no peer joins raises when its member closes, long before the time-out."""
    group = groups.form("shared_memory", 2)

    def work(member: Communicator) -> bool:
        handle = member.start.barrier() if member.rank == 0 else member.start.broadcast(np.zeros(0))
        del handle
        return True

    together(lambda rank: group[rank].start, 2)
    handle = group[0].start.allreduce(np.zeros(10))
    time.sleep(0.1)
    begin = time.monotonic()
    group[0].close()
    with pytest.raises(PeerLost):
        handle.wait(patience(10))
    assert time.monotonic() - begin < patience(1.0)


MEMBER = """
import sys
import numpy as np
from d5ray.distributed.communicators import backends
from d5ray.distributed.group.group import Group
from d5ray.distributed.communicators.shared_memory.doorbell import NAP_SECONDS
from d5ray.distributed.topologies.topology import Ring
from tests.distributed.stores import read
name = sys.argv[1]
member = backends.join("shared_memory", Group(name, 0, 1, 4, read(sys.argv[2])), Ring(4))
array = np.ones(int(sys.argv[3]), np.float32)
while True:
    member.neighbor_average(array)
    print("round", flush=True)
"""


@pytest.mark.parametrize("elements", [10, 1_000_000])
def test_a_killed_neighbor_is_named_everywhere(groups: Former, elements: int) -> None:
    """SIGKILL on a ring: its neighbours and the member opposite get `PeerLost(1)` within five seconds."""
    store = groups.rendezvous.address
    name = f"killed-{elements}"
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER, name, written(store), str(elements)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    killed: list[float] = []

    def live(rank: int) -> tuple[int | None, float]:
        if rank == 1:
            assert process.stdout is not None and process.stdout.readline() == b"round\n"
            killed.append(time.monotonic())
            os.kill(process.pid, signal.SIGKILL)
            return 1, killed[0]
        member = backends.join("shared_memory", Group(name, 0, rank, 4, store), Ring(4))
        array = np.ones(elements, np.float32)
        try:
            while True:
                member.neighbor_average(array)
        except PeerLost as lost:
            return lost.rank, time.monotonic()
        finally:
            member.close()

    try:
        found = together(live, 4)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert [rank for rank, _ in found] == [1] * 4
    assert all(noticed - killed[0] < patience(NOTICED_SECONDS) for _, noticed in found)


# -- different calls --------------------------------------------------------------------------------------

Call = Callable[[Communicator], Any]
LARGE = 2 * FITS
CONFLICTS: dict[str, tuple[Call, Call, str, str]] = {
    "a collective and a message": (
        lambda c: c.allreduce(np.zeros(10)),
        lambda c: c.recv(np.zeros(3), 0, tag=4),
        "rank 0: allreduce sum of 10 × float64",
        "rank 1: send/recv 4 of 3 × float64",
    ),
    "a collective and neighbours": (
        lambda c: c.barrier(),
        lambda c: c.neighbor_average(np.zeros(5, np.float32)),
        "rank 0: barrier of 0 × nothing",
        "rank 1: neighbors of 5 × float32",
    ),
    "a message that does not fit and a collective": (
        lambda c: c.send(np.zeros(LARGE), 1),
        lambda c: c.broadcast(np.zeros(10), 0),
        f"rank 0: send/recv 0 of {LARGE:,} × float64",
        "rank 1: broadcast 0 of 10 × float64",
    ),
    "two tags": (
        lambda c: c.recv(np.zeros(2), 1, tag=1),
        lambda c: c.recv(np.zeros(2), 0, tag=2),
        "rank 0: send/recv 1 of 2 × float64",
        "rank 1: send/recv 2 of 2 × float64",
    ),
    "lengths of a message": (
        lambda c: c.send(np.zeros(10), 1),
        lambda c: c.recv(np.zeros(11), 0),
        "rank 0: send/recv 0 of 10 × float64",
        "rank 1: send/recv 0 of 11 × float64",
    ),
    "types of a pair": (
        lambda c: c.pair_average(np.zeros(10), 1),
        lambda c: c.pair_average(np.zeros(10, np.float32), 0),
        "rank 0: exchange of 10 × float64",
        "rank 1: exchange of 10 × float32",
    ),
    "a pair and neighbours": (
        lambda c: c.pair_average(np.zeros(10), 1),
        lambda c: c.neighbor_average(np.zeros(10)),
        "rank 0: exchange of 10 × float64",
        "rank 1: neighbors of 10 × float64",
    ),
    "bytes of known length": (
        lambda c: c.exchange_messages({1: np.zeros(5, np.uint8)}, [1], length=5),
        lambda c: c.exchange_messages({0: np.zeros(6, np.uint8)}, [0], length=6),
        "rank 0: messages of 5 × uint8",
        "rank 1: messages of 6 × uint8",
    ),
    "both send what does not fit": (
        lambda c: c.send(np.zeros(LARGE), 1),
        lambda c: c.send(np.zeros(LARGE), 0),
        "the ranks 0 and 1 of a group wait for each other in send/recv 0",
        "let one of them send while the other receives",
    ),
}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("case", CONFLICTS)
def test_different_calls_are_named_on_all(groups: Former, size: int, case: str) -> None:
    """Ranks 0 and 1 call what does not fit together, a third is at a barrier: all learn what was called."""
    first, second, *words = CONFLICTS[case]
    group = groups.form("shared_memory", size)

    def work(member: Communicator) -> str:
        try:
            if member.rank < 2:
                (first, second)[member.rank](member)
            member.barrier()
        except ConfigurationError as error:
            return str(error)
        return "no error"

    begin = time.monotonic()
    for text in on_all(group, work, seconds=20):
        assert all(expected in text for expected in words), text
    assert time.monotonic() - begin < patience(NOTICED_SECONDS)


def test_slow_peers_are_no_conflict(groups: Former) -> None:
    """One waits in a receive, the other is busy for a while before it sends: nobody is to blame."""
    group = groups.members("shared_memory", 2)

    def work(member: Communicator) -> float:
        array = np.full(3, float(member.rank))
        for turn in range(4):
            if member.rank == turn % 2:
                time.sleep(0.15)
                member.send(array, 1 - member.rank, tag=turn)
            else:
                member.recv(array, 1 - member.rank, tag=turn)
            member.barrier()
        return float(array[0])

    assert on_all(group, work) == [0.0, 0.0]
