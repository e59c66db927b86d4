"""Claims about the rendezvous and memberships: values, news, and what strangers can do to them"""

import asyncio
import gc
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from d5ray.distributed.group import membership
from d5ray.distributed.group.group import Group, Store
from d5ray.distributed.group.membership import Membership
from d5ray.distributed.group.rendezvous import PURPOSE, Rendezvous
from d5ray.distributed.wire.proof import LENGTH, Claim, framed, initiate
from d5ray.distributed.wire.secret import Secret
from d5ray.errors import ConfigurationError, D5Error, PeerLost
from tests.patience import patience
from tests.together import NOTICED_SECONDS, noticed, together

Enter = Callable[..., list[Membership]]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    rendezvous = Rendezvous()
    yield rendezvous.address
    rendezvous.close()


@pytest.fixture
def enter(store: Store, request: pytest.FixtureRequest) -> Iterator[Enter]:
    """Members of a group of this size, named after the test unless told; some of them, if ranks are given."""
    entered: list[Membership] = []

    def call(
        size: int, *ranks: int, name: str = "", epoch: int = 0, timeout_seconds: float = 20.0
    ) -> list[Membership]:
        group = name or request.node.name
        made = [
            Membership(Group(group, epoch, rank, size, store, timeout_seconds=timeout_seconds))
            for rank in ranks or range(size)
        ]
        entered.extend(made)
        return made

    yield call
    for member in entered:
        member.leave()


def until(happened: Callable[[], bool], seconds: float = NOTICED_SECONDS) -> float:
    """Seconds until it happened; fails the test if it does not in time."""
    begin = time.monotonic()
    while not happened():
        assert time.monotonic() - begin < patience(seconds), "it did not happen in time"
        time.sleep(0.005)
    return time.monotonic() - begin


# -- values ----------------------------------------------------------------------------------------------


def test_a_value_is_taken_by_all_before_and_after_it_is_put(enter: Enter) -> None:
    """Two members wait for it already, a third asks afterwards; each gets it, also twice."""
    members, value = enter(4), bytes(range(256)) * 400

    def take(rank: int) -> bytes:
        if rank == 0:
            time.sleep(0.1)
            members[0].put("key", value)
        elif rank == 3:
            time.sleep(0.2)
        return members[rank].take("key") + members[rank].take("key")

    assert together(take, 4) == [value * 2] * 4


def test_members_meet_where_another_event_loop_is_the_usual_one() -> None:
    """As uvloop is in Ray's processes, such as those of trials."""
    uvloop = pytest.importorskip("uvloop")
    usual = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    try:
        with closing(Rendezvous()) as rendezvous:
            group = Group("met", 0, 0, 1, rendezvous.address, timeout_seconds=2.0)
            Membership(group).leave()
    finally:
        asyncio.set_event_loop_policy(usual)


def test_groups_and_epochs_have_values_and_news_of_their_own(enter: Enter) -> None:
    """The same key under two names and two epochs of one server; one group fails, the others do not hear."""
    kinds: list[dict[str, int | str]] = [{}, {"epoch": 1}, {"name": "another"}]
    groups = [enter(2, **kind) for kind in kinds]
    for number, (giver, _) in enumerate(groups):
        giver.put("key", b"%d" % number)
    assert [taker.take("key") for _, taker in groups] == [b"0", b"1", b"2"]
    groups[1][0].fail(ConfigurationError("wrong"))
    assert until(lambda: groups[1][1].failure is not None) < patience(NOTICED_SECONDS)
    time.sleep(0.05)
    assert [group[1].failure for group in (groups[0], groups[2])] == [None, None]


def test_a_value_that_nobody_gives_is_waited_for_no_longer_than_the_time_out(enter: Enter) -> None:
    """The group's time-out, or the seconds given; the error names the key, `gather` also the member."""
    patient, _ = enter(2, name="patient", timeout_seconds=60.0)
    hasty, _ = enter(2, name="hasty", timeout_seconds=0.2)
    waits: list[Callable[[], bytes]] = [lambda: patient.take("x", seconds=0.2), lambda: hasty.take("x")]
    for take in waits:
        with noticed(0.2), pytest.raises(PeerLost, match=r"nobody gave 'x'.* within 0\.2 s"):
            take()
    with pytest.raises(PeerLost) as caught:
        hasty.gather("y", b"")
    assert caught.value.rank == 1


# -- news ------------------------------------------------------------------------------------------------


