"""Serves requests of other processes: a thread for every connection"""

import contextlib
import ipaddress
import json
import os
import secrets
import socket
import struct
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np

from d5ray.distributed.authentication.handshake import Initiator, Responder
from d5ray.distributed.authentication.secret import Secret
from d5ray.distributed.authentication.session import Forged
from d5ray.distributed.authentication.socket_handshake import HANDSHAKE_SECONDS, initiate, respond
from d5ray.distributed.rpc import frames
from d5ray.distributed.rpc.frames import FrameStream, Unexpected
from d5ray.distributed.rpc.shared_region import SharedRegion
from d5ray.distributed.wire.keep_alive import keep_alive
from d5ray.distributed.wire.proof import ANYONE, Claim, Refused
from d5ray.errors import D5Error, PeerLost

HELLO, WELCOME, ERROR = 1, 2, 3
BACKLOG = 2048
MAX_HELLO_BYTES = 2**16
MAX_ERROR_BYTES = 2**16
MOST_STRANGERS = 256  # connections to a listener that have not proved themselves; more end the oldest
MOST_OF_ONE = 8  # connections of one rank; more end the oldest, which it has given up
GRACE_SECONDS = 1.0  # for the requests that are served when a service ends
KEPT_SECONDS = 120.0  # for which a client's host may be silent, unless the agents have another time-out
RETRY_SECONDS = 0.05  # before a connection is accepted that could not be, for want of open files
_CREDENTIALS = struct.Struct("3i")  # process, user and group at the other end of a Unix socket


@dataclass(frozen=True)
class Address:
    """The address of a service: over TCP, and within its node over a Unix socket without a file.

    identity: of this service among all that ever were, which its clients' handshakes name.
    """

    node: str
    host: str
    port: int
    local: str
    identity: str

    def near(self, node: str) -> bool:
        """True if a process on this node shares memory with the one at the address."""
        return bool(self.local) and node == self.node and sys.platform == "linux"


@dataclass(frozen=True)
class Caller:
    """A client of services: what it proves, and where it is.

    purpose: of the services, such as "gossip". rank: its own. encrypted: as in `Group`.
    """

    secret: Secret
    purpose: str
    rank: int
    node: str
    encrypted: bool = False


@final
class Connection:
    """One client as the service sees it: its rank, what it said of itself, and memory it shares, or None."""

    def __init__(
        self,
        wire: FrameStream,
        rank: int,
        hello: dict[str, Any],
        region: SharedRegion | None,
        is_open: Callable[[], bool],
    ) -> None:
        self.wire = wire
        self.rank = rank
        self.hello = hello
        self.region = region
        self._is_open = is_open

    def receive(self, most_bytes: int) -> frames.FrameHeader | None:
        """The next request, of at most these bytes of payload; None at the end of client or service."""
        return self.wire.receive(most_bytes) if self._is_open() else None

    def fill(self, into: frames.Bytes) -> None:
        """into (bytes,) ← the payload of the request."""
        self.wire.fill(into)

    def shared(self, place: int, size: int, align: int) -> frames.Bytes:
        """The bytes (size,) at this place of the memory that the client shares; `Unexpected` if not in it."""
        if self.region is None or not 0 <= place <= len(self.region.bytes) - size or place % align:
            there = 0 if self.region is None else len(self.region.bytes)
            raise Unexpected(f"a request names {size:,} bytes at {place:,} of shared memory of {there:,}")
        return self.region.bytes[place : place + size]

    def reply(self, kind: int, numbers: tuple[int, ...], payload: frames.Bytes = frames.EMPTY) -> None:
        """Send the answer to the last request."""
        self.wire.send(kind, numbers, payload)

    def fail(self, words: str) -> None:
        """Answer with an error, which the client raises."""
        self.reply(ERROR, (), np.frombuffer(words.encode()[:MAX_ERROR_BYTES], np.uint8))

    def gone(self) -> bool:
        """True if the client has closed the connection."""
        try:
            return self.wire.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True


Serve = Callable[[Connection], None]  # until the client has gone; runs in a thread of its own


