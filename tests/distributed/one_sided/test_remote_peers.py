"""Claims about windows and mailboxes of agents: averages are atomic, messages arrive, mass is conserved"""

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import networkx
import numpy as np
import pytest

import d5ray as d5
from d5ray.distributed.communicators.simple.solo import Absent
from d5ray.distributed.group.group import Group, Store
from d5ray.distributed.one_sided.peers import MOST_ARRAYS, PeerMessage, PeerOperation
from d5ray.distributed.one_sided.remote_peers import OUTBOX_MESSAGES, RemotePeers
from d5ray.distributed.rpc.dtypes import numpy_dtype
from d5ray.distributed.topologies.topology import Topology
from d5ray.distributed.traffic import Traffic
from d5ray.errors import ConfigurationError, PeerLost
from tests.conftest import wait_until
from tests.distributed.forming import former
from tests.patience import patience
from tests.together import NOTICED_SECONDS, noticed, together

pytestmark = pytest.mark.usefixtures("leaves_nothing")

Array = np.ndarray[Any, Any]
SECONDS = patience(30.0)  # the bound of waits that end much earlier
TOGETHER, APART, MIXED = "aaaaa", "abcde", "ababb"  # the node of each agent
WHERE = pytest.mark.parametrize("nodes", [TOGETHER, APART], ids=["one node", "a node each"])


def windows(agents: int, size: int = 1001, dtype: str = "float64") -> Array:
    """Different for every agent (agents, size)."""
    return np.random.default_rng([agents, size]).standard_normal((agents, size)).astype(numpy_dtype(dtype))


@contextmanager
def met(
    topology: Topology, nodes: str = TOGETHER, x: Array | None = None, seconds: float = SECONDS
) -> Iterator[list[RemotePeers]]:
    """The peers of agents over sockets, whose windows begin with the rows of x (agents, n)."""
    size = topology.agents
    begin = windows(size) if x is None else x
    made: list[RemotePeers] = []
    with former() as groups:
        members = groups.form("socket", topology, seconds, encrypted=True, nodes=tuple(nodes[:size]))
        try:
            made += together(lambda rank: RemotePeers(begin[rank].copy(), members[rank]), size)
            yield list(made)
        finally:
            for one in made:
                one.close()
            made.clear()


def read(peers: RemotePeers) -> Array:
    """A copy of its window."""
    found = np.full_like(peers.window, np.nan)
    peers.read(into=found)
    return found


def all_windows(group: Sequence[RemotePeers]) -> Array:
    return np.stack([read(one) for one in group])


# -- windows -------------------------------------------------------------------------------------------------


@dataclass
class Course:
    """What one agent did to windows, and what it saw of them."""

    operations: list[PeerOperation] = field(default_factory=list)
    seen: dict[int, Array] = field(default_factory=dict)  # by operation


def added(rank: int, number: int, size: int, dtype: Any) -> Array:
    """What an agent adds to its window in one operation, different every time."""
    return np.random.default_rng([rank, number]).standard_normal(size).astype(dtype)


def at_random(peers: RemotePeers, count: int, averages: float) -> Course:
    """Averages with neighbours, changes of the own window, and looks at it, drawn by the agent's own dice."""
    rng, course = np.random.default_rng([peers.rank, 9]), Course()
    for number in range(count):
        x = np.zeros_like(peers.window)
        drawn = rng.random()
        if drawn < averages:
            peers.average(int(rng.choice(peers.neighbors())))
        elif drawn < (1 + averages) / 2:
            with peers.held(x):
                course.seen[number] = x.copy()
                x += added(peers.rank, number, len(x), x.dtype)
        else:
            peers.read(into=x)
            course.seen[number] = x
    course.operations = list(peers.operations)
    peers.operations.clear()
    return course