def test_who_fails_first_is_what_all_raise(enter: Enter) -> None:
    """Three fail at once, each with an error of its own: all four have the same one, of its kind."""
    members = enter(4)
    errors: list[D5Error] = [ConfigurationError("zero"), PeerLost(3, "one"), D5Error("two")]

    def fail(rank: int) -> tuple[type, str]:
        if rank < 3:
            members[rank].fail(errors[rank])
        until(lambda: members[rank].failure is not None)
        failure = members[rank].failure
        return type(failure), str(failure)

    found = together(fail, 4)
    assert len(set(found)) == 1
    assert found[0] in [(type(error), str(error)) for error in errors]
    for member in members:
        with pytest.raises(found[0][0]):
            member.check()
        assert member.explain(PeerLost(None, "a symptom")) is member.failure


def test_who_listens_for_failure_is_called_once(enter: Enter) -> None:
    """Whether it asked before or after; a leaving member is none."""
    members = enter(3)
    early, late = [], []
    members[0].on_failure(lambda: early.append(members[0].failure))
    members[2].leave()
    until(lambda: members[0].left == [2])
    assert early == []
    members[1].fail(ConfigurationError("wrong"))
    members[1].fail(ConfigurationError("wrong again"))
    until(lambda: bool(early))
    members[0].on_failure(lambda: late.append(members[0].failure))
    assert [str(error) for error in early + late] == ["wrong", "wrong"]


# -- leaving ---------------------------------------------------------------------------------------------