@final
class Service:
    """Listens on free ports; `serve(connection)` is called for every client in a thread of its own.

    Before anything else is read both ends prove the run's secret, for this purpose, this service and the
    client's rank. (The service's own random identity, which its address brings to clients, says more than the
    epoch would: agents that come late have another epoch than those that they speak to, and an agent that
    came again at the same rank is another service.) Processes of other users are not heard on Unix sockets.
    What leaves the machine carries proof of its sender. What `serve` raises is raised at the client, and ends
    its connection alone.
    """

    def __init__(
        self,
        serve: Serve,
        *,
        node: str,
        host: str,
        secret: Secret,
        purpose: str,
        ranks: Container[int],
        rank: int = ANYONE,
        encrypted: bool = False,
        seconds: float = KEPT_SECONDS,
    ) -> None:
        """ranks: of clients. rank: of the service, where it is an agent. encrypted: as in `Group`.

        seconds: for which a client's host may be silent.
        """
        self._serve, self._ranks, self._seconds = serve, ranks, seconds
        self._open = True
        self._lock = threading.Condition()
        self._connections: dict[socket.socket, None] = {}
        self._strangers: dict[int, dict[socket.socket, None]] = defaultdict(dict)  # by family, oldest first
        self._clients: dict[int, dict[socket.socket, None]] = defaultdict(dict)  # by rank, oldest first
        tcp = socket.create_server((host, 0), backlog=BACKLOG)
        listeners = [tcp]
        local, identity = "", secrets.token_hex(8)
        if sys.platform == "linux":
            local = f"\0d5ray-{os.getpid()}-{identity}"
            unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            unix.bind(local)
            unix.listen(BACKLOG)
            listeners.append(unix)
        self._listeners = listeners
        self.address = Address(node, host, tcp.getsockname()[1], local, identity)
        self._responder = partial(Responder, secret, purpose, label=identity, rank=rank, encrypted=encrypted)
        for listener in listeners:
            threading.Thread(target=self._listen, args=(listener,), name="d5ray-service", daemon=True).start()

    def close(self) -> None:
        """End the service and all connections: clients get `PeerLost`.

        Requests that came are answered, if that takes no more than `GRACE_SECONDS`: who gets no answer may
        take it that nothing was done.
        """
        with self._lock:
            self._open = False
            connections = [*self._connections]
        _shut_down(self._listeners, socket.SHUT_RDWR)
        for listener in self._listeners:
            listener.close()
        _shut_down(connections, socket.SHUT_RD)
        with self._lock:
            self._lock.wait_for(lambda: not self._connections, GRACE_SECONDS)
            connections = [*self._connections]
        _shut_down(connections, socket.SHUT_RDWR)

    def _listen(self, listener: socket.socket) -> None:
        while self._open:
            try:
                connection, _ = listener.accept()
            except OSError:
                time.sleep(RETRY_SECONDS)
                continue
            if connection.family == socket.AF_UNIX and not _of_this_user(connection):
                connection.close()
                continue
            with self._lock:
                closing = not self._open
                if not closing:
                    self._connections[connection] = None
                    _crowd(self._strangers[connection.family], connection, MOST_STRANGERS)
            if closing:
                connection.close()
                return
            threading.Thread(target=self._attend, args=(connection,), name="d5ray-serve", daemon=True).start()

    def _attend(self, connection: socket.socket) -> None:
        rank = ANYONE
        try:
            if connection.family != socket.AF_UNIX:
                keep_alive(connection, self._seconds)
            client = self._welcome(connection)
            rank = client.rank
            with self._lock:
                self._strangers[connection.family].pop(connection, None)
                _crowd(self._clients[rank], connection, MOST_OF_ONE)
            self._attend_to(client)
        except (OSError, D5Error, ValueError, RecursionError):
            pass  # gone, or nobody of ours
        finally:
            with self._lock:
                self._connections.pop(connection, None)
                self._strangers[connection.family].pop(connection, None)
                self._clients[rank].pop(connection, None)
                if not self._clients[rank]:
                    del self._clients[rank]
                self._lock.notify_all()
            connection.close()

    def _attend_to(self, client: Connection) -> None:
        try:
            self._serve(client)
        except (OSError, PeerLost, Forged):
            pass  # gone, or somebody else speaks: the client may connect again
        except D5Error as error:
            client.fail(str(error))
        except Exception as error:  # of code that is perhaps not ours
            client.fail("".join(traceback.format_exception(error, limit=-4)).rstrip())

    def _welcome(self, connection: socket.socket) -> Connection:
        """A client that has proved itself. Raises `Refused` or `Unexpected` for others."""
        responder = self._responder()
        wire = FrameStream(connection, respond(connection, responder, HANDSHAKE_SECONDS))
        if responder.rank not in self._ranks:
            raise Refused(f"no client of this service has the rank {responder.rank}")
        connection.settimeout(HANDSHAKE_SECONDS)
        head = wire.receive(MAX_HELLO_BYTES)
        if head is None or head.kind != HELLO:
            raise Unexpected("a client begins with another request than its introduction")
        said = np.empty(head.payload_bytes, np.uint8)
        wire.fill(said)
        hello = json.loads(said.tobytes())
        if not isinstance(hello, dict):
            raise Unexpected("a client introduces itself by something else than names and values")
        shared_bytes, apart, *_ = head.numbers
        region = None
        if shared_bytes and connection.family == socket.AF_UNIX:
            region = SharedRegion(shared_bytes, _one_descriptor(connection))
            region.close_descriptor()
        apart = int(bool(apart) or _leaves(connection))
        wire.send(WELCOME, (apart,))
        if not apart:
            wire.relax()
        connection.settimeout(None)
        return Connection(wire, responder.rank, hello, region, lambda: self._open)


