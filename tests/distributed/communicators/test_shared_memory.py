"""Claims about collectives in shared memory, against NumPy: on allocated arrays, slices and ordinary ones"""

import gc
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.shared_memory.allocations import ALLOCATIONS, NOWHERE
from d5ray.distributed.communicators.shared_memory.communicator import SMALL_BYTES
from d5ray.distributed.communicators.shared_memory.reduce_kernels import ReduceKernels
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Complete, Ring
from d5ray.errors import ConfigurationError
from tests.distributed.forming import Former, former, on_all
from tests.patience import patience

Array = np.ndarray[Any, Any]
DTYPES = [
    "float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool",
]  # fmt: skip
KINDS = ["allocated", "a slice", "ordinary", "mixed"]
LARGE = 300_000  # of one byte or more: beyond `SMALL_BYTES`, and with four bytes beyond a slot


@pytest.fixture(scope="module")
def groups() -> Iterator[Former]:
    with former() as made:
        yield made


def values(size: int, elements: int, dtype: str, seed: int = 0) -> Array:
    """(size, elements): small integers, others on every member."""
    numbers = np.random.default_rng([seed, size, elements]).integers(0, 4, (size, elements))
    return numbers.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def place(member: Communicator, kind: str, data: Array) -> Array:
    """A copy of the data in memory of this kind; mixed: every second member's is ordinary."""
    if kind == "ordinary" or (kind == "mixed" and member.rank % 2):
        if kind == "mixed":
            member.allocate(data.size, data.dtype.name)
        return data.copy()
    if kind == "a slice":  # each begins elsewhere
        own = member.allocate(data.size + 64, data.dtype.name)[5 * member.rank :][: data.size]
    else:
        own = member.allocate(data.size, data.dtype.name)
    own[:] = data
    return own