def one_after_the_other(courses: Sequence[Course], x: Array) -> Array:
    """The windows (agents, n) after the same operations in NumPy, one at a time, in an order that agrees with
    the places which all operations had in their windows; what was seen must be what was there."""
    x = x.copy()
    queues: list[dict[int, tuple[int, PeerOperation]]] = [{} for _ in x]
    for rank, course in enumerate(courses):
        for operation in course.operations:
            for window, order in operation.places:
                assert order not in queues[window], "two operations have one place"
                queues[window][order] = rank, operation
    for queue in queues:
        assert sorted(queue) == list(range(len(queue)))
    at = [0] * len(x)
    left = sum(len(course.operations) for course in courses)
    while left:
        before = left
        for window, queue in enumerate(queues):
            while at[window] in queue:
                rank, operation = queue[at[window]]
                if any(at[other] != order for other, order in operation.places):
                    break
                if operation.kind == "average":
                    pair = [other for other, _ in operation.places]
                    x[pair] = (x[pair[0]] + x[pair[1]]) * x.dtype.type(0.5)
                else:
                    np.testing.assert_array_equal(x[rank], courses[rank].seen[operation.number])
                if operation.kind == "held":
                    x[rank] += added(rank, operation.number, x.shape[1], x.dtype)
                for other, _ in operation.places:
                    at[other] += 1
                left -= 1
        assert left < before, "no order agrees with all windows: an average was not atomic"
    return x


TOPOLOGIES = {
    "ring": d5.topologies.Ring(5),
    "complete": d5.topologies.Complete(4),
    "random": d5.topologies.Custom(networkx.connected_watts_strogatz_graph(5, 4, 0.5, seed=4)),
    "star": d5.topologies.Star(5),
}
PLACES = pytest.mark.parametrize(
    "nodes", [TOGETHER, APART, MIXED], ids=["one node", "a node each", "two nodes"]
)
SETTINGS = pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("ring", TOGETHER), ("ring", APART), ("complete", MIXED), ("complete", TOGETHER), ("random", APART),
        ("random", MIXED), ("star", MIXED),
    ],
)  # fmt: skip


@SETTINGS
def test_what_agents_do_at_once_is_done_one_after_the_other(name: str, nodes: str) -> None:
    """Averages, changes and looks from all sides: there is one order, the recorded one, in which NumPy gives
    the same windows, and everybody saw the same, bit for bit."""
    topology = TOPOLOGIES[name]
    x = windows(topology.agents, 300, "float32")
    with met(topology, nodes, x) as group:
        courses = together(lambda rank: at_random(group[rank], 100, averages=0.6), len(group))
        assert all(len(course.operations) == 100 for course in courses)
        found = all_windows(group)
    np.testing.assert_array_equal(found, one_after_the_other(courses, x))


@WHERE
def test_an_error_while_a_window_is_held_leaves_it_as_it_was(nodes: str) -> None:
    """And lets it go."""
    x = windows(2)
    with met(d5.topologies.Complete(2), nodes, x) as group:
        own = np.zeros_like(x[0])
        with pytest.raises(ZeroDivisionError), group[0].held(own):
            own[:] = 1 / 0
        group[1].average(0)
        np.testing.assert_array_equal(all_windows(group), np.tile((x[0] + x[1]) * 0.5, (2, 1)))


# -- messages ------------------------------------------------------------------------------------------------


def collected(peers: RemotePeers, count: int, **how: Any) -> list[PeerMessage]:
    """That many messages, as they come."""
    messages: list[PeerMessage] = []

    def enough() -> bool:
        messages.extend(peers.receive(**how))
        return len(messages) >= count

    wait_until(enough, SECONDS, lambda: f"{len(messages)} messages")
    assert len(messages) == count
    return messages


