"""Rendezvous of the members of groups, which tells everyone else when one of them is gone"""

import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, final

from d5ray.distributed.group.group import Store
from d5ray.distributed.wire.listener import Listener, shut
from d5ray.distributed.wire.proof import ANYONE, HANDSHAKE_SECONDS, LENGTH, Claim, framed
from d5ray.distributed.wire.secret import Secret
from d5ray.distributed.wire.wire import Wire
from d5ray.errors import D5Error

PURPOSE = "rendezvous"
GONE = "its process ended or its host is out of reach"
HEARD_SECONDS = 1.0  # in which who is refused has heard why
KEPT_SECONDS = 120.0  # for which a host may be silent, unless the members have another time-out
MOST_MEMBERS = 2**16  # of a group
MOST_ROOMS = 2**12
MOST_LABEL, MOST_KEY = 512, 256  # characters
MOST_WORDS = 2**16  # characters of the reason why a member failed
MOST_VALUE_BYTES = 2**20
MOST_KEYS, MOST_HELD_BYTES = 2**14, 2**24  # of one member's values; the oldest are forgotten
MOST_UNREAD_BYTES = 2**26  # that were sent to a member and not taken
PIECE_BYTES = 2**16  # of these, sent at once: TLS does not take less of what it did not take before
ENTER_BYTES = 2**13  # the longest first frame
FRAME_BYTES = 6 * MOST_VALUE_BYTES + 2**13  # the longest other one: JSON takes up to 6 bytes for one


class _Wrong(Exception):
    """A member sent what no member sends: its connection ends, for this reason."""


@dataclass(eq=False)
class _Member:
    """One member's connection. Sending does not wait: a thread sends what the other end does not take now."""

    rank: int
    wire: Wire
    awaited: set[str] = field(default_factory=set)
    _unsent: bytearray = field(default_factory=bytearray)
    _sending: threading.Lock = field(default_factory=threading.Lock)
    _sender: threading.Thread | None = None

    def send(self, message: list[Any]) -> None:
        with self._sending:
            self._unsent += framed(message)
            if len(self._unsent) > MOST_UNREAD_BYTES:
                self.wire.shut()
            elif self._sender is None:
                try:
                    while self._unsent and (count := self.wire.put(self._unsent[:PIECE_BYTES])):
                        del self._unsent[:count]
                except OSError:  # gone
                    self.wire.shut()
                    return
                if self._unsent:
                    self._sender = threading.Thread(target=self._send, name="d5ray-rendezvous", daemon=True)
                    self._sender.start()

    def refuse(self, why: str) -> None:
        """Send why the connection ends, and read on: it would be dropped if bytes were left unread."""
        self.send(["failed", "ConfigurationError", None, why])
        shut([self.wire.socket], socket.SHUT_WR)
        until, unread = time.monotonic() + HEARD_SECONDS, bytearray(PIECE_BYTES)
        with suppress(OSError, D5Error):
            while (left := until - time.monotonic()) > 0:
                self.wire.bound(left)
                self.wire.take(unread)

    def close(self) -> None:
        """End the connection of a member to which nothing more is sent."""
        self.wire.shut()
        if (sender := self._sender) is not None:
            sender.join()
        self.wire.close()

    def _send(self) -> None:
        """Runs in a thread until everything has been sent."""
        try:
            while piece := self._piece():
                self.wire.send(piece)
                with self._sending:
                    del self._unsent[: len(piece)]
        except (OSError, D5Error):
            self.wire.shut()

    def _piece(self) -> bytes:
        with self._sending:
            if not self._unsent:
                self._sender = None
            return bytes(self._unsent[:PIECE_BYTES])


@dataclass
class _Given:
    """Everything that one member left for others: keys, the oldest first, and the length of all values."""

    keys: dict[str, None] = field(default_factory=dict)
    characters: int = 0


