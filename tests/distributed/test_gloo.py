"""Claims about the gloo communicator: groups of threads and processes, different data on every rank."""

import itertools
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d5ray.distributed import backends
from d5ray.distributed.communicator import Communicator, Group
from d5ray.distributed.gloo import Gloo, binomial_children
from d5ray.distributed.solo import Solo
from d5ray.distributed.topology import Complete, Ring, Topology
from d5ray.errors import ConfigurationError, PeerLost
from d5ray.frameworks.torch.process_group import Store
from tests.together import together

Array = np.ndarray[Any, Any]
LONG_SECONDS = 30.0  # the bound of waits in groups of which nobody leaves
SHORT_SECONDS = 2.0
NOTICED_SECONDS = 5.0  # within which a lost peer must be noticed

_names = (f"group-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def store() -> Iterator[tuple[str, int]]:
    made = Store("127.0.0.1", LONG_SECONDS)
    yield made.address
    del made


Form = Callable[..., list[Communicator]]


@pytest.fixture(scope="module")
def form(store: tuple[str, int]) -> Form:
    """A new group of this topology, each member's communicator joined in a thread of its own."""

    def call(topology: Topology, timeout_seconds: float = LONG_SECONDS) -> list[Communicator]:
        size = topology.agents
        name = next(_names)

        def join(rank: int) -> Communicator:
            group = Group(name, 0, rank, size, store, timeout_seconds=timeout_seconds)
            return backends.join("gloo", group, topology)

        return together(join, size)

    return call


@pytest.fixture(scope="module")
def members(form: Form) -> Callable[[Topology], list[Communicator]]:
    """A group of this topology that is used again by the next test which wants the same."""
    made: dict[Topology, list[Communicator]] = {}

    def call(topology: Topology) -> list[Communicator]:
        if topology not in made:
            made[topology] = form(topology)
        return made[topology]

    return call


Members = Callable[[Topology], list[Communicator]]
REDUCED: dict[str, Callable[[Array], Array]] = {
    "sum": lambda stacked: stacked.sum(axis=0),
    "mean": lambda stacked: stacked.mean(axis=0),
    "min": lambda stacked: stacked.min(axis=0),
    "max": lambda stacked: stacked.max(axis=0),
}


def data(size: int, members: int, dtype: str, seed: int = 0) -> Array:
    """(members, size): other values for every member; whole numbers, so that every sum is exact."""
    numbers = np.random.default_rng([seed, size]).integers(-1000, 1000, (members, size))
    assert size < 8 or len({row.tobytes() for row in numbers}) == members
    return numbers.astype(dtype)


def as_kind(array: Array, kind: str) -> Any:
    return torch.from_numpy(array.copy()) if kind == "torch" else array.copy()


# -- collectives -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("dtype", "operation"),
    [
        pair
        for pair in itertools.product(("float32", "float64", "int64"), REDUCED)
        if pair != ("int64", "mean")
    ],
)
def test_allreduce_is_numpys_reduction(
    members: Members, size: int, kind: str, dtype: str, operation: str
) -> None:
    """Every member holds NumPy's reduction of the members' arrays, of 1 to 100,000 elements."""
    group = members(Complete(size))
    for elements in (1, 2, 3, 17, 1000, 100_000):
        given = data(elements, size, dtype)
        expected = REDUCED[operation](given.astype(np.float64) if operation == "mean" else given)

        def reduce(rank: int, given: Array = given) -> Any:
            array = as_kind(given[rank], kind)
            group[rank].allreduce(array, operation)
            return array

        for found in together(reduce, size):
            assert str(found.dtype).endswith(dtype)
            np.testing.assert_allclose(
                np.asarray(found), expected, rtol=1e-6 if operation == "mean" else 0, atol=1e-4
            )