def _crowd(all_of: dict[socket.socket, None], newest: socket.socket, most: int) -> None:
    """Add a connection to those of a kind; where they are too many the oldest is ended."""
    all_of[newest] = None
    if len(all_of) > most:
        oldest = next(iter(all_of))
        del all_of[oldest]
        _shut_down([oldest], socket.SHUT_RDWR)


def _of_this_user(connection: socket.socket) -> bool:
    """True if the process at the other end of a Unix socket is of the same user."""
    size = _CREDENTIALS.size
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.geteuid())


def _one_descriptor(connection: socket.socket) -> int:
    """The file descriptor that a client sends with one byte; `Unexpected` if there is none, or more."""
    _, found, flags, _ = socket.recv_fds(connection, 1, 2)
    if len(found) == 1 and not flags & socket.MSG_CTRUNC:
        return found[0]
    for descriptor in found:
        os.close(descriptor)
    raise Unexpected(f"a client sends {len(found)} file descriptors where one is expected")


def _leaves(connection: socket.socket) -> bool:
    """True if what is sent leaves this machine: between two ends of it only root could alter anything."""
    if connection.family == socket.AF_UNIX:
        return False
    here, there = (
        ipaddress.ip_address(end[0].partition("%")[0])
        for end in (connection.getsockname(), connection.getpeername())
    )
    return here != there and not (here.is_loopback and there.is_loopback)


def _shut_down(sockets: Iterable[socket.socket], how: int) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(how)


def connect(
    address: Address,
    caller: Caller,
    hello: dict[str, Any],
    region: SharedRegion | None,
    seconds: float,
    *,
    to: int = ANYONE,
) -> FrameStream:
    """A connection to a service, which shares the region if it is on this node.

    to: the service's rank. Every wait for it is bounded by `seconds`; raises `PeerLost` when it does not
    answer, or does not prove that it is the service of this address.
    """
    near = address.near(caller.node)
    connection = None
    try:
        if near:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(seconds)
            connection.connect(address.local)
            if not _of_this_user(connection):
                raise Refused("a process of another user answers")
        else:
            connection = socket.create_connection((address.host, address.port), timeout=seconds)
            keep_alive(connection, seconds)
        claim = Claim(caller.purpose, address.identity, caller.rank, to)
        session = initiate(connection, Initiator(caller.secret, claim, encrypted=caller.encrypted), seconds)
        connection.settimeout(seconds)
        wire = FrameStream(connection, session)
        shared = region if near else None
        said = np.frombuffer(json.dumps(hello).encode(), np.uint8)
        numbers = (0 if shared is None else len(shared.bytes), int(_leaves(connection)))
        wire.send(HELLO, numbers, said)
        if shared is not None:
            socket.send_fds(connection, [b"\0"], [shared.descriptor])
        answer = wire.receive(0)
        if answer is None or answer.kind != WELCOME:
            raise Refused("it turned this process away")
    except (OSError, D5Error) as error:
        if connection is not None:
            connection.close()
        raise PeerLost(None, f"{address.host}:{address.port} does not answer: {_said(error)}") from error
    if not answer.numbers[0]:
        wire.relax()
    return wire


def _said(error: Exception) -> str:
    return error.detail if isinstance(error, PeerLost) else str(error)