@dataclass
class _Room:
    """One group at the rendezvous. News are sent to all members, and to those that come later."""

    size: int
    members: dict[int, _Member] = field(default_factory=dict)
    entered: set[int] = field(default_factory=set)
    values: dict[str, str] = field(default_factory=dict)
    given: dict[int, "_Given"] = field(default_factory=dict)  # by each member
    waiting: dict[str, set[_Member]] = field(default_factory=dict)
    news: list[list[Any]] = field(default_factory=list)
    failed: bool = False

    def tell(self, news: list[Any]) -> None:
        """Members hear the same news in the same order; of failures only the first."""
        if news[0] == "failed":
            if self.failed:
                return
            self.failed = True
        self.news.append(news)
        for member in self.members.values():
            member.send(news)

    def put(self, member: _Member, key: str, value: str) -> None:
        """Keep a value for all; those of one member are bounded, and the oldest make room for new ones."""
        own = self.given.setdefault(member.rank, _Given())
        if len(key) > MOST_KEY or len(value) > MOST_VALUE_BYTES:
            raise _Wrong(
                f"the value of {key[:MOST_KEY]!r} has {len(value):,} bytes: at most {MOST_VALUE_BYTES:,}"
            )
        if key in self.values and key not in own.keys:
            raise _Wrong(f"the value of {key!r} is another member's")
        own.characters += len(value) - len(self.values.get(key, ""))
        own.keys[key] = None
        self.values[key] = value
        while len(own.keys) > MOST_KEYS or own.characters > MOST_HELD_BYTES:
            oldest = next(iter(own.keys))
            del own.keys[oldest]
            own.characters -= len(self.values.pop(oldest))
        for waiter in self.waiting.pop(key, ()):
            waiter.awaited.discard(key)
            waiter.send(["value", key, value])

    def take(self, member: _Member, key: str) -> None:
        """Send a value when it is there."""
        if key in self.values:
            member.send(["value", key, self.values[key]])
            return
        if len(key) > MOST_KEY or len(member.awaited) >= MOST_KEYS:
            raise _Wrong(f"it waits for {len(member.awaited):,} values: at most {MOST_KEYS:,}")
        member.awaited.add(key)
        self.waiting.setdefault(key, set()).add(member)

    def forget(self, member: _Member) -> None:
        """A member is not there any more: nothing is sent to it."""
        del self.members[member.rank]
        for key in member.awaited:
            self.waiting[key].discard(member)
            if not self.waiting[key]:
                del self.waiting[key]