@pytest.mark.parametrize("size", [2, 3, 4])
def test_allreduce_of_fractions_is_equal_on_all_members(members: Members, size: int) -> None:
    """Rounding may differ from NumPy's order of summation, but not from member to member: bit for bit."""
    group = members(Complete(size))
    given = np.random.default_rng(5).standard_normal((size, 1237)).astype(np.float32)

    def reduce(rank: int) -> Array:
        array: Array = given[rank].copy()
        group[rank].allreduce(array, "mean")
        return array

    first, *others = together(reduce, size)
    np.testing.assert_allclose(first, given.astype(np.float64).mean(axis=0), atol=1e-6)
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_arrays_of_more_dimensions_and_none_and_no_elements(members: Members) -> None:
    """A (2, 3) array, a scalar array and an empty one are reduced in their shape."""
    group = members(Complete(2))

    def reduce(rank: int) -> list[Array]:
        arrays = [np.arange(6.0).reshape(2, 3) * (rank + 1), np.array(5.0 + rank), np.zeros(0)]
        for array in arrays:
            group[rank].allreduce(array)
        return arrays

    for table, scalar, empty in together(reduce, 2):
        np.testing.assert_array_equal(table, np.arange(6.0).reshape(2, 3) * 3)
        assert (scalar.shape, float(scalar), empty.shape) == ((), 11.0, (0,))


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_broadcast_gives_the_roots_array(members: Members, size: int, kind: str) -> None:
    """From each root, also where the others hold NaN."""
    group = members(Complete(size))
    for root in range(size):
        given = data(501, size, "float64", seed=root)
        given[[rank for rank in range(size) if rank != root]] += np.nan

        def cast(rank: int, root: int = root, given: Array = given) -> Any:
            array = as_kind(given[rank], kind)
            group[rank].broadcast(array, root)
            return array

        for found in together(cast, size):
            np.testing.assert_array_equal(np.asarray(found), given[root])


@pytest.mark.parametrize("size", [2, 3, 4])
def test_nobody_passes_a_barrier_before_the_last_reaches_it(members: Members, size: int) -> None:
    """Members arrive 50 ms apart; the first to pass does so after the last has arrived."""
    group = members(Complete(size))

    def pass_barrier(rank: int) -> tuple[float, float]:
        time.sleep(0.05 * rank)
        arrived = time.monotonic()
        group[rank].barrier()
        return arrived, time.monotonic()

    times = together(pass_barrier, size)
    assert min(passed for _, passed in times) >= max(arrived for arrived, _ in times)


# -- neighbours and pairs --------------------------------------------------------------------------------


@pytest.mark.parametrize("topology", [Complete(2), Complete(3), Ring(3), Complete(4), Ring(4)], ids=repr)
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_neighbor_average_is_w_times_x(members: Members, topology: Topology, kind: str) -> None:
    """Three rounds in float64 are W³ X with the topology's own W, and the members' mean stays."""
    size = topology.agents
    group = members(topology)
    start = np.random.default_rng(7).standard_normal((size, 333))

    def average(rank: int) -> Any:
        array = as_kind(start[rank], kind)
        for _ in range(3):
            group[rank].neighbor_average(array)
        return array

    found = np.stack([np.asarray(array) for array in together(average, size)])
    weights = topology.weights()
    np.testing.assert_allclose(found, weights @ weights @ weights @ start, rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.mean(axis=0), start.mean(axis=0), rtol=0, atol=1e-15)


def test_neighbor_average_of_arrays_that_change_in_shape_and_type(members: Members) -> None:
    """Buffers of an earlier call are not used for an array of another length, type or framework."""
    group = members(Ring(4))
    weights = Ring(4).weights()
    shapes: list[tuple[tuple[int, ...], str, str]] = [
        ((5,), "float64", "numpy"), ((5,), "float64", "torch"), ((7,), "float64", "torch"),
        ((7,), "float32", "torch"), ((7,), "float32", "numpy"), ((2, 3), "float32", "numpy"),
    ]  # fmt: skip

    def average(rank: int) -> list[Array]:
        results = []
        for number, (shape, dtype, kind) in enumerate(shapes):
            array = as_kind(np.full(shape, 10.0 * number + rank * rank, dtype), kind)
            group[rank].neighbor_average(array)
            results.append(np.asarray(array))
        return results

    for rank, results in enumerate(together(average, 4)):
        for number, (shape, dtype, _) in enumerate(shapes):
            expected = weights[rank] @ [10.0 * number + other * other for other in range(4)]
            np.testing.assert_allclose(results[number], np.full(shape, expected), rtol=1e-6)
            assert results[number].dtype == dtype


