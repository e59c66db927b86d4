"""Claims that every communicator keeps: each backend against NumPy on the members' arrays, stacked"""

import importlib.util
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Complete, Ring, Topology
from d5ray.errors import ConfigurationError, D5Error, PeerLost
from tests.distributed.forming import Former, former, on_all
from tests.distributed.survivors import until_somebody_is_lost
from tests.patience import patience
from tests.together import together

Array = np.ndarray[Any, Any]
REAL_BACKENDS = ["reference", "shared_memory", "socket", "hierarchical"]
BACKENDS = [*REAL_BACKENDS, "simulated", *(["nccl"] if importlib.util.find_spec("cupy") else [])]
PROCESS_BACKENDS = ["shared_memory", "socket"]
NODES: dict[str, tuple[str, ...]] = dict.fromkeys(BACKENDS, ()) | {"hierarchical": ("first", "second")}
SIZES = [2, 3, 4, 8]
FLOATS = ["float16", "float32", "float64", "bfloat16"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8"]
NOTICED_SECONDS = 5.0  # within which everyone must know who is lost
REDUCED: dict[str, Callable[[Array], Array]] = {
    "sum": lambda stacked: stacked.sum(axis=0),
    "mean": lambda stacked: stacked.mean(axis=0),
    "min": lambda stacked: stacked.min(axis=0),
    "max": lambda stacked: stacked.max(axis=0),
}


@pytest.fixture(scope="module")
def groups() -> Iterator[Former]:
    with former() as made:
        yield made


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def values(size: int, elements: int, dtype: str = "float32", seed: int = 0) -> Array:
    """(size, elements): small integers, others on every member, so that every type sums them exactly."""
    numbers = np.random.default_rng([seed, size, elements]).integers(-3, 4, (size, elements))
    if dtype.startswith("u"):
        numbers += 3
    if elements:
        numbers[:, 0] = np.arange(size)
    return numbers.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def without_messages(backend: str) -> None:
    """Skip for NCCL, which exchanges arrays of a device alone."""
    if backend == "nccl":
        pytest.skip("messages lie in host memory")


def as_float(array: Any) -> Array:
    if isinstance(array, torch.Tensor):
        array = array.double().numpy() if array.is_floating_point() else array.numpy()
    return np.asarray(array, dtype=np.float64)


# -- collectives -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("operation", REDUCED)
def test_allreduce_is_numpys_reduction(groups: Former, backend: str, size: int, operation: str) -> None:
    """Every member holds the reduction of all members' arrays, from no element to 100,003 of them."""
    group = groups.members(backend, size)
    for elements in (0, 1, 2, 3, 17, 1000, 100_003):
        given = values(size, elements)

        def reduce(member: Communicator, given: Array = given) -> Array:
            array: Array = given[member.rank].copy()
            member.allreduce(array, operation)
            return array

        for found in on_all(group, reduce):
            np.testing.assert_allclose(found, REDUCED[operation](given), rtol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("size", [2, 3])
def test_every_type_is_reduced(groups: Former, backend: str, size: int, dtype: str) -> None:
    """Sum, min and max are exact in every type, mean to the type's precision."""
    group = groups.members(backend, size)
    given = values(size, 1003, dtype)
    precision = 1e-2 if dtype == "bfloat16" else 2e-3 if dtype == "float16" else 1e-6
    for operation in REDUCED:
        if operation == "mean" and dtype in INTEGERS:
            continue
        if backend == "nccl" and dtype == "int16":
            pytest.skip("NCCL has no integers of 16 bits")

        def reduce(member: Communicator, operation: str = operation) -> Array:
            array: Array = given[member.rank].copy()
            member.allreduce(array, operation)
            return array

        for found in on_all(group, reduce):
            assert found.dtype == given.dtype
            expected = REDUCED[operation](given.astype(np.float64))
            np.testing.assert_allclose(
                as_float(found), expected, rtol=precision if operation == "mean" else 0
            )


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
        assert as_float(plain).tolist() == [[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]]
        assert trained.tolist() == [1.5, 1.5, 1.5]


@pytest.mark.parametrize("size", SIZES)
def test_members_agree_to_the_last_bit(groups: Former, backend: str, size: int) -> None:
    """Sums of fractions round, but alike on all members, small or large; and stay near the exact sum."""
    group = groups.members(backend, size)
    for elements in (5, 4_097, 300_001):
        given = np.random.default_rng(elements).standard_normal((size, elements)).astype(np.float32)

        def reduce(member: Communicator, given: Array = given) -> Array:
            array: Array = given[member.rank].copy()
            member.allreduce(array, "mean")
            return array

        found = on_all(group, reduce)
        assert len({array.tobytes() for array in found}) == 1
        np.testing.assert_allclose(found[0], given.astype(np.float64).mean(axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("elements", [0, 1, 5, 1001, 70_000])
def test_reduce_scatter_and_all_gather_make_an_allreduce(
    groups: Former, backend: str, size: int, elements: int
) -> None:
    """The own part holds the reduction, parts differ by one element at most, gathered they are the whole."""
    group = groups.members(backend, size)
    given = values(size, elements)

    def both(member: Communicator) -> tuple[slice, Array, Array]:
        array: Array = given[member.rank].copy()
        part = member.reduce_scatter(array, "sum")
        scattered = array[part].copy()
        array[: part.start], array[part.stop :] = -99, -99
        member.all_gather(array)
        return part, scattered, array

    found = on_all(group, both)
    lengths = [part.stop - part.start for part, _, _ in found]
    assert sum(lengths) == elements and max(lengths) - min(lengths) <= 1
    for part, scattered, gathered in found:
        assert scattered.tolist() == given.sum(axis=0)[part].tolist()
        assert gathered.tolist() == given.sum(axis=0).tolist()


@pytest.mark.parametrize("size", SIZES)
def test_all_gather_of_rows(groups: Former, backend: str, size: int) -> None:
    """An array of one row a member is every member's row afterwards."""
    group = groups.members(backend, size)
    given = values(size, 33)

    def gather(member: Communicator) -> Array:
        rows = np.zeros((size, 33), dtype=np.float32)
        rows[member.rank] = given[member.rank]
        member.all_gather(rows)
        return rows

    for found in on_all(group, gather):
        assert (found == given).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("part", [0, 1, 1000])
def test_all_to_all_is_a_transpose(groups: Former, backend: str, size: int, part: int) -> None:
    """Part j of member i is part i of member j afterwards."""
    group = groups.members(backend, size)
    given = np.arange(size * size * part, dtype=np.int32).reshape(size, size, part)

    def turn(member: Communicator) -> Array:
        array: Array = given[member.rank].reshape(-1).copy()
        member.all_to_all(array)
        turned: Array = array.reshape(size, part)
        return turned

    assert np.array_equal(np.stack(on_all(group, turn)), given.transpose(1, 0, 2))


def test_all_to_all_needs_equal_parts(groups: Former, backend: str) -> None:
    """Seven elements among two members are refused on both."""
    group = groups.members(backend, 2)
    for member in group:
        with pytest.raises(ConfigurationError, match="2 equal parts, found 7 elements"):
            member.all_to_all(np.zeros(7))


@pytest.mark.parametrize("size", SIZES)
def test_broadcast_from_every_root(groups: Former, backend: str, size: int) -> None:
    """Whoever is root, all have the root's array."""
    group = groups.members(backend, size)
    for elements in (0, 1, 50_001):
        given = values(size, elements, seed=1)

        def cast(member: Communicator, given: Array = given) -> list[Array]:
            got = []
            for root in range(size):
                array: Array = given[member.rank].copy()
                member.broadcast(array, root)
                got.append(array)
            return got

        for found in on_all(group, cast):
            assert np.array_equal(np.stack(found), given)


@pytest.mark.parametrize("size", SIZES)
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


@pytest.mark.parametrize("elements", [1, 1_000_000, 10_000_000])
def test_large_arrays(groups: Former, backend: str, elements: int) -> None:
    """From one element to ten million, also in memory that the communicator allocated."""
    group = groups.members(backend, 2)

    def reduce(member: Communicator) -> bool:
        plain = np.full(elements, member.rank + 1.0, dtype=np.float32)
        plain[-1] = 10.0 * (member.rank + 1)
        own = member.allocate(elements, "float32")
        own[:] = plain
        for array in (plain, own):
            member.allreduce(array, "sum")
            expected = np.full(elements, 3.0, dtype=np.float32)
            expected[-1] = 30.0
            assert np.array_equal(array, expected)
        return True

    assert on_all(group, reduce) == [True, True]


# -- neighbours and pairs --------------------------------------------------------------------------------


@pytest.mark.parametrize("topology", [Complete(2), Complete(3), Ring(3), Ring(4), Ring(8)], ids=repr)
def test_neighbor_average_is_a_product_with_w(groups: Former, backend: str, topology: Topology) -> None:
    """x ← W x, for several arrays at once, in float32 to 1e-6 and in float64 to 1e-12."""
    group = groups.members(backend, topology)
    for elements in (1, 1000, 40_001):
        single = np.random.default_rng(1).standard_normal((topology.agents, elements)).astype(np.float32)
        double = np.random.default_rng(2).standard_normal((topology.agents, elements))

        def mix(member: Communicator, single: Array = single, double: Array = double) -> tuple[Array, Array]:
            first: Array = single[member.rank].copy()
            second: Array = double[member.rank].copy()
            member.neighbor_average(first, second)
            return first, second

        found = on_all(group, mix)
        weights = topology.weights()
        np.testing.assert_allclose(
            np.stack([first for first, _ in found]), weights @ single.astype(float), rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(
            np.stack([second for _, second in found]), weights @ double, rtol=1e-12, atol=1e-14
        )


def test_reduce_from_neighbors_is_a_plain_sum(groups: Former, backend: str) -> None:
    """On a ring each has the sum of its own, the previous and the next array; integers may be."""
    group = groups.members(backend, Ring(4))
    given = values(4, 100, "int64")

    def reduce(member: Communicator) -> Array:
        array: Array = given[member.rank].copy()
        member.reduce_from_neighbors(array)
        return array

    expected = [given[i - 1] + given[i] + given[(i + 1) % 4] for i in range(4)]
    assert np.array_equal(np.stack(on_all(group, reduce)), np.stack(expected))


def test_neighbor_exchange_gives_what_each_neighbor_sent(groups: Former, backend: str) -> None:
    """By rank, and the own array stays as it is."""
    group = groups.members(backend, Ring(4))
    given = values(4, 9)

    def exchange(member: Communicator) -> dict[int, list[float]]:
        array: Array = given[member.rank].copy()
        got = {rank: theirs.tolist() for rank, theirs in member.neighbor_exchange(array).items()}
        assert array.tolist() == given[member.rank].tolist()
        return got

    for rank, got in enumerate(on_all(group, exchange)):
        assert got == {other: given[other].tolist() for other in ((rank - 1) % 4, (rank + 1) % 4)}


def test_pair_average_conserves_the_sum(groups: Former, backend: str) -> None:
    """Both of a pair have their mean; the others, who are not in it, keep theirs."""
    group = groups.members(backend, 4)
    given = np.random.default_rng(3).standard_normal((4, 50))

    def average(member: Communicator) -> Array:
        array: Array = given[member.rank].copy()
        member.pair_average(array, member.rank ^ 1)
        return array

    found = np.stack(on_all(group, average))
    np.testing.assert_allclose(found[0], (given[0] + given[1]) / 2, rtol=1e-14)
    np.testing.assert_allclose(found[3], (given[2] + given[3]) / 2, rtol=1e-14)
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[2], found[3])


@pytest.mark.parametrize("elements", [0, 1, 200_001])
def test_send_and_recv_pair_by_tag(groups: Former, backend: str, elements: int) -> None:
    """Two threads of a pair exchange two arrays each way with tags that come in another order."""
    group = groups.members(backend, 3)
    given = values(3, elements)

    def swap(member: Communicator) -> Array | None:
        if member.rank == 1:
            return None
        got: Array = np.zeros_like(given[0])
        other = 2 - member.rank
        if member.rank == 0:
            member.send(given[0].copy(), other, tag=7)
            member.recv(got, other, tag=5)
        else:
            member.recv(got, other, tag=7)
            member.send(given[2].copy(), other, tag=5)
        return got

    found = on_all(group, swap)
    assert found[0] is not None and found[0].tolist() == given[2].tolist()
    assert found[2] is not None and found[2].tolist() == given[0].tolist()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_messages_of_different_length(groups: Former, backend: str, size: int) -> None:
    """Every member gets every member's bytes, whatever their number; none is fine too."""
    without_messages(backend)
    group = groups.members(backend, size)
    given = [np.arange(rank * 1000, dtype=np.int64).astype(np.uint8) for rank in range(size)]

    def gather(member: Communicator) -> list[bytes]:
        return [message.tobytes() for message in member.all_gather_messages(given[member.rank])]

    assert on_all(group, gather) == [[message.tobytes() for message in given]] * size


def test_messages_of_known_length_travel_without_it(groups: Former, backend: str) -> None:
    """With the length agreed, exactly the messages' bytes are counted; without, eight more for each."""
    without_messages(backend)
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
    """[2, 0] of four: rank 2 is its rank 0; sums are the members' alone, and the whole group still works.

    Here `ray.util.collective` returns each member's own value on such a sub-group, without an error.
    """
    group = groups.members(backend, 4)

    def work(member: Communicator) -> tuple[float, float, float]:
        ranks = [2, 0] if member.rank in (0, 2) else [3, 1]
        part = member.subgroup(ranks)
        assert part.rank == ranks.index(member.rank) and part.size == 2
        summed, rooted, everyone = (np.array([float(member.rank)]) for _ in range(3))
        part.allreduce(summed, "sum")
        part.broadcast(rooted, root=0)
        member.allreduce(everyone, "sum")
        part.close()
        return summed[0], rooted[0], everyone[0]

    assert on_all(group, work) == [(2.0, 2.0, 6.0), (4.0, 3.0, 6.0), (2.0, 2.0, 6.0), (4.0, 3.0, 6.0)]


def test_send_within_a_permuted_subgroup(groups: Former, backend: str) -> None:
    """Ranks of a pair message are the sub-group's: here `ray.util.collective` hangs."""
    group = groups.members(backend, 3)

    def work(member: Communicator) -> list[float]:
        part = member.subgroup([2, 1, 0])
        array = np.array([float(member.rank)])
        if part.rank == 0:
            part.send(array, 2)
        elif part.rank == 2:
            part.recv(array, 0)
        part.barrier()
        part.close()
        return list(array)

    assert on_all(group, work) == [[2.0], [1.0], [2.0]]


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


def test_a_subgroups_traffic_is_the_groups(groups: Former, backend: str) -> None:
    """What is moved in a sub-group is counted where the agent looks."""
    group = groups.form(backend, 2)

    def work(member: Communicator) -> bool:
        part = member.subgroup([1, 0])
        part.allreduce(np.ones(10))
        part.close()
        return part.traffic is member.traffic and member.traffic.bytes_sent > 0

    assert on_all(group, work) == [True, True]


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
        "tag": (lambda c: c.send(np.zeros(3), 1 - c.rank, tag=-1), "the tag is -1"),
        "sub-group of others": (lambda c: c.subgroup([1 - c.rank]), "let the members alone form it"),
        "sub-group with twice the same": (lambda c: c.subgroup([c.rank, c.rank]), "every member once"),
    }


@pytest.mark.parametrize("case", refusals())
def test_wrong_arguments_are_refused_before_anything_is_sent(groups: Former, backend: str, case: str) -> None:
    """An error that says what was found, and the group works on."""
    call, words = refusals()[case]
    group = groups.members(backend, 2)
    for member in group:
        with pytest.raises(ConfigurationError, match=words):
            call(member)

    def reduce(member: Communicator) -> float:
        array = np.ones(1)
        member.allreduce(array)
        return float(array[0])

    assert on_all(group, reduce) == [2.0, 2.0]


DISAGREEMENTS: dict[str, tuple[Callable[[Communicator], Any], Callable[[Communicator], Any], str, str]] = {
    "sizes": (
        lambda c: c.allreduce(np.zeros(10, dtype=np.float32)),
        lambda c: c.allreduce(np.zeros(20, dtype=np.float32)),
        "allreduce sum of 10 × float32",
        "allreduce sum of 20 × float32",
    ),
    "large sizes": (
        lambda c: c.allreduce(np.zeros(1_000_000, dtype=np.float32)),
        lambda c: c.allreduce(np.zeros(1_000_001, dtype=np.float32)),
        "allreduce sum of 1,000,000 × float32",
        "allreduce sum of 1,000,001 × float32",
    ),
    "types": (
        lambda c: c.allreduce(np.zeros(10, dtype=np.float32)),
        lambda c: c.allreduce(np.zeros(10, dtype=np.float64)),
        "allreduce sum of 10 × float32",
        "allreduce sum of 10 × float64",
    ),
    "reductions": (
        lambda c: c.allreduce(np.zeros(10), "sum"),
        lambda c: c.allreduce(np.zeros(10), "max"),
        "allreduce sum of 10 × float64",
        "allreduce max of 10 × float64",
    ),
    "roots": (
        lambda c: c.broadcast(np.zeros(10), 0),
        lambda c: c.broadcast(np.zeros(10), 1),
        "broadcast 0 of 10 × float64",
        "broadcast 1 of 10 × float64",
    ),
    "operations": (
        lambda c: c.allreduce(np.zeros(10)),
        lambda c: c.all_gather(np.zeros(10)),
        "allreduce sum of 10 × float64",
        "all_gather of 10 × float64",
    ),
}


@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize("case", DISAGREEMENTS)
def test_members_that_call_different_things_are_named_on_all(
    groups: Former, backend: str, size: int, case: str
) -> None:
    """The last rank calls something else: all members raise within seconds, with both calls in the words."""
    usual, odd, usual_words, odd_words = DISAGREEMENTS[case]
    group = groups.form(backend, size)

    def call(member: Communicator) -> str:
        try:
            (odd if member.rank == size - 1 else usual)(member)
            member.barrier()
        except ConfigurationError as error:
            return str(error)
        return "no error"

    begin = time.monotonic()
    found = on_all(group, call, seconds=20)
    assert time.monotonic() - begin < patience(NOTICED_SECONDS)
    for text in found:
        assert usual_words in text and f"rank {size - 1}: {odd_words}" in text


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

    begin = time.monotonic()
    assert on_all(group, call, seconds=20) == ["a reason"] * 4
    assert time.monotonic() - begin < patience(NOTICED_SECONDS)


@pytest.mark.parametrize("backend", REAL_BACKENDS)
def test_a_topology_of_another_size_is_refused(groups: Former, backend: str) -> None:
    """A ring of four for a group of two."""
    with pytest.raises(ConfigurationError, match=r"has 4 agents.*has 2 members"):
        backends.join(backend, Group("x", 0, 0, 2, groups.rendezvous.address, nodes=("a", "b")), Ring(4))
    with pytest.raises(ConfigurationError, match="rank 2 is not in a group of 2"):
        backends.join(backend, Group("x", 0, 2, 2, groups.rendezvous.address), Complete(2))


@pytest.mark.full
@pytest.mark.parametrize("backend", REAL_BACKENDS)
def test_a_member_that_never_comes_is_not_waited_for_for_ever(groups: Former, backend: str) -> None:
    """Joining ends with `PeerLost` after the group's time-out."""
    lonely = Group("lonely", 0, 0, 2, groups.rendezvous.address, timeout_seconds=1.0, nodes=NODES[backend])
    begin = time.monotonic()
    with pytest.raises(PeerLost):
        backends.join(backend, lonely, Complete(2))
    assert time.monotonic() - begin < patience(NOTICED_SECONDS)


@pytest.mark.full
def test_a_silent_member_is_not_waited_for_for_ever(groups: Former, backend: str) -> None:
    """Who does not take part within the time-out is lost to the others."""
    group = groups.form(backend, 2, timeout_seconds=1.0)
    begin = time.monotonic()
    with pytest.raises(PeerLost):
        on_all(group[:1], lambda member: member.allreduce(np.ones(3)))
    assert time.monotonic() - begin < patience(NOTICED_SECONDS)


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

    begin = time.monotonic()
    on_all(groups.form(backend, 3), work)
    assert time.monotonic() - begin < patience(NOTICED_SECONDS)


@pytest.mark.full
def test_what_is_started_after_leaving_raises_at_once(groups: Former, backend: str) -> None:
    """Nobody waits for a thread that has ended; a group may be used in the background alone."""

    def work(member: Communicator) -> None:
        background = member.subgroup([1, 0]).in_background()
        array = np.full(10, float(member.rank))
        handle = background.run(lambda pair: (pair.barrier(), pair.allreduce(array)))
        handle.wait()
        assert array[0] == 1 and member.traffic.operations == 2 and member.traffic.bytes_sent > 0
        member.barrier()
        if member.rank == 0:
            member.close()
            with pytest.raises(PeerLost):
                background.barrier().wait()

    begin = time.monotonic()
    on_all(groups.form(backend, 2), work)
    assert time.monotonic() - begin < patience(NOTICED_SECONDS)


# -- processes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
@pytest.mark.parametrize("elements", [10, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_killed_member_is_named_and_the_group_formed_again(backend: str, elements: int) -> None:
    """SIGKILL in the middle of an allreduce: both others get PeerLost(1) within 5 s, and go on as two.

    Here the survivors in `ray.util.collective` cannot form a group again.
    """
    context = multiprocessing.get_context("spawn")
    rendezvous = Rendezvous()
    pipes = [context.Pipe(duplex=False) for _ in range(3)]
    members = [
        context.Process(
            target=until_somebody_is_lost,
            args=(
                backend,
                Group("killed", 0, rank, 3, rendezvous.address, timeout_seconds=60.0),
                elements,
                pipes[rank][1],
            ),
            daemon=True,
        )
        for rank in range(3)
    ]

    def said(rank: int, seconds: float) -> Any:
        assert pipes[rank][0].poll(seconds), f"rank {rank} says nothing for {seconds} s"
        return pipes[rank][0].recv()

    try:
        for member in members:
            member.start()
        assert [said(rank, 120) for rank in range(3)] == ["ready"] * 3
        assert members[1].pid is not None
        os.kill(members[1].pid, signal.SIGKILL)
        begin = time.monotonic()
        assert [said(rank, 20) for rank in (0, 2)] == [1, 1]
        assert time.monotonic() - begin < patience(NOTICED_SECONDS)
        assert [said(rank, 30) for rank in (0, 2)] == [[2.0] * 10] * 2
        for rank in (0, 2):
            members[rank].join(20)
            assert members[rank].exitcode == 0
    finally:
        for member in members:
            if member.is_alive():
                member.kill()
            member.join(5)
        for pipe in pipes:
            for end in pipe:
                end.close()
        rendezvous.close()


def test_backends_are_refused_by_their_nearest_name() -> None:
    """An unknown name is an error that names the nearest."""
    with pytest.raises(ConfigurationError, match="did you mean 'socket'"):
        backends.check_backend("sock")


@pytest.mark.full
def test_errors_are_errors_of_d5ray() -> None:
    """Whoever catches `D5Error` catches a lost peer."""
    assert issubclass(PeerLost, D5Error)
    assert together(lambda rank: rank, 2) == [0, 1]