def equal(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(np.asarray(found, np.float64), np.asarray(expected, np.float64))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 3, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_collectives_are_numpys(groups: Former, size: int, kind: str) -> None:
    """All five, with arrays up to and beyond what one slot holds, wherever the arrays lie."""
    group = groups.members("shared_memory", size)
    for elements in (0, 1, 17, SMALL_BYTES // 4, SMALL_BYTES // 4 + 1, LARGE):
        whole = elements - elements % size
        data = values(size, elements, "float32")
        parts = group[0].bounds(elements)

        def work(
            member: Communicator, data: Array = data, parts: Any = parts, whole: int = whole
        ) -> list[Array]:
            mine = data[member.rank]
            results = []
            for operation in ("sum", "min", "max"):
                array = place(member, kind, mine)
                member.allreduce(array, operation)
                results.append(array)
            array = place(member, kind, mine)
            part = member.reduce_scatter(array, "sum")
            assert part == parts[member.rank]
            results.append(array[part].copy())
            array = place(member, kind, mine)
            member.all_gather(array)
            results.append(array)
            array = place(member, kind, mine[:whole])
            member.all_to_all(array)
            results.append(array)
            array = place(member, kind, mine)
            member.broadcast(array, root=size - 1)
            results.append(array)
            return results

        gathered = np.concatenate([data[rank][part] for rank, part in enumerate(parts)])
        turned = data[:, :whole].reshape(size, size, -1).transpose(1, 0, 2).reshape(size, -1)
        for rank, found in enumerate(on_all(group, work)):
            equal(found[0], data.sum(axis=0))
            equal(found[1], data.min(axis=0))
            equal(found[2], data.max(axis=0))
            equal(found[3], data.sum(axis=0)[parts[rank]])
            equal(found[4], gathered)
            equal(found[5], turned[rank])
            equal(found[6], data[-1])


@pytest.mark.parametrize("kind", ["allocated", "ordinary"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_is_reduced_and_moved(groups: Former, dtype: str, kind: str) -> None:
    """Small and large, by three members; a sum of booleans is true where one is."""
    group = groups.members("shared_memory", 3)
    for elements in (5, LARGE):
        data = values(3, elements, dtype)

        def work(member: Communicator, data: Array = data) -> tuple[Array, Array, Array]:
            summed, largest, cast = (place(member, kind, data[member.rank]) for _ in range(3))
            member.allreduce(summed, "sum")
            member.allreduce(largest, "max")
            member.broadcast(cast, root=1)
            return summed, largest, cast

        exact = data.any(axis=0) if dtype == "bool" else data.astype(np.float64).sum(axis=0)
        for summed, largest, cast in on_all(group, work):
            assert summed.dtype == data.dtype
            equal(summed, exact)
            equal(largest, data.astype(np.float64).max(axis=0))
            equal(cast, data[1])


@pytest.mark.parametrize("kind", ["allocated", "ordinary"])
@pytest.mark.parametrize("elements", [100, LARGE])
def test_sums_are_in_the_order_of_the_ranks(groups: Former, kind: str, elements: int) -> None:
    """Of four members' fractions: ((x0 + x1) + x2) + x3, each rounded to float32, to the last bit."""
    group = groups.members("shared_memory", 4)
    data = np.random.default_rng(5).standard_normal((4, elements)).astype(np.float32)

    def work(member: Communicator) -> Array:
        array = place(member, kind, data[member.rank])
        member.allreduce(array)
        return array

    expected = ((data[0] + data[1]) + data[2]) + data[3]
    assert all(found.tobytes() == expected.tobytes() for found in on_all(group, work))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("elements", [100, LARGE])
def test_halves_are_rounded_once(groups: Former, dtype: str, elements: int) -> None:
    """The sum of five halves is their float32 sum, rounded to the nearest half at the end."""
    group = groups.members("shared_memory", 5)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    data = np.random.default_rng(6).standard_normal((5, elements)).astype(kind)

    def work(member: Communicator) -> Array:
        array: Array = data[member.rank].copy()
        member.allreduce(array)
        return array

    wide = data.astype(np.float32)
    expected = ((((wide[0] + wide[1]) + wide[2]) + wide[3]) + wide[4]).astype(kind)
    assert all(found.tobytes() == expected.tobytes() for found in on_all(group, work))


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
def test_a_fold_ends_with_its_division_or_its_weight(dtype: str) -> None:
    """Of three arrays, longer than a block: the mean is their sum / 3, equal weights are multiplied once."""
    data = np.random.default_rng(8).standard_normal((3, 200_000)).astype(dtype)
    wide = data.astype(np.complex64 if dtype == "complex64" else np.float32)
    total = (wide[0] + wide[1]) + wide[2]
    mean, weighted, mixed = np.empty_like(data[0]), np.empty_like(data[0]), data[1].copy()
    kernels = ReduceKernels()
    kernels.reduce(list(data), mean, "mean")
    kernels.reduce(list(data), weighted, weights=[0.3, 0.3, 0.3])
    kernels.reduce([data[0], mixed, data[2]], mixed, weights=[0.5, 1.0, 0.25])  # where the result goes
    single = np.float32
    assert mean.tobytes() == (total / single(3)).astype(dtype).tobytes()
    assert weighted.tobytes() == (total * single(0.3)).astype(dtype).tobytes()
    expected = (single(0.5) * wide[0] + wide[1]) + single(0.25) * wide[2]
    assert mixed.tobytes() == expected.astype(dtype).tobytes()


def test_infinities_pass_without_a_warning(groups: Former) -> None:
    """An overflow is infinite, ∞ − ∞ is not a number, as in every other communicator."""
    group = groups.members("shared_memory", 2)

    def work(member: Communicator) -> Array:
        array = np.array([3e38, np.inf * (1 - 2 * member.rank), 1], np.float32)
        member.allreduce(array)
        return array

    for found in on_all(group, work):
        assert np.isposinf(found[0]) and np.isnan(found[1]) and found[2] == 2


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


@pytest.mark.full
def test_memory_goes_with_the_last_array_over_it(groups: Former) -> None:
    """A slice keeps an allocation alive; when it is gone the mapping is, and its address is forgotten."""
    group = groups.form("shared_memory", 2)

    def mapped() -> int:
        return Path("/proc/self/maps").read_text(encoding="utf-8").count("/d5ray-")

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
@pytest.mark.parametrize("size", [2, 3, 4])
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


# -- many operations, many members ------------------------------------------------------------------------

OPERATIONS = ["allreduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "average", "barrier"]
LENGTHS = [0, 1, 7, 1000, SMALL_BYTES // 4 + 3, 140_000]


def one(member: Communicator, operation: str, array: Array, seed: int) -> None:
    """One operation on an array of which all members know what it should be; checks it."""
    size = member.size
    all_of = np.random.default_rng(seed).integers(-50, 50, (size, array.size)).astype(np.float32)
    array[:] = all_of[member.rank]
    parts = member.bounds(array.size)
    expected, where = array.copy(), slice(None)
    match operation:
        case "allreduce":
            member.allreduce(array)
            expected = all_of.sum(axis=0)
        case "reduce_scatter":
            where = member.reduce_scatter(array)
            expected = all_of.sum(axis=0)
        case "all_gather":
            member.all_gather(array)
            expected = np.concatenate([all_of[rank][part] for rank, part in enumerate(parts)])
        case "all_to_all":
            array = array[: array.size // size * size]
            member.all_to_all(array)
            turned = all_of[:, : array.size].reshape(size, size, -1)
            expected = turned[:, member.rank].reshape(-1)
        case "broadcast":
            member.broadcast(array, root=seed % size)
            expected = all_of[seed % size]
        case "average":
            member.neighbor_average(array)
            expected = all_of.mean(axis=0)  # of a complete graph
            np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-4)
            return
        case _:
            member.barrier()
    np.testing.assert_array_equal(array[where], expected[where])


@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.sampled_from(LENGTHS), st.booleans()), max_size=12))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_any_sequence_of_operations(groups: Former, program: list[tuple[str, int, bool]]) -> None:
    """Slots, parities and channels never mix up operations: any program, on ordinary and allocated arrays."""
    group = groups.members("shared_memory", 3)

    def work(member: Communicator) -> None:
        own = member.allocate(max(LENGTHS) + 100, "float32")
        for seed, (operation, length, allocated) in enumerate(program):
            array = own[seed : seed + length] if allocated else np.empty(length, np.float32)
            one(member, operation, array, seed)

    on_all(group, work)


def _hammer(group: Group, answers: Any) -> None:
    """A member in a process of its own: a long program, every result checked."""
    communicator = backends.join("shared_memory", group, Complete(group.size))
    own = communicator.allocate(max(LENGTHS), "float32")
    choices = np.random.default_rng(1)
    for seed in range(300):
        operation, length = choices.choice(OPERATIONS), int(choices.choice(LENGTHS))
        array = own[:length] if choices.integers(2) else np.empty(length, np.float32)
        one(communicator, str(operation), array, seed)
    communicator.barrier()
    answers.put(group.rank)
    communicator.close()


@pytest.mark.slow
def test_processes_see_each_others_memory_in_order() -> None:
    """Three processes, 300 operations without a pause: a store that is seen too late would be a wrong sum."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    rendezvous = Rendezvous()
    members = [
        context.Process(
            target=_hammer,
            args=(Group("hammer", 0, rank, 3, rendezvous.address, timeout_seconds=30.0), answers),
            daemon=True,
        )
        for rank in range(3)
    ]
    try:
        for member in members:
            member.start()
        assert {answers.get(timeout=patience(100)) for _ in members} == {0, 1, 2}
        for member in members:
            member.join(20)
            assert member.exitcode == 0
    finally:
        for member in members:
            if member.is_alive():
                member.kill()
            member.join(5)
        rendezvous.close()


def test_a_group_of_one(groups: Former) -> None:
    """A sub-group of one member: everything is what it was, and nothing moves."""
    group = groups.members("shared_memory", 2)

    def work(member: Communicator) -> tuple[int, int]:
        part = member.subgroup([member.rank])
        before = member.traffic.bytes_sent + member.traffic.bytes_received
        for array in (np.arange(10.0), np.arange(100_000.0), part.allocate(100_000, "float64")):
            kept = array.copy()
            part.allreduce(array, "mean")
            part.reduce_scatter(array)
            part.all_gather(array)
            part.all_to_all(array)
            part.broadcast(array)
            part.neighbor_average(array)
            part.barrier()
            equal(array, kept)
        part.close()
        return before, member.traffic.bytes_sent + member.traffic.bytes_received

    assert all(before == after for before, after in on_all(group, work))


def test_thirty_two_members(groups: Former) -> None:
    """More members than cores: sums, neighbours and messages are right, and nobody starves."""
    group = groups.form("shared_memory", Ring(32))
    begin = time.monotonic()

    def work(member: Communicator) -> tuple[float, float, int]:
        array = np.full(20_000, float(member.rank), np.float32)
        for _ in range(3):
            member.allreduce(array, "mean")
        mean = float(array[-1])
        array[:] = member.rank % 2
        member.neighbor_average(array)
        message = np.full(3, member.rank, np.uint8)
        gathered = member.all_gather_messages(message, length=3)
        return mean, float(array[0]), int(np.concatenate(gathered).astype(int).sum())

    for rank, (mean, averaged, total) in enumerate(on_all(group, work)):
        assert mean == 15.5
        assert averaged == pytest.approx((rank % 2 + 2 * (1 - rank % 2)) / 3)
        assert total == 3 * sum(range(32))
    assert time.monotonic() - begin < patience(30)