def test_send_and_recv_move_an_array_between_two_members(members: Members) -> None:
    """Around a ring of three: everyone gets what the one before sent, what was there is gone."""
    group = members(Complete(3))
    given = data(777, 3, "float64")

    def pass_on(rank: int) -> Array:
        own, received = given[rank].copy(), np.full(777, np.nan)
        following, before = (rank + 1) % 3, (rank - 1) % 3
        if rank == 0:
            group[rank].send(own, following)
            group[rank].recv(received, before)
        else:
            group[rank].recv(received, before)
            group[rank].send(own, following)
        return received

    for rank, received in enumerate(together(pass_on, 3)):
        np.testing.assert_array_equal(received, given[(rank - 1) % 3])


def test_messages_of_one_tag_arrive_in_the_order_of_sending(members: Members) -> None:
    """Ten messages with the same tag are received as they were sent."""
    group = members(Complete(2))

    def talk(rank: int) -> list[float]:
        arrays = [np.array([float(number)]) if rank == 0 else np.zeros(1) for number in range(10)]
        for array in arrays:
            if rank == 0:
                group[0].send(array, 1, tag=3)
            else:
                group[1].recv(array, 0, tag=3)
        return [float(array[0]) for array in arrays]

    assert together(talk, 2)[1] == list(range(10))


def test_tags_tell_messages_apart_whatever_their_order(members: Members) -> None:
    """Sent with the tags 0, 1, 2 (a send waits for its receiver, hence the threads), received as 2, 0, 1."""
    group = members(Complete(2))
    received = {tag: np.zeros(3) for tag in (2, 0, 1)}

    def talk(rank: int) -> None:
        if rank < 3:
            group[0].send(np.full(3, 10.0 + rank), 1, tag=rank)
            return
        time.sleep(0.05)  # so that all three are under way
        for tag, array in received.items():
            group[1].recv(array, 0, tag=tag)

    together(talk, 4)
    assert {tag: array.tolist() for tag, array in received.items()} == {
        tag: [10.0 + tag] * 3 for tag in range(3)
    }


def test_a_message_is_not_taken_for_a_neighbours_average(members: Members) -> None:
    """A send with tag 0 is waiting while both members average: the average is of the arrays given to it."""
    group = members(Complete(2))
    message = np.zeros(4)

    def talk(rank: int) -> Array | None:
        if rank == 2:
            group[0].send(np.full(4, 99.0), 1, tag=0)
            return None
        time.sleep(0.05)
        array = np.full(4, float(rank))
        group[rank].neighbor_average(array)
        if rank == 1:
            group[1].recv(message, 0, tag=0)
        return array

    for average in together(talk, 3)[:2]:
        assert average is not None and average.tolist() == [0.5] * 4
    assert message.tolist() == [99.0] * 4


# -- several groups ----------------------------------------------------------------------------------------


def test_two_groups_of_the_same_members_in_other_orders_do_not_mix(store: tuple[str, int]) -> None:
    """Four members form {0, 1, 2, 3}, {3, 1} and {0, 2} on one store; sums of each group are its own.

    Ranks are permuted: member 3 is rank 0 of its pair. The groups' operations interleave.
    """
    whole, pair, other = next(_names), next(_names), next(_names)
    numbers = data(1001, 4, "float64")
    orders = {whole: [2, 0, 3, 1], pair: [3, 1], other: [0, 2]}

    def join(name: str, member: int) -> Communicator:
        order = orders[name]
        return backends.join(
            "gloo",
            Group(name, 0, order.index(member), len(order), store, timeout_seconds=LONG_SECONDS),
            Complete(len(order)),
        )

    def work(member: int) -> tuple[Array, Array, Array, int]:
        all_of_us, us_two = join(whole, member), join(pair if member % 2 else other, member)
        total, mine, rooted = numbers[member].copy(), numbers[member].copy(), numbers[member].copy()
        for _ in range(3):
            us_two.allreduce(mine)
            all_of_us.allreduce(total)
        all_of_us.broadcast(rooted, root=0)
        all_of_us.barrier()
        return total, mine, rooted, us_two.rank

    results = together(work, 4)
    for member, (total, mine, rooted, rank) in enumerate(results):
        np.testing.assert_array_equal(total, numbers.sum(axis=0) * 16)
        np.testing.assert_array_equal(mine, numbers[member % 2 :: 2].sum(axis=0) * 4)
        np.testing.assert_array_equal(rooted, numbers[2])
        assert rank == [0, 1, 1, 0][member]