@final
class Rendezvous:
    """A server on a free port of `host`, in threads of this process; members connect with `Membership`.

    It keeps small values by key for every group, and holds a connection to each member: when the connection
    breaks, because the process ended or its host does not answer for `seconds`, all others of the group are
    told.

    Nothing is read from who has not proved the run's secret but the handshake, and everything travels under
    TLS. What one member may leave here is bounded.
    """

    def __init__(
        self, host: str = "127.0.0.1", secret: Secret | None = None, seconds: float = KEPT_SECONDS
    ) -> None:
        """secret: of the run; None draws one, which `address` has. seconds: the members' time-out."""
        secret = secret or Secret.new()
        self._rooms: dict[str, _Room] = {}
        self._members: set[_Member] = set()  # also those that have entered no room yet
        self._lock = threading.Lock()  # of all of these
        self._closed = False
        self._listener = Listener(self._serve, _refused, host=host, secret=secret, seconds=seconds)
        self.address = Store(host, self._listener.port, secret)

    def close(self) -> None:
        """End the server and all connections."""
        self._listener.close()
        with self._lock:
            self._closed = True
            members = list(self._members)
        for member in members:
            member.wire.shut()

    def lose(self, label: str, rank: int, size: int) -> None:
        """Tell the group's members, who may have come or not, that this one will not come."""
        with self._lock:
            self._rooms.setdefault(label, _Room(size)).tell(["failed", "PeerLost", rank, GONE])

    def _serve(self, claim: Claim, wire: Wire) -> None:
        """Serve one member, in a thread of its own."""
        member = _Member(claim.rank, wire)
        with self._lock:
            self._members.add(member)
            closed = self._closed
        try:
            if wire.protected and not closed:
                self._attend(member)
        except _Wrong as wrong:
            member.refuse(str(wrong))
        except (OSError, ValueError, RecursionError, D5Error):
            pass  # gone, or it says what no member says
        finally:
            with self._lock:
                self._members.discard(member)
            member.close()

    def _entered(self, member: _Member, entering: list[Any]) -> _Room:
        """The room that a member wants to enter, if it may."""
        match entering:
            case ["enter", str(label), int(rank), int(size)] if len(label) <= MOST_LABEL:
                pass
            case _:
                raise ValueError(entering)
        if rank != member.rank or rank not in range(size) or size > MOST_MEMBERS:
            raise _Wrong(
                f"a member of the group {label!r} has the rank {rank} of {size}: ranks begin with 0, and are "
                "less than the group's size"
            )
        room = self._rooms.get(label)
        if room is None or (not room.members and rank in room.entered):  # a name that is used again
            room = self._rooms[label] = _Room(size)
            self._make_room(label)
        if size != room.size:
            raise _Wrong(
                f"the group {label!r} has {room.size} members, and the one with rank {rank} knows of {size}: "
                "all must be given the same size"
            )
        if rank in room.entered:
            raise _Wrong(
                f"the group {label!r} has a member with rank {rank} already: every member has its own"
            )
        return room

    def _make_room(self, newest: str) -> None:
        """Forget the oldest groups that nobody is in, where there are too many."""
        if len(self._rooms) > MOST_ROOMS:
            empty = [label for label, room in self._rooms.items() if not room.members and label != newest]
            for label in empty[: len(self._rooms) - MOST_ROOMS]:
                del self._rooms[label]

    def _attend(self, member: _Member) -> None:
        """Serve one member until it leaves or is gone."""
        member.wire.bound(HANDSHAKE_SECONDS)
        entering = _received(member.wire, ENTER_BYTES)
        member.wire.bound(None)
        with self._lock:
            room = self._entered(member, entering)
            room.members[member.rank] = member
            room.entered.add(member.rank)
            for news in room.news:
                member.send(news)
        farewell: list[Any] = ["failed", "PeerLost", member.rank, GONE]
        try:
            while (request := _received(member.wire, FRAME_BYTES)) != ["leave"]:
                with self._lock:
                    _answer(room, member, request)
            farewell = ["left", member.rank]
        finally:
            with self._lock:
                self._leave(member, room, farewell)

    def _leave(self, member: _Member, room: _Room, farewell: list[Any]) -> None:
        """Tell the others that a member is not there any more, and forget a room that is empty."""
        room.forget(member)
        if not self._closed:  # the members see that themselves
            room.tell(farewell)
        if not room.members:
            room.values.clear()
            room.given.clear()
            if len(room.entered) == room.size:
                self._rooms = {label: other for label, other in self._rooms.items() if other is not room}


def _refused(claim: Claim) -> str:
    """Why who claims this is no member; empty if it may be one."""
    meant = (claim.purpose, claim.to, claim.encrypted) == (PURPOSE, ANYONE, True)
    return "" if meant else "this is a rendezvous"


def _answer(room: _Room, member: _Member, request: list[Any]) -> None:
    match request:
        case ["put", str(key), str(value)]:
            room.put(member, key, value)
        case ["take", str(key)]:
            room.take(member, key)
        case ["who waits", str(question)] if len(question) <= MOST_KEY:
            for other in room.members.values():
                if other is not member:
                    other.send(request)
        case ["failed", str(), int() | None as rank, str(text)] if len(text) <= MOST_WORDS:
            if rank is not None and rank not in range(room.size):
                raise _Wrong(f"it says that a member with rank {rank} failed, in a group of {room.size}")
            room.tell(request)
        case _:
            raise ValueError(request)


def _received(wire: Wire, most: int) -> Any:
    """The next message; raises `ValueError` where it is longer than `most` bytes, or none."""
    header = bytearray(LENGTH.size)
    wire.fill(header)
    (length,) = LENGTH.unpack(header)
    if length > most:
        raise ValueError(length)
    words = bytearray(length)
    wire.fill(words)
    return json.loads(words)
