"""Claims about shared memory beyond those of all: where arrays lie, who waits for whom, what is counted"""

import gc
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.shared_memory.arena import CELLS, MAX_CELL_BYTES
from d5ray.distributed.communicators.shared_memory.communicator import SMALL_BYTES
from d5ray.distributed.communicators.shared_memory.doorbell import NAP_SECONDS
from d5ray.distributed.communicators.shared_memory.reduce_kernels import ReduceKernels
from d5ray.distributed.communicators.shared_memory.segments import ALLOCATIONS, NOWHERE
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Complete, Ring
from d5ray.errors import ConfigurationError
from tests.conftest import wait_until
from tests.distributed.communicators.programs import perform, place, program
from tests.distributed.elsewhere import elsewhere
from tests.distributed.forming import Former, former, on_all
from tests.patience import patience

Array = np.ndarray[Any, Any]
FITS = CELLS * MAX_CELL_BYTES  # bytes that a small group's channel holds


def equal(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(np.asarray(found, np.float64), np.asarray(expected, np.float64))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "complex64"])
def test_a_fold_is_rounded_once_and_ends_with_its_division_or_its_weight(dtype: str) -> None:
    """Of three arrays, longer than a block: in order, in float32; equal weights are multiplied once."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    data = np.random.default_rng(8).standard_normal((3, 200_000)).astype(kind)
    wide = data.astype(np.complex64 if dtype == "complex64" else np.float32)
    total = (wide[0] + wide[1]) + wide[2]
    summed, mean, weighted, mixed, apart = (data[1].copy() for _ in range(5))
    kernels = ReduceKernels()
    kernels.reduce(list(data), summed, "sum")
    kernels.reduce(list(data), mean, "mean")
    kernels.reduce(list(data), weighted, weights=[0.3, 0.3, 0.3])
    kernels.reduce([data[0], mixed, data[2]], mixed, weights=[0.5, 1.0, 0.25])  # where the result goes
    kernels.mix(apart, [data[0], data[2]], [0.5, 0.25])
    single = np.float32
    assert summed.tobytes() == total.astype(kind).tobytes()
    assert mean.tobytes() == (total / single(3)).astype(kind).tobytes()
    assert weighted.tobytes() == (total * single(0.3)).astype(kind).tobytes()
    expected = (single(0.5) * wide[0] + wide[1]) + single(0.25) * wide[2]
    assert mixed.tobytes() == expected.astype(kind).tobytes()
    expected = wide[1] - (single(0.5) * (wide[1] - wide[0]) + single(0.25) * (wide[1] - wide[2]))
    assert apart.tobytes() == expected.astype(kind).tobytes()


# -- which arrays are worked on where they lie ------------------------------------------------------------


def rounds_of_an_allreduce(member: Communicator, array: Any) -> int:
    before = member.traffic.rounds
    member.allreduce(array)
    return member.traffic.rounds - before


def test_allocated_arrays_are_recognised(groups: Former) -> None:
    """Whole, as a slice that begins elsewhere on each, reshaped, as a tensor: always two rounds."""
    group = groups.members("shared_memory", 3)
    length = 1_000_000

    def work(member: Communicator) -> list[int]:
        own = member.allocate(length, "float32")
        views = [
            own,
            own[member.rank : member.rank + length // 2],
            own.reshape(1000, -1)[100:],
            torch.from_numpy(own)[7:],
        ]
        return [rounds_of_an_allreduce(member, view) for view in views]

    assert on_all(group, work) == [[2, 2, 2, 2]] * 3


def test_arrays_that_do_not_lie_in_one_allocation_go_through_slots(groups: Former) -> None:
    """Ordinary on all, ordinary on one, or of two allocations: right sums, in more rounds."""
    group = groups.members("shared_memory", 2)
    length = 1_000_000

    def work(member: Communicator) -> list[bool]:
        one, other = member.allocate(length, "float32"), member.allocate(length, "float32")
        found = []
        for array in (
            np.empty(length, np.float32),
            np.empty(length, np.float32) if member.rank else one,
            one if member.rank else other,
        ):
            array[:] = np.arange(length) % 100 + member.rank
            found.append(rounds_of_an_allreduce(member, array) > 2)
            equal(array, 2 * (np.arange(length) % 100) + 1)
        return found

    assert on_all(group, work) == [[True] * 3] * 2


def test_subgroups_and_the_background_know_the_groups_allocations(groups: Former) -> None:
    """Members [3, 1] and [2, 0] of four, and operations that were started: nothing is copied to slots."""
    group = groups.members("shared_memory", 4)
    length = 200_000

    def work(member: Communicator) -> tuple[int, float, int, float]:
        own = member.allocate(length, "float64")
        own[:] = member.rank
        part = member.subgroup([3, 1] if member.rank % 2 else [2, 0])
        in_part = rounds_of_an_allreduce(part, own[:100_000])
        started = member.traffic.rounds
        member.start.allreduce(own[100_000:]).wait()
        member.barrier()
        in_background = member.traffic.rounds - started - 1
        assert (own[:100_000] == own[0]).all() and (own[100_000:] == own[-1]).all()
        part.close()
        return in_part, float(own[0]), in_background, float(own[-1])

    assert on_all(group, work) == [(2, 2.0, 2, 6.0), (2, 4.0, 2, 6.0)] * 2


def mapped() -> int:
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("/d5ray-")


@pytest.mark.parametrize("backend", ["shared_memory", "hierarchical"])
def test_the_memory_of_a_group_goes_with_it(backend: str) -> None:
    """At once, before somebody looks for garbage, since agents form groups anew after each death."""
    before = mapped()
    gc.disable()
    try:
        with former() as made:
            assert made.form(backend, 4) and mapped() > before
        del made
        wait_until(lambda: mapped() == before, 5)
    finally:
        gc.enable()


@pytest.mark.full
def test_memory_goes_with_the_last_array_over_it(groups: Former) -> None:
    """A slice keeps an allocation alive; when it is gone the mapping is, and its address is forgotten."""
    group = groups.form("shared_memory", 2)
    gc.collect()
    before = mapped()

    def work(member: Communicator) -> tuple[Array, bool]:
        whole = member.allocate(100_000, "float32")
        kept = whole[5:7]
        del whole
        return kept, ALLOCATIONS.find(kept)[0] != NOWHERE

    found = on_all(group, work)
    assert [known for _, known in found] == [True, True]
    assert mapped() == before + 2
    del found
    gc.collect()
    assert mapped() == before

    def many(member: Communicator) -> None:
        for turn in range(20):
            array = member.allocate(100_000 + turn, "float32")
            assert rounds_of_an_allreduce(member, array) == 2

    on_all(group, many)
    gc.collect()
    assert mapped() == before


def test_members_that_allocate_different_arrays_are_named(groups: Former) -> None:
    """All raise the same; without this they would wait for each other's memory."""
    group = groups.form("shared_memory", 2)

    def work(member: Communicator) -> str:
        with pytest.raises(ConfigurationError) as caught:
            member.allocate(10 + member.rank, "float32")
        return str(caught.value)

    for text in on_all(group, work):
        assert "rank 0: 10 × float32; rank 1: 11 × float32" in text