@WHERE
def test_letters_arrive_as_they_were_posted(nodes: str) -> None:
    """Of one array to as many as there may be, of every type and size; changed as soon as they are posted."""
    rng = np.random.default_rng(3)
    names = ("float64", "float32", "float16", "int64", "int8", "uint16", "bool", "complex128", "bfloat16")
    kinds = [(100 * rng.standard_normal(100)).astype(numpy_dtype(name)) for name in names]
    posted: list[list[Array]] = [
        [rng.standard_normal(1)],
        kinds,
        [np.zeros(0), rng.standard_normal(3), np.zeros(0, np.int32)],
        [rng.standard_normal((4, 5, 6)).astype(np.float32)],
        [rng.standard_normal(500_000)],
        [np.full(3, number) for number in range(MOST_ARRAYS)],
    ]
    with met(d5.topologies.Ring(3), nodes) as group:
        before = [Traffic(**vars(one.traffic)) for one in group]
        for arrays in posted:
            sent = [array.copy() for array in arrays]
            group[2].send(1, *sent)
            for array in sent:
                array[...] = 0
        for number, (message, arrays) in enumerate(zip(collected(group[1], 6), posted, strict=True)):
            assert (message.source, message.number, message.returned) == (2, number + 1, False)
            assert [array.dtype for array in message.arrays] == [array.dtype for array in arrays]
            for found, array in zip(message.arrays, arrays, strict=True):
                np.testing.assert_array_equal(found, array.ravel())
        size = sum(array.nbytes for arrays in posted for array in arrays)
        assert group[2].traffic.bytes_sent - before[2].bytes_sent == size
        assert group[1].traffic.bytes_received - before[1].bytes_received == size
        assert group[2].traffic.messages_sent - before[2].messages_sent == len(posted)


@PLACES
def test_letters_of_one_source_come_in_their_order(nodes: str) -> None:
    """Four agents, each to all others at once, more than may be under way: every message once, in order."""
    count = OUTBOX_MESSAGES + 30
    with met(d5.topologies.Complete(4), nodes) as group:

        def live(rank: int) -> list[PeerMessage]:
            for number in range(1, count + 1):
                for other in group[rank].neighbors():
                    group[rank].send(other, np.array([rank, other, number]), np.zeros(number % 5))
            return collected(group[rank], 3 * count)

        for rank, messages in enumerate(together(live, 4)):
            for source in set(range(4)) - {rank}:
                own = [message for message in messages if message.source == source]
                assert [message.number for message in own] == list(range(1, count + 1))
                for message in own:
                    assert message.arrays[0].tolist() == [source, rank, message.number]
                    assert message.arrays[1].size == message.number % 5
            looks = [each.messages for each in group[rank].operations if each.kind == "collect"]
            assert list(itertools.chain(*looks)) == [(message.source, message.number) for message in messages]


def test_letters_without_arrays_or_with_too_many_are_refused() -> None:
    """And those to oneself; what was refused has no number."""
    with met(d5.topologies.Complete(2)) as group:
        for arrays in ([], [np.zeros(1)] * (MOST_ARRAYS + 1)):
            with pytest.raises(
                ConfigurationError, match=f"has {len(arrays)} arrays: give 1 to {MOST_ARRAYS}"
            ):
                group[0].send(1, *arrays)
        with pytest.raises(ConfigurationError, match="none of the other agents"):
            group[0].send(0, np.zeros(1))
        for peer in (0, 2, -1):
            with pytest.raises(ConfigurationError, match="none of the other agents of 0"):
                group[0].average(peer)
        group[0].send(1, np.zeros(1))
        assert collected(group[1], 1)[0].number == 1


@WHERE
def test_who_waits_for_letters_gets_them_when_the_last_has_come(nodes: str) -> None:
    """Two of one agent and three of another, counted from the start; what has come besides is given too."""
    with met(d5.topologies.Complete(3), nodes) as group:
        group[1].send(0, np.array([1.0]))
        assert [message.source for message in group[0].receive(wait_for={1: 1})] == [1]
        ready = threading.Event()

        def wait() -> list[tuple[int, int]]:
            ready.set()
            messages = group[0].receive(wait_for={1: 2, 2: 3})
            return [(message.source, message.number) for message in messages]

        def post() -> None:
            assert ready.wait(SECONDS)
            for to in (2, 2, 2, 1):
                group[to].send(0, np.zeros(2))
                group[to].drain()

        assert together(lambda rank: post() if rank else wait(), 2)[0] == [(2, 1), (2, 2), (2, 3), (1, 2)]
        assert group[0].receive(wait_for={1: 2, 2: 3}) == []


