"""Where the members of groups meet, and what tells everyone else when one of them is gone"""

import asyncio
import json
import socket
import struct
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, final

from d5ray.distributed.authentication.secret import Secret
from d5ray.distributed.communicator import Store
from d5ray.frameworks.sockets import keep_alive

LENGTH = struct.Struct("!I")
MAX_FRAME_BYTES = 2**24
GONE = "its process ended or its host is out of reach"


@dataclass
class _Room:
    """One group at the rendezvous. News are sent to all members, and to those that come later."""

    size: int
    members: dict[int, asyncio.StreamWriter] = field(default_factory=dict)
    entered: set[int] = field(default_factory=set)
    values: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, list[asyncio.StreamWriter]] = field(default_factory=lambda: defaultdict(list))
    news: list[list[Any]] = field(default_factory=list)
    failed: bool = False

    def tell(self, news: list[Any]) -> None:
        """Members hear the same news in the same order; of failures only the first."""
        if news[0] == "failed":
            if self.failed:
                return
            self.failed = True
        self.news.append(news)
        for writer in self.members.values():
            _send(writer, news)


@final
class Rendezvous:
    """A server on a free port of `host`, in a thread of this process; members connect with `Membership`.

    It keeps small values by key for every group, and holds a connection to each member: when the connection
    breaks, because the process ended or its host does not answer for 4 s, all others of the group are told.
    """

    def __init__(self, host: str = "127.0.0.1", secret: Secret | None = None) -> None:
        """secret: of the run; None draws one, which `address` has."""
        self._rooms: dict[str, _Room] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._loop = asyncio.new_event_loop()
        listener = socket.create_server((host, 0), backlog=512)
        self.address = Store(host, listener.getsockname()[1], secret or Secret.new())
        self._thread = threading.Thread(
            target=self._serve, args=(listener,), name="d5ray-rendezvous", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the server and all connections."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5.0)

    def lose(self, label: str, rank: int, size: int) -> None:
        """Tell the group's members, who may have come or not, that this one will not come."""
        self._loop.call_soon_threadsafe(self._lose, label, rank, size)

    def _lose(self, label: str, rank: int, size: int) -> None:
        self._rooms.setdefault(label, _Room(size)).tell(["failed", "PeerLost", rank, GONE])

    def _serve(self, listener: socket.socket) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(asyncio.start_server(self._welcome, sock=listener))
        try:
            loop.run_forever()
        finally:
            self._closing = True
            server.close()
            for task in self._tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
            loop.run_until_complete(asyncio.sleep(0))  # connections are closed in the loop's next turn
            loop.close()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            keep_alive(writer.get_extra_info("socket"))
            match await _receive(reader):
                case ["enter", str(label), int(rank), int(size)]:
                    await self._attend(reader, writer, label, rank, size)
        except (OSError, EOFError, ValueError, RecursionError, asyncio.CancelledError):
            pass  # gone, or nobody of ours
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _attend(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, label: str, rank: int, size: int
    ) -> None:
        """Serve one member until it leaves or is gone."""
        room = self._rooms.get(label)
        if room is None or (not room.members and rank in room.entered):  # a name that is used again
            room = self._rooms[label] = _Room(size)
        if rank in room.members:
            text = f"the group {label!r} has a member with rank {rank} already: every member has its own"
            _send(writer, ["failed", "ConfigurationError", None, text])
            return
        room.members[rank] = writer
        room.entered.add(rank)
        for news in room.news:
            _send(writer, news)
        farewell: list[Any] = ["failed", "PeerLost", rank, GONE]
        try:
            while (request := await _receive(reader)) != ["leave"]:
                _answer(room, writer, request)
            farewell = ["left", rank]
        finally:
            del room.members[rank]
            if not self._closing:  # the members see that themselves
                room.tell(farewell)
            if not room.members:
                room.values.clear()
                if len(room.entered) == room.size and self._rooms.get(label) is room:
                    del self._rooms[label]


def _answer(room: _Room, writer: asyncio.StreamWriter, request: list[Any]) -> None:
    match request:
        case ["put", str(key), str(value)]:
            room.values[key] = value
            for waiter in room.waiting.pop(key, []):
                _send(waiter, ["value", key, value])
        case ["take", str(key)]:
            if key in room.values:
                _send(writer, ["value", key, room.values[key]])
            else:
                room.waiting[key].append(writer)
        case ["failed", str(), int() | None, str()]:
            room.tell(request)
        case _:
            raise ValueError(request)


def frame(message: list[Any]) -> bytes:
    """A message as it travels: its length, then JSON."""
    body = json.dumps(message).encode()
    return LENGTH.pack(len(body)) + body


def _send(writer: asyncio.StreamWriter, message: list[Any]) -> None:
    if not writer.is_closing():
        writer.write(frame(message))


async def _receive(reader: asyncio.StreamReader) -> list[Any]:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if length > MAX_FRAME_BYTES:
        raise ValueError(length)
    message = json.loads(await reader.readexactly(length))
    if not isinstance(message, list):
        raise ValueError(message)
    return message