# -- traffic ----------------------------------------------------------------------------------------------


def counted(member: Communicator, work: Any) -> tuple[int, int, int]:
    before = vars(member.traffic).copy()
    work()
    after = vars(member.traffic)
    return (
        after["bytes_sent"] - before["bytes_sent"],
        after["bytes_received"] - before["bytes_received"],
        after["rounds"] - before["rounds"],
    )


@pytest.mark.parametrize("kind", ["allocated", "ordinary"])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("elements", [1000, 30_001])
def test_traffic_is_what_crosses_between_members(groups: Former, size: int, elements: int, kind: str) -> None:
    """To the byte, as the class says; what all send is what all receive; rounds: one, two, or one more."""
    group = groups.members("shared_memory", size)
    payload, even = elements * 4, (elements - elements % size) * 4
    small = payload <= SMALL_BYTES
    direct = 2 if kind == "allocated" else None

    def work(member: Communicator) -> list[tuple[int, int, int]]:
        array = place(member, kind, np.zeros(elements, np.float32))
        return [
            counted(member, lambda: member.allreduce(array)),
            counted(member, lambda: member.reduce_scatter(array)),
            counted(member, lambda: member.all_gather(array)),
            counted(member, lambda: member.all_to_all(array[: even // 4])),
            counted(member, lambda: member.broadcast(array, root=1)),
            counted(member, member.barrier),
        ]

    found = on_all(group, work)
    for rank, rows in enumerate(found):
        part = group[0].bounds(elements)[rank]
        own, others = (part.stop - part.start) * 4, size - 1
        reduced = others * payload if small else payload - own + others * own
        expected = [
            (reduced, reduced, 1 if small else direct or (2 if size == 2 else 3)),
            (payload - own, others * own, 1 if small else 2),
            (others * own, payload - own, 1 if small else 2),
            (even - even // size, even - even // size, 1 if small else 2),
            (others * payload, 0, 1 if small else 2) if rank == 1 else (0, payload, 1 if small else 2),
            (0, 0, 1),
        ]
        assert rows == expected
    totals = np.sum(found, axis=0)
    assert (totals[:, 0] == totals[:, 1]).all()


def test_traffic_with_neighbors_is_one_payload_an_edge(groups: Former) -> None:
    """Averages, exchanges and pairs, whatever the length, in one round each."""
    group = groups.members("shared_memory", Ring(4))

    def work(member: Communicator) -> list[tuple[int, int, int]]:
        array = np.zeros(200_000, np.float32)
        other = member.rank ^ 1
        return [
            counted(member, lambda: member.neighbor_average(array)),
            counted(member, lambda: member.neighbor_exchange(array)),
            counted(member, lambda: member.pair_average(array, other)),
            counted(
                member, lambda: member.recv(array, other) if member.rank % 2 else member.send(array, other)
            ),
        ]

    for rank, rows in enumerate(on_all(group, work)):
        once = 800_000
        pair = (0, once, 1) if rank % 2 else (once, 0, 1)
        assert rows == [(2 * once, 2 * once, 1), (2 * once, 2 * once, 1), (once, once, 1), pair]


# -- messages ---------------------------------------------------------------------------------------------


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


# -- processes --------------------------------------------------------------------------------------------


def hammer(pipe: Any, group: Group) -> None:
    """A member in a process of its own: a long program, every result checked."""
    communicator = backends.join("shared_memory", group, Complete(group.size))
    for case in program(communicator.topology):
        perform(communicator, case)
    communicator.barrier()
    pipe.send(group.rank)
    communicator.close()


@pytest.mark.slow
def test_processes_see_each_others_memory_in_order() -> None:
    """Three processes, without a pause: a store that is seen too late would be a wrong sum."""
    rendezvous = Rendezvous()
    with ExitStack() as stack:
        stack.callback(rendezvous.close)
        groups = [Group("hammer", 0, rank, 3, rendezvous.address) for rank in range(3)]
        members = [stack.enter_context(elsewhere(hammer, group)) for group in groups]
        assert [member.said(patience(100)) for member in members] == [0, 1, 2]
