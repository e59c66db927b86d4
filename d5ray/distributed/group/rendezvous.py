"""Rendezvous of the members of groups, which tells everyone else when one of them is gone"""

import asyncio
import json
import socket
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any, final

from d5ray.distributed.group.group import Store
from d5ray.distributed.wire.certificate import contexts
from d5ray.distributed.wire.listener import MOST_STRANGERS, RETRY_SECONDS, crowd
from d5ray.distributed.wire.proof import (
    ANYONE,
    HANDSHAKE_SECONDS,
    LENGTH,
    MOST_CLAIM_BYTES,
    Refused,
    claimed,
    framed,
)
from d5ray.distributed.wire.secret import Secret
from d5ray.distributed.wire.wire import keep_alive
from d5ray.errors import D5Error

PURPOSE = "rendezvous"
GONE = "its process ended or its host is out of reach"
CLOSE_SECONDS = 1.0  # for the other end to answer the end of TLS
KEPT_SECONDS = 120.0  # for which a host may be silent, unless the members have another time-out
MOST_MEMBERS = 2**16  # of a group
MOST_ROOMS = 2**12
MOST_LABEL, MOST_KEY = 512, 256  # characters
MOST_WORDS = 2**16  # characters of the reason why a member failed
MOST_VALUE_BYTES = 2**20
MOST_KEYS, MOST_HELD_BYTES = 2**14, 2**24  # of one member's values; the oldest are forgotten
MOST_UNREAD_BYTES = 2**26  # that were sent to a member and not taken
ENTER_BYTES = 2**13  # the longest first frame
FRAME_BYTES = 6 * MOST_VALUE_BYTES + 2**13  # the longest other one: JSON takes up to 6 bytes for one


class _Wrong(Exception):
    """A member sent what no member sends: its connection ends, for this reason."""


@dataclass(eq=False)
class _Member:
    """One member's connection."""

    rank: int
    writer: asyncio.StreamWriter
    awaited: set[str] = field(default_factory=set)

    def send(self, message: list[Any]) -> None:
        if self.writer.is_closing():
            return
        self.writer.write(framed(message))
        if self.writer.transport.get_write_buffer_size() > MOST_UNREAD_BYTES:
            self.writer.transport.abort()


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
    """A server on a free port of `host`, in a thread of this process; members connect with `Membership`.

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
        self._context = contexts(secret)[1]  # which opens a file
        self._seconds = seconds
        self._rooms: dict[str, _Room] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: dict[socket.socket, None] = {}  # the oldest first
        self._transports: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        # not uvloop, which processes of Ray have: its transports take no weak references
        self._loop, self._closed = asyncio.SelectorEventLoop(), asyncio.Event()
        listener = socket.create_server((host, 0), backlog=512)
        self.address = Store(host, listener.getsockname()[1], secret)
        self._thread = threading.Thread(
            target=self._serve, args=(listener,), name="d5ray-rendezvous", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the server and all connections."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closed.set)
            self._thread.join(5.0)

    def lose(self, label: str, rank: int, size: int) -> None:
        """Tell the group's members, who may have come or not, that this one will not come."""
        self._loop.call_soon_threadsafe(self._lose, label, rank, size)

    def _lose(self, label: str, rank: int, size: int) -> None:
        self._rooms.setdefault(label, _Room(size)).tell(["failed", "PeerLost", rank, GONE])

    def _serve(self, listener: socket.socket) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve_until_closed(listener))
        self._loop.close()

    async def _serve_until_closed(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept, listener)
        await self._closed.wait()
        self._loop.remove_reader(listener)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(others)
        for connection in (listener, *self._strangers):  # some of which no task had begun to welcome
            connection.close()
        for transport in list(self._transports):  # some of which wait for the other end to end TLS
            transport.abort()
        await asyncio.sleep(0)  # connections are closed in the loop's next turn

    def _accept(self, listener: socket.socket) -> None:
        """Somebody has connected."""
        try:
            connection, _ = listener.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError):  # for want of open files
                self._loop.remove_reader(listener)
                self._loop.call_later(RETRY_SECONDS, self._loop.add_reader, listener, self._accept, listener)
            return
        connection.setblocking(False)
        crowd(self._strangers, connection, MOST_STRANGERS)
        task = self._loop.create_task(self._welcome(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _welcome(self, connection: socket.socket) -> None:
        writer = None
        try:
            keep_alive(connection, self._seconds)
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                reader, writer = await self._secured(connection)
                rank = await self._proved(reader, writer)
                entering = await _receive(reader, ENTER_BYTES)
            self._strangers.pop(connection, None)
            member = _Member(rank, writer)
            try:
                room = self._entered(member, entering)
                await self._attend(reader, member, room)
            except _Wrong as wrong:
                member.send(["failed", "ConfigurationError", None, str(wrong)])
        except (OSError, EOFError, ValueError, RecursionError, D5Error, asyncio.CancelledError):
            pass  # gone, or nobody of ours
        finally:
            self._strangers.pop(connection, None)
            (connection if writer is None else writer).close()

    async def _secured(self, connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Streams over TLS to whoever has connected and knows the run's secret."""
        reader = asyncio.StreamReader()
        transport, protocol = await self._loop.connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader),
            connection,
            ssl=self._context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=CLOSE_SECONDS,
        )
        self._transports.add(transport)
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    async def _proved(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        """The rank of who has connected; raises `Refused`."""
        claim, _ = claimed(await _receive(reader, MOST_CLAIM_BYTES))
        meant = (claim.purpose, claim.to, claim.encrypted) == (PURPOSE, ANYONE, True)
        refusal = "" if meant else "this is a rendezvous"
        writer.write(framed([refusal, True]))
        if refusal:
            raise Refused(refusal)
        return claim.rank

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

    async def _attend(self, reader: asyncio.StreamReader, member: _Member, room: _Room) -> None:
        """Serve one member until it leaves or is gone."""
        room.members[member.rank] = member
        room.entered.add(member.rank)
        for news in room.news:
            member.send(news)
        farewell: list[Any] = ["failed", "PeerLost", member.rank, GONE]
        try:
            while (request := await _receive(reader, FRAME_BYTES)) != ["leave"]:
                _answer(room, member, request)
            farewell = ["left", member.rank]
        finally:
            room.forget(member)
            if not self._closed.is_set():  # the members see that themselves
                room.tell(farewell)
            if not room.members:
                room.values.clear()
                room.given.clear()
                if len(room.entered) == room.size:
                    self._rooms = {label: other for label, other in self._rooms.items() if other is not room}


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


async def _receive(reader: asyncio.StreamReader, most: int) -> Any:
    """The next message; raises `ValueError` where it is longer than `most` bytes, or none."""
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if length > most:
        raise ValueError(length)
    return json.loads(await reader.readexactly(length))