@WHERE
def test_letters_beyond_the_most_wait_for_another_time(nodes: str) -> None:
    """Those with higher numbers stay, in their order."""
    with met(d5.topologies.Complete(3), nodes) as group:
        for source in (1, 2):
            for number in range(4):
                group[source].send(0, np.array([number]))
            group[source].drain()

        def taken(most: dict[int, int] | None) -> list[tuple[int, int]]:
            return [(message.source, message.number) for message in group[0].receive(most=most)]

        assert taken({1: 2}) == [(1, 1), (1, 2)]
        assert taken({1: 2, 2: 1}) == [(2, 1)]
        assert taken({1: 1}) == []
        assert taken({1: 3, 2: 3}) == [(1, 3), (2, 2), (2, 3)]
        assert taken(None) == [(1, 4), (2, 4)]


def test_a_letter_that_does_not_come_is_not_waited_for_for_ever() -> None:
    """`PeerLost` after the time-out, with the rank that is late."""
    with met(d5.topologies.Complete(3), seconds=0.5) as group:
        group[1].send(0, np.zeros(1))
        with noticed(0.5), pytest.raises(PeerLost) as caught:
            group[0].receive(wait_for={1: 1, 2: 1})
        assert caught.value.rank == 2


# -- agents that are gone ------------------------------------------------------------------------------------


@WHERE
@pytest.mark.parametrize("leaver", [0, 1, 2])
def test_who_has_closed_is_gone_and_nothing_happens_to_the_windows(nodes: str, leaver: int) -> None:
    """Of higher or lower rank: the average with it does nothing, the next one with another agent does."""
    x = windows(3)
    with met(d5.topologies.Complete(3), nodes, x) as group:
        group[leaver].close()
        one, other = sorted({0, 1, 2} - {leaver})
        for rank in (one, other):
            for _ in range(2):
                with noticed():
                    group[rank].average(leaver)
            assert group[rank].gone == {leaver}
            assert not group[rank].operations
        np.testing.assert_array_equal(group[one].window, x[one])
        group[one].average(other)
        np.testing.assert_array_equal(read(group[other]), (x[one] + x[other]) * 0.5)


def test_in_the_place_of_who_is_gone_stand_its_neighbours() -> None:
    """On a ring of five: without 1, then without 2, then 3, agent 0 sends to the next ones that are there."""
    with met(d5.topologies.Ring(5)) as group:
        found = [group[0].neighbors()]
        for rank in (1, 2, 3):
            group[rank].close()
            group[0].average(rank)
            found.append(group[0].neighbors())
        assert found == [(1, 4), (2, 4), (3, 4), (4,)]


@WHERE
def test_letters_to_who_is_gone_come_back(nodes: str) -> None:
    """Marked, with their arrays and numbers, in order; nobody waits for it; messages to others arrive."""
    arrays = [np.random.default_rng(n).standard_normal(1000 * n) for n in range(6)]
    with met(d5.topologies.Complete(3), nodes) as group:
        group[1].send(0, np.array([5.0]))
        group[1].drain()
        group[1].close()
        for array in arrays:
            group[0].send(1, array, array[:1])
            group[0].send(2, array)
        back = [message for message in collected(group[0], 7) if message.returned]
        assert [(message.source, message.number) for message in back] == [(0, n + 1) for n in range(6)]
        for message, array in zip(back, arrays, strict=True):
            np.testing.assert_array_equal(message.arrays[0], array)
            np.testing.assert_array_equal(message.arrays[1], array[:1])
        for message, array in zip(collected(group[2], 6), arrays, strict=True):
            np.testing.assert_array_equal(message.arrays[0], array)
        assert group[0].gone == {1}
        group[0].send(1, arrays[3])
        assert [message.returned for message in group[0].receive(wait_for={1: 100})] == [True]


def test_who_waits_for_an_agent_that_is_lost_waits_no_longer() -> None:
    """As soon as it is told so; the messages of the others are there."""
    with met(d5.topologies.Complete(3)) as group:
        waiting = threading.Event()
        group[2].send(0, np.zeros(1))
        group[2].drain()

        def wait() -> float:
            waiting.set()
            assert [message.source for message in group[0].receive(wait_for={1: 1, 2: 1})] == [2]
            return time.monotonic()

        def tell() -> float:
            assert waiting.wait(SECONDS)
            group[0].lose(1)
            return time.monotonic()

        woken, told = together(lambda rank: tell() if rank else wait(), 2)
        assert woken - told < patience(NOTICED_SECONDS)