def test_leaving_ends_the_waits_for_that_member_alone(enter: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check(1)` raises at once; `check()` and `check(2)` do when everyone had time to finish, not before."""
    monkeypatch.setattr(membership, "LEFT_SECONDS", 3600.0)
    member, leaver, _ = enter(3)
    leaver.leave()
    until(lambda: member.left == [1])
    assert member.failure is None
    member.check()
    member.check(0, 2)
    with pytest.raises(PeerLost, match="it left the group") as caught:
        member.check(2, 1)
    assert caught.value.rank == 1
    monkeypatch.setattr(membership, "LEFT_SECONDS", 0.0)
    for ranks in ((), (2,)):
        with pytest.raises(PeerLost) as caught:
            member.check(*ranks)
        assert caught.value.rank == 1


def test_who_left_first_explains_a_broken_exchange(enter: Enter) -> None:
    """Members that leave after it did so because of it."""
    members = enter(4)
    for rank in (2, 1):
        members[rank].leave()
        until(lambda rank=rank: rank in members[0].left)  # type: ignore[misc]
    explained = members[0].explain(PeerLost(1, "a connection broke"))
    assert isinstance(explained, PeerLost) and explained.rank == 2


def test_what_a_member_gave_outlives_it(enter: Enter) -> None:
    """It puts a value and leaves; another takes it, but not what was never given."""
    member, leaver = enter(2)
    leaver.put("key", b"value")
    leaver.leave()
    until(lambda: member.left == [1])
    assert member.take("key") == b"value"
    with noticed():
        with pytest.raises(PeerLost, match="it left the group") as caught:
            member.take("another")
        assert caught.value.rank == 1


def test_a_name_may_be_used_again_when_all_have_left(enter: Enter) -> None:
    """Neither values nor news of the first group reach the second."""
    first = enter(2)
    first[0].put("key", b"old")
    for member in first:
        member.leave()
    time.sleep(0.1)
    second = enter(2)
    second[0].put("other", b"")
    second[1].take("other")
    assert [member.failure for member in second] == [None, None] and second[1].left == []
    with pytest.raises(PeerLost, match="nobody gave"):
        second[1].take("key", seconds=0.1)


# -- the server ------------------------------------------------------------------------------------------


def work(*groups: list[Membership]) -> None:
    """The two members of each leave each other a value."""
    for first, second in groups:
        first.put("key", b"value")
        assert second.take("key") == b"value"
        assert first.failure is second.failure is None


class Raw:
    """One who knows the secret and says what it likes."""

    def __init__(self, store: Store, rank: int = 0) -> None:
        connection = socket.create_connection((store.host, store.port), timeout=20)
        self.wire = initiate(connection, store.secret, Claim(PURPOSE, "raw/0", rank), 20, apart=True)

    def say(self, *messages: object) -> None:
        """Each as a frame, as far as the server listens."""
        with suppress(ConnectionError):
            for words in messages:
                self.wire.send(framed(words))

    def one(self) -> list[object] | None:
        """The next message, or None where the server has closed the connection."""
        header = bytearray(LENGTH.size)
        try:
            if not self.wire.fill(header, may_end=True):
                return None
            words = bytearray(LENGTH.unpack(header)[0])
            self.wire.fill(words)
        except ConnectionError:
            return None
        return json.loads(words)  # type: ignore[no-any-return]

    def heard(self) -> list[list[object]]:
        """All that comes until the server closes the connection."""
        with closing(self.wire):
            return list(iter(self.one, None))


ENTER = ["enter", "raw/0", 0, 2]
MISTAKES: dict[str, list[object]] = {
    "no list": [{}],
    "a deep list": [json.loads("[" * 900 + "]" * 900)],
    "a list for a name": [["enter", ["x"], 0, 2]],
    "a name that is too long": [["enter", "x" * 1000, 0, 2]],
    "a first frame that is too long": [["enter", "x" * 10_000, 0, 2]],
    "a word for a rank": [["enter", "x", "zero", 2]],
    "no entering": [["put", "key", "value"]],
    "nonsense within": [ENTER, ["dance"]],
    "a number for a value": [ENTER, ["put", "key", 1]],
    "another's rank": [["enter", "raw/0", 1, 2]],
    "a rank above the size": [["enter", "raw/0", 0, 0]],
    "a size without end": [["enter", "raw/0", 0, 10**9]],
    "a value that is too long": [ENTER, ["put", "key", "x" * (2**20 + 1)]],
    "a key that is too long": [ENTER, ["put", "k" * 1000, "x"]],
    "a key that is too long to wait for": [ENTER, ["take", "k" * 1000]],
    "a reason that is too long": [ENTER, ["failed", "PeerLost", 1, "x" * 100_000]],
    "the failure of nobody": [ENTER, ["failed", "PeerLost", 77, "gone"]],
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_who_knows_the_secret_and_is_wrong_ends_its_own_connection(
    store: Store, enter: Enter, mistake: str
) -> None:
    """Groups that are there or come afterwards do not notice; a group that it had entered learns that it is
    gone."""
    before = enter(2, name=f"before {mistake}")
    raw = Raw(store)
    raw.say(*MISTAKES[mistake])
    for kind, *_ in raw.heard():
        assert kind == "failed"
    work(before, enter(2, name=f"after {mistake}"))


def test_sizes_ranks_and_values_of_others_are_kept(store: Store, enter: Enter) -> None:
    """Who knows another size, or overwrites another's value, is told so; who left does not enter again."""
    first, second = enter(3, 0, 1, name="raw")
    first.put("mine", b"value")
    second.take("mine")
    raw = Raw(store, 2)
    raw.say(["enter", "raw/0", 2, 4])
    assert "has 3 members, and the one with rank 2 knows of 4" in str(raw.heard())
    hasty = Membership(Group("raw", 0, 2, 4, store=store))
    for key in map(str, range(20)):  # sent before it has heard
        hasty.put(key, bytes(100_000))
    with pytest.raises(ConfigurationError, match="has 3 members, and the one with rank 2 knows of 4"):
        hasty.take("mine")
    hasty.leave()
    raw = Raw(store, 2)
    raw.say(["enter", "raw/0", 2, 3], ["put", "mine", "other"])
    assert "the value of 'mine' is another member's" in str(raw.heard())
    raw = Raw(store, 2)
    raw.say(["enter", "raw/0", 2, 3])
    assert "a member with rank 2 already" in str(raw.heard())
    until(lambda: first.failure is not None)
    assert isinstance(first.failure, PeerLost) and first.failure.rank == 2
    (late,) = enter(3, 0, name="values")
    late.put("mine", b"value")
    assert late.take("mine") == b"value"


def test_what_one_member_leaves_and_waits_for_is_bounded(store: Store) -> None:
    """A million values and waits of one member: the oldest values are forgotten, too many waits end it."""
    rendezvous = Rendezvous()
    raw = Raw(rendezvous.address)
    try:
        raw.say(ENTER)
        for number in range(40):
            raw.say(["put", f"large {number}", "x" * 2**20])
        for number in range(20_000):
            raw.say(["put", f"key {number}", "x"])
        raw.say(["take", "key 19999"])
        assert raw.one() == ["value", "key 19999", "x"]
        room = rendezvous._rooms["raw/0"]
        assert len(room.values) == 2**14 and "key 19999" in room.values
        raw.say(*(["take", f"never {number}"] for number in range(20_000)))
        raw.heard()
        until(lambda: not room.members)
        assert not room.waiting
    finally:
        raw.wire.close()
        rendezvous.close()


def test_who_does_not_read_holds_nobody_up(store: Store, enter: Enter) -> None:
    """What was sent to it comes whole and in order when it reads; if it is too much the connection ends."""
    raw, (other,) = Raw(store), enter(2, 1, name="raw")
    raw.say(ENTER)
    for letter in "ab":
        other.put(letter, letter.encode() * 2**20)
    other.take("b")
    asked = 10 * "aab"
    with closing(raw.wire):
        raw.say(*(["take", letter] for letter in asked))
        other.put("small", b"value")
        assert other.take("small", NOTICED_SECONDS) == b"value"
        for letter in asked:
            assert raw.one() == ["value", letter, letter * 2**20]
        raw.say(*(["take", "a"] for _ in range(100)))
        until(lambda: other.failure is not None)
    assert isinstance(other.failure, PeerLost) and other.failure.rank == 0


def test_who_does_not_know_the_secret_learns_who_is_there_from_neither_end(store: Store) -> None:
    """A member of another run is refused by the store's proof, and says that it is another run's."""
    elsewhere = Store(store.host, store.port, Secret.new())
    with pytest.raises(PeerLost, match="is none of this run: the other end does not know"):
        Membership(Group("g", 0, 0, 2, elsewhere))


def test_who_would_speak_without_tls_is_not_heard(store: Store) -> None:
    """Though it knows the secret, and neither end leaves the machine, where others send plainly."""
    connection = socket.create_connection((store.host, store.port), timeout=20)
    raw = initiate(connection, store.secret, Claim(PURPOSE, "raw/0", 0), 20, apart=False)
    with closing(raw), suppress(ConnectionError):
        assert not raw.protected
        raw.send(framed(ENTER), framed(["put", "key", "value"]), framed(["take", "key"]))
        assert not raw.fill(bytearray(1), may_end=True)


def test_a_crowd_of_silent_strangers_holds_nobody_up(enter: Enter, store: Store) -> None:
    """A thousand connections that say nothing, or a byte now and then: groups form and work as before."""
    begin = time.monotonic()
    alone = enter(2, name="alone")
    work(alone)
    before = time.monotonic() - begin
    stop = threading.Event()
    crowd: list[socket.socket] = []

    def press() -> None:
        while not stop.wait(0.002):
            with suppress(OSError):
                crowd.append(socket.create_connection((store.host, store.port), timeout=5))
                crowd[-1].setblocking(False)
            for each in crowd[-5:]:
                with suppress(OSError):
                    each.send(b"d")
            if len(crowd) > 1000:
                crowd.pop(0).close()

    pressing = threading.Thread(target=press)
    pressing.start()
    try:
        until(lambda: len(crowd) > 400, 30)
        begin = time.monotonic()
        work(alone, enter(2, name="crowded"))
        assert time.monotonic() - begin < before + NOTICED_SECONDS
    finally:
        stop.set()
        pressing.join()
        for each in crowd:
            each.close()


def test_a_server_that_ends_is_a_failure_of_its_groups() -> None:
    """Who waits and who does not are told at once; the thread ends and the port is free again."""
    rendezvous = Rendezvous()
    threads = threading.active_count()
    first, second = (Membership(Group("g", 0, rank, 2, rendezvous.address)) for rank in range(2))
    first.put("key", b"")
    second.take("key")

    def live(rank: int) -> None:
        if rank == 1:
            time.sleep(0.1)
            rendezvous.close()
            until(lambda: second.failure is not None)
            return
        with pytest.raises(PeerLost, match="holds the group together is gone"):
            first.take("never")

    with noticed():
        together(live, 2)
    until(lambda: threading.active_count() < threads)
    with socket.create_server((rendezvous.address.host, rendezvous.address.port)):
        pass
    rendezvous.close()  # a second time: nothing happens
    first.leave()


@pytest.mark.full
def test_who_comes_as_a_server_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also who has only just been accepted: nothing is left for the garbage collector to close."""
    left: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: left.append(unraisable.exc_value))
    crowd: list[socket.socket] = []
    for _ in range(8):
        rendezvous = Rendezvous()
        address = rendezvous.address.host, rendezvous.address.port

        def press(address: tuple[str, int] = address) -> None:
            with suppress(OSError):
                while len(crowd) < 300:
                    crowd.append(socket.create_connection(address))

        pressing = threading.Thread(target=press)
        pressing.start()
        until(lambda: len(crowd) > 20)
        rendezvous.close()
        pressing.join()
        for each in crowd:
            each.close()
        crowd.clear()
        del rendezvous
        gc.collect()
    assert not left


@pytest.mark.full
def test_nobody_at_the_address_is_a_lost_peer() -> None:
    """With the address in its words, within seconds though the time-out is a minute."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = Store("127.0.0.1", probe.getsockname()[1], Secret.new())  # bound, but not listening
        begin = time.monotonic()
        with pytest.raises(PeerLost, match=f"127.0.0.1:{address.port} does not answer"):
            Membership(Group("g", 0, 1, 2, address, timeout_seconds=60.0))
    assert time.monotonic() - begin < patience(NOTICED_SECONDS)


def test_a_group_without_a_store_is_refused() -> None:
    """With what to give."""
    with pytest.raises(ConfigurationError, match="'g' has no store: give the address of a Rendezvous"):
        Membership(Group("g", 0, 0, 2))