def test_survivors_form_the_next_epoch_of_the_same_group(store: tuple[str, int]) -> None:
    """Member 1 of 3 leaves; the others lose it, and as epoch 1 of the same name they sum the two of them."""
    name = next(_names)

    def live(member: int) -> Array | None:
        first = backends.join(
            "gloo", Group(name, 0, member, 3, store, timeout_seconds=LONG_SECONDS), Complete(3)
        )
        array = np.array([10.0**member])
        first.allreduce(array)
        assert array[0] == 111.0
        if member == 1:
            first.close()
            return None
        with pytest.raises(PeerLost):
            first.allreduce(array)
        first.close()
        time.sleep(0.1 * member)  # whoever comes first must not take an address of the epoch before
        again = Group(name, 1, member // 2, 2, store, timeout_seconds=LONG_SECONDS)
        second = backends.join("gloo", again, Complete(2))
        array = np.array([10.0**member])
        second.allreduce(array)
        second.barrier()
        return array

    sums = [None if array is None else float(array[0]) for array in together(live, 3)]
    assert sums == [101.0, None, 101.0]


# -- lost peers --------------------------------------------------------------------------------------------


def lost_after(communicator: Communicator) -> float:
    """Seconds until an allreduce raises PeerLost; the member then leaves, as an agent does."""
    array = np.ones(1000)
    begin = time.monotonic()
    with pytest.raises(PeerLost):
        for _ in range(10**6):
            communicator.allreduce(array, "max")
    seconds = time.monotonic() - begin
    communicator.close()
    return seconds


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_member_that_leaves_is_lost_at_once(form: Form, size: int) -> None:
    """The others wait in an allreduce with a bound of 30 s; PeerLost comes within 5 s."""
    group = form(Complete(size))

    def live(rank: int) -> float:
        if rank < size - 1:
            return lost_after(group[rank])
        time.sleep(0.2)
        group[rank].close()
        return 0.0

    assert max(together(live, size)) < NOTICED_SECONDS


def test_the_lost_peer_of_two_has_a_rank(form: Form) -> None:
    """In a group of two it is clear who is gone; whoever left himself learns that."""
    group = form(Complete(2))

    def live(rank: int) -> int | None:
        if rank == 1:
            group[1].close()
        with pytest.raises(PeerLost) as caught:
            group[rank].barrier()
        return caught.value.rank

    assert together(live, 2) == [1, 1]
    with pytest.raises(PeerLost, match="this member has left the group"):
        group[1].allreduce(np.ones(1))


def test_a_silent_member_is_lost_after_the_time_out(form: Form) -> None:
    """Rank 1 stays but does nothing: the others raise after timeout_seconds, not before nor much later."""
    for attempt in range(3):  # with so short a bound a busy machine may not even get them together
        try:
            group = form(Complete(3), timeout_seconds=SHORT_SECONDS)
            break
        except PeerLost:
            if attempt == 2:
                raise
    done = threading.Event()

    def live(rank: int) -> float:
        if rank == 1:
            done.wait(LONG_SECONDS)
            return SHORT_SECONDS
        begin = time.monotonic()
        with pytest.raises(PeerLost):
            group[rank].recv(np.ones(3), 1)
        if rank == 0:
            done.set()
        return time.monotonic() - begin

    for seconds in together(live, 3):
        assert SHORT_SECONDS * 0.9 <= seconds < SHORT_SECONDS + NOTICED_SECONDS


MEMBER = """
import sys
import numpy as np
from d5ray.distributed import backends
from d5ray.distributed.communicator import Group
from d5ray.distributed.topology import Complete
name, rank, size, port = sys.argv[1], *map(int, sys.argv[2:])
group = Group(name, 0, rank, size, ("127.0.0.1", port), timeout_seconds=30.0)
communicator = backends.join("gloo", group, Complete(size))
array = np.ones(1000)
while True:
    communicator.allreduce(array, "max")
    print("step", flush=True)
"""


@pytest.mark.parametrize("when", ["in the middle of steps", "while the others wait"])
def test_a_killed_process_is_lost_within_seconds(store: tuple[str, int], when: str) -> None:
    """Rank 2 of 3 is a process of its own that dies by SIGKILL, or is stopped and then killed."""
    name = next(_names)
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER, name, "2", "3", str(store[1])],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    killed: list[float] = []

    def live(rank: int) -> float:
        if rank == 2:
            assert process.stdout is not None and process.stdout.readline() == "step\n"
            if when == "while the others wait":
                os.kill(process.pid, signal.SIGSTOP)
                time.sleep(0.3)
            killed.append(time.monotonic())
            process.kill()
            return 0.0
        group = Group(name, 0, rank, 3, store, timeout_seconds=LONG_SECONDS)
        lost_after(backends.join("gloo", group, Complete(3)))
        return time.monotonic()

    try:
        lost = together(live, 3)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    for noticed in lost[:2]:
        assert 0 <= noticed - killed[0] < NOTICED_SECONDS