TURNS = 3


@WHERE
@pytest.mark.parametrize("leaver", [0, 3])
def test_averages_conserve_the_sum_while_one_of_them_leaves(nodes: str, leaver: int) -> None:
    """Four average at random; one closes in the middle of it, again and again: its window as it left it and
    those of the others have the sum of before, so that no average was half done."""
    for turn in range(TURNS):
        x = windows(4, 5000) + turn
        with met(d5.topologies.Complete(4), nodes, x) as group:

            def live(rank: int, group: list[RemotePeers] = group) -> None:
                rng = np.random.default_rng([rank, 1])
                for number in range(30):
                    if rank == leaver and number == 10:
                        group[rank].close()
                        return
                    group[rank].average(int(rng.choice(sorted({0, 1, 2, 3} - {rank}))))

            together(live, 4)
            found = np.stack([one.window for one in group])
            np.testing.assert_allclose(found.sum(axis=0), x.sum(axis=0), rtol=0, atol=1e-12)


@WHERE
def test_letters_conserve_mass_while_an_agent_leaves(nodes: str) -> None:
    """Four give away halves of what they have, and take in what comes, as push-sum does; one leaves in the
    middle, again and again: what it kept and found in its mailbox, what the others have, and what came back
    to them add up to what there was: no message is lost, and none is both delivered and given back."""
    for turn in range(TURNS):
        with met(d5.topologies.Complete(4), nodes) as group:

            def take_in(peers: RemotePeers, own: Array) -> None:
                for message in peers.receive():
                    own += message.arrays[0]

            def live(rank: int, group: list[RemotePeers] = group) -> Array:
                peers, own = group[rank], np.zeros(4)
                own[rank] = 2.0**40
                rng = np.random.default_rng([rank, 2])
                for number in range(30):
                    if rank == 3 and number == 10:
                        peers.drain()
                        peers.close()
                        break
                    half = np.floor(own / 2)
                    own -= half
                    peers.send(int(rng.choice(peers.neighbors())), half)
                    take_in(peers, own)
                peers.drain()
                return own

            owned = together(live, 4)
            for peers, own in zip(group, owned, strict=True):
                take_in(peers, own)
            total = np.sum(owned, axis=0)
            np.testing.assert_array_equal(total, np.full(4, 2.0**40), err_msg=f"turn {turn}")


def test_who_comes_late_is_reached_like_the_others() -> None:
    """An agent is gone; another takes its rank, in a group of a later epoch, knowing the others' addresses;
    once they are told its own, both sides average and write messages, in numbers that begin anew."""
    x = windows(3)
    with met(d5.topologies.Complete(3), "aab", x) as group:
        group[1].send(0, np.array([1.0]))
        group[1].drain()
        group[1].close()
        group[0].average(1)
        assert group[0].gone == {1}
        store = Store("127.0.0.1", 1, group[0]._caller.secret)
        absent = Absent(Group("before", 1, 1, 3, store, nodes=("a", "a", "b")), d5.topologies.Complete(3))
        addresses = {rank: group[rank].address for rank in (0, 2)}
        late = RemotePeers(np.full_like(x[0], 9.0), absent, addresses)
        try:
            for rank in (0, 2):
                group[rank].admit(1, late.address)
            late.send(0, np.array([2.0]))
            messages = group[0].receive(wait_for={1: 1})
            assert [(message.number, message.arrays[0][0]) for message in messages] == [(1, 1.0), (1, 2.0)]
            late.average(0)
            group[2].average(1)
            half = (x[0] + 9.0) * 0.5
            np.testing.assert_array_equal(read(group[0]), half)
            np.testing.assert_array_equal(read(late), (half + x[2]) * 0.5)
            assert not group[0].gone and not late.gone
        finally:
            late.close()