def test_a_group_that_never_completes_is_lost_after_the_time_out(store: tuple[str, int]) -> None:
    """A member whose peer does not come raises instead of waiting for ever."""
    begin = time.monotonic()
    with pytest.raises(PeerLost):
        backends.join("gloo", Group(next(_names), 0, 0, 2, store, timeout_seconds=SHORT_SECONDS), Complete(2))
    assert time.monotonic() - begin < SHORT_SECONDS + 3 * NOTICED_SECONDS


def test_a_store_that_is_gone_is_a_lost_peer() -> None:
    """Nobody listens at the store's address: PeerLost with the address, within a bound."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address: tuple[str, int] = probe.getsockname()  # bound, but not listening
        begin = time.monotonic()
        with pytest.raises(PeerLost, match=str(address[1])):
            backends.join("gloo", Group("g", 0, 1, 2, address, timeout_seconds=1.0), Complete(2))
    assert time.monotonic() - begin < 1.0 + 3 * NOTICED_SECONDS


# -- refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda c: c.allreduce(np.ones(2), "median"), r"cannot 'median'.*sum, mean, min, max"),
        (lambda c: c.allreduce(np.ones((4, 4))[:, ::2]), r"\(4, 2\).*not contiguous.*contiguous copy"),
        (lambda c: c.allreduce(torch.ones(4, 3).T), r"\(3, 4\).*not contiguous"),
        (lambda c: c.neighbor_average(np.ones(8)[::2]), "not contiguous"),
        (lambda c: c.broadcast(np.ones((3, 3)).T), "not contiguous"),
        (lambda c: c.allreduce(np.arange(3), "mean"), "divides, but the array is of int64.*floating"),
        (lambda c: c.allreduce(torch.arange(3), "mean"), r"divides.*torch\.int64"),
        (lambda c: c.neighbor_average(np.arange(3)), "neighbor_average divides.*int64"),
        (lambda c: c.allreduce([1.0, 2.0]), "found a list"),
        (lambda c: c.allreduce([1.0, 2.0], "mean"), "found a list"),
        (lambda c: c.allreduce(np.frombuffer(b"12345678")), "read-only.*copy"),
        (lambda c: c.broadcast(np.ones(2), root=2), r"rank 2 is not in this group: its ranks are 0 to 1"),
        (lambda c: c.broadcast(np.ones(2), root=-1), "rank -1 is not in this group"),
        (lambda c: c.broadcast(np.ones(2), root=1.0), r"rank 1\.0 is not in this group"),
        (lambda c: c.send(np.ones(2), 2), "rank 2 is not in this group"),
        (lambda c: c.recv(np.ones(2), -1), "rank -1 is not in this group"),
        (lambda c: c.send(np.ones(2), c.rank), "this member itself"),
        (lambda c: c.recv(np.ones(2), c.rank), "this member itself"),
        (lambda c: c.send(np.ones(2), 1 - c.rank, tag=-1), "the tag is -1.*from 0"),
        (lambda c: c.recv(np.ones(2), 1 - c.rank, tag=2**40), "the tag is 1099511627776"),
        (lambda c: c.recv(np.ones(2), 1 - c.rank, tag=0.5), "the tag is 0.5"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(
    members: Members, wrong: Callable[[Communicator], None], message: str
) -> None:
    """Each raises ConfigurationError at every member, counts nothing, and the group works on."""
    group = members(Complete(2))
    before = [vars(member.traffic).copy() for member in group]
    for member in group:
        with pytest.raises(ConfigurationError, match=message):
            wrong(member)
    assert [vars(member.traffic) for member in group] == before

    def reduce(rank: int) -> Array:
        array = np.array([1.0 + rank])
        group[rank].allreduce(array)
        return array

    assert together(reduce, 2) == [3.0, 3.0]


@pytest.mark.parametrize(
    ("group", "topology", "message"),
    [
        (Group("g", 0, 2, 2, ("127.0.0.1", 1)), Complete(2), "rank 2 is not in a group of 2"),
        (Group("g", 0, 0, 2, ("127.0.0.1", 1)), Ring(3), r"Ring\(agents=3\) has 3 agents.* has 2 members"),
        (Group("g", 0, 0, 2), Complete(2), "needs the address of a store"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(group: Group, topology: Topology, message: str) -> None:
    """Before the store is asked for anything."""
    with pytest.raises(ConfigurationError, match=message):
        backends.join("gloo", group, topology)


def test_backends_are_chosen_by_size_and_name(members: Members, store: tuple[str, int]) -> None:
    """A group of one is Solo under every name, larger ones are Gloo, an unknown name has a nearest one."""
    assert isinstance(backends.join("auto", Group("g", 0, 0, 1), Complete(1)), Solo)
    assert isinstance(backends.join("gloo", Group("g", 0, 0, 1), Ring(1)), Solo)
    assert isinstance(members(Complete(2))[0], Gloo)
    for name in ("gluo", "Gloo "):
        with pytest.raises(ConfigurationError, match=r"no communicator named.*did you mean 'gloo'\?"):
            backends.join(name, Group("g", 0, 0, 1), Complete(1))


# -- traffic -----------------------------------------------------------------------------------------------


def counted(group: list[Communicator], work: Callable[[Communicator], None]) -> tuple[Array, int]:
    """Σ over members of (bytes sent, bytes received, messages, rounds), and of nanoseconds."""

    def one(rank: int) -> tuple[Array, int]:
        traffic = group[rank].traffic
        fields = ("bytes_sent", "bytes_received", "messages_sent", "rounds")
        before, nanoseconds = np.array([getattr(traffic, name) for name in fields]), traffic.nanoseconds
        work(group[rank])
        after = np.array([getattr(traffic, name) for name in fields])
        return after - before, traffic.nanoseconds - nanoseconds

    results = together(one, len(group))
    return np.sum([numbers for numbers, _ in results], axis=0), sum(spent for _, spent in results)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("elements", [1, 10, 1001, 100_000])
def test_an_allreduce_counts_two_times_n_minus_one_payloads(
    members: Members, size: int, elements: int
) -> None:
    """Σ bytes = 2 (n-1) payload, but for each member's rounding to whole bytes.

    Messages: 2 n (n-1) in the ring; one from each of two members, that exchange their arrays directly.
    """
    payload = elements * 4
    (sent, received, messages, rounds), nanoseconds = counted(
        members(Complete(size)), lambda c: c.allreduce(np.ones(elements, np.float32), "mean")
    )
    assert 2 * (size - 1) * payload - size < sent <= 2 * (size - 1) * payload
    assert (received, messages, rounds) == (sent, 2 if size == 2 else 2 * size * (size - 1), size)
    assert nanoseconds > 0


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_broadcast_counts_one_payload_a_receiver(members: Members, size: int) -> None:
    """From every root n-1 payloads are sent and as many received, in n-1 messages."""
    for root in range(size):
        (sent, received, messages, rounds), _ = counted(
            members(Complete(size)),
            lambda c, root=root: c.broadcast(np.ones(100), root),  # type: ignore[misc]
        )
        assert (sent, received, messages, rounds) == ((size - 1) * 800, (size - 1) * 800, size - 1, size)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_barrier_counts_messages_without_payload(members: Members, size: int) -> None:
    """A dissemination barrier takes ⌈log₂ n⌉ messages a member."""
    numbers, _ = counted(members(Complete(size)), lambda c: c.barrier())
    assert numbers.tolist() == [0, 0, {2: 2, 3: 6, 4: 8}[size], size]


@pytest.mark.parametrize("topology", [Complete(3), Ring(4), Complete(4)], ids=repr)
def test_a_neighbor_average_counts_one_payload_an_edge_and_direction(
    members: Members, topology: Topology
) -> None:
    """Every member sends its array to each of its neighbours."""
    edges = sum(len(topology.neighbors(rank)) for rank in range(topology.agents))
    (sent, received, messages, _), _ = counted(
        members(topology), lambda c: c.neighbor_average(np.ones(250, np.float32))
    )
    assert (sent, received, messages) == (edges * 1000, edges * 1000, edges)


def test_a_pair_counts_one_payload(members: Members) -> None:
    """What rank 0 sends and rank 1 receives is counted once on either side."""

    def talk(member: Communicator) -> None:
        if member.rank == 0:
            member.send(np.ones(100), 1)
        elif member.rank == 1:
            member.recv(np.ones(100), 0)

    numbers, _ = counted(members(Complete(3)), talk)
    assert numbers.tolist() == [800, 800, 1, 2]


@pytest.mark.parametrize("size", range(1, 18))
def test_a_binomial_tree_reaches_everyone_once(size: int) -> None:
    """The children of all members are all members but the root."""
    assert sum(binomial_children(position, size) for position in range(size)) == size - 1


def test_time_spent_includes_the_wait_for_others(members: Members) -> None:
    """Rank 0 waits 100 ms for rank 1: its traffic says so."""
    group = members(Complete(2))

    def meet(rank: int) -> int:
        before = group[rank].traffic.nanoseconds
        time.sleep(0.1 * rank)
        group[rank].barrier()
        return group[rank].traffic.nanoseconds - before

    waited = together(meet, 2)
    assert 0.09e9 < waited[0] < 10e9
    assert waited[1] < waited[0]


def loopback_bytes() -> int:
    """What the loopback interface received so far, headers included."""
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[0])
    pytest.skip("/proc/net/dev has no loopback interface 'lo'")


@pytest.mark.parametrize("size", [2, 4])
def test_counted_bytes_are_those_on_the_loopback_interface(members: Members, size: int) -> None:
    """An allreduce of 10 MB: the kernel's counter agrees within 10 %, which leaves room for headers."""
    if not Path("/proc/net/dev").exists():
        pytest.skip("this system has no /proc/net/dev")
    group = members(Complete(size))
    ratios: list[float] = []
    for _ in range(20):
        idle, at = loopback_bytes(), time.monotonic()
        time.sleep(0.03)
        noise = (loopback_bytes() - idle) / (time.monotonic() - at)  # B/s of other programs
        before, at = loopback_bytes(), time.monotonic()
        (sent, _, _, _), _ = counted(group, lambda c: c.allreduce(np.ones(2_500_000, np.float32)))
        moved, seconds = loopback_bytes() - before, time.monotonic() - at
        if noise * seconds < 0.02 * sent:
            ratios.append(moved / sent)
        if len(ratios) == 3:
            break
    if not ratios:
        pytest.skip("other programs use the loopback interface all the time")
    assert 0.9 < min(ratios) < 1.1


def test_gloo_works_between_processes(store: tuple[str, int]) -> None:
    """Two spawned processes, each with a group description that was pickled to it, sum their arrays."""
    name = next(_names)
    spawn = multiprocessing.get_context("spawn")
    groups = [Group(name, 0, rank, 2, store, timeout_seconds=LONG_SECONDS) for rank in range(2)]
    found = []
    with spawn.Pool(2) as pool:
        for result in pool.imap(_sum_in_a_process, groups):
            found.append(result)
    assert found == [[30.0, 3.0], [30.0, 3.0]]


def _sum_in_a_process(group: Group) -> list[float]:
    communicator = backends.join("gloo", group, Complete(2))
    array = np.array([10.0, 1.0]) * (group.rank + 1)
    communicator.allreduce(array)
    communicator.barrier()
    return [float(number) for number in array]
