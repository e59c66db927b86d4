"""Serves requests of other processes: a thread for every connection"""

import json
import os
import secrets
import socket
import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.distributed.rpc import frames
from d5ray.distributed.rpc.frames import FrameStream, Unexpected
from d5ray.distributed.rpc.shared_region import SharedRegion
from d5ray.distributed.wire.listener import Listener, crowd, of_this_user, shut
from d5ray.distributed.wire.proof import ANYONE, Claim, Refused, initiate
from d5ray.distributed.wire.secret import Secret
from d5ray.distributed.wire.wire import Wire
from d5ray.errors import D5Error, PeerLost

HELLO, WELCOME, ERROR = 1, 2, 3
MAX_HELLO_BYTES = 2**16
MAX_ERROR_BYTES = 2**16
MOST_OF_ONE = 8  # connections of one rank; more end the oldest, which it has given up
GRACE_SECONDS = 1.0  # for the requests that are served when a service ends
KEPT_SECONDS = 120.0  # for which a client's host may be silent, unless the agents have another time-out


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
    encrypted: bool = True


@final
class Connection:
    """One client as the service sees it: its rank, what it said of itself, and memory it shares, or None."""

    def __init__(
        self,
        stream: FrameStream,
        rank: int,
        hello: dict[str, Any],
        region: SharedRegion | None,
        is_open: Callable[[], bool],
    ) -> None:
        self.stream = stream
        self.rank = rank
        self.hello = hello
        self.region = region
        self._is_open = is_open

    def receive(self, most_bytes: int) -> frames.FrameHeader | None:
        """The next request, of at most these bytes of payload; None at the end of client or service."""
        return self.stream.receive(most_bytes) if self._is_open() else None

    def fill(self, into: frames.Bytes) -> None:
        """into (bytes,) ← the payload of the request."""
        self.stream.fill(into)

    def shared(self, place: int, size: int, align: int) -> frames.Bytes:
        """The bytes (size,) at this place of the memory that the client shares; `Unexpected` if not in it."""
        if self.region is None or not 0 <= place <= len(self.region.bytes) - size or place % align:
            there = 0 if self.region is None else len(self.region.bytes)
            raise Unexpected(f"a request names {size:,} bytes at {place:,} of shared memory of {there:,}")
        return self.region.bytes[place : place + size]

    def reply(self, kind: int, numbers: tuple[int, ...], payload: frames.Bytes = frames.EMPTY) -> None:
        """Send the answer to the last request."""
        self.stream.send(kind, numbers, payload)

    def fail(self, words: str) -> None:
        """Answer with an error, which the client raises."""
        self.reply(ERROR, (), np.frombuffer(words.encode()[:MAX_ERROR_BYTES], np.uint8))

    def gone(self) -> bool:
        """True if the client has closed the connection."""
        return self.stream.wire.gone()


Serve = Callable[[Connection], None]  # until the client has gone; runs in a thread of its own


@final
class Service:
    """Listens on free ports; `serve(connection)` is called for every client in a thread of its own.

    Before anything else is read both ends prove the run's secret, and the client says that it means this
    purpose, this service and which rank it is. (The service's own random identity, which its address brings
    to clients, says more than the epoch would: agents that come late have another epoch than those that they
    speak to, and an agent that came again at the same rank is another service.) What `serve` raises is raised
    at the client, and ends its connection alone.
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
        encrypted: bool = True,
        seconds: float = KEPT_SECONDS,
    ) -> None:
        """ranks: of clients. rank: of the service, where it is an agent. encrypted: as in `Group`.

        seconds: for which a client's host may be silent.
        """
        self._serve, self._ranks = serve, ranks
        self._open = True
        self._lock = threading.Condition()
        self._connections: dict[Wire, None] = {}
        self._clients: dict[int, dict[Wire, None]] = defaultdict(dict)  # by rank, oldest first
        identity = secrets.token_hex(8)
        self._own = Claim(purpose, identity, ANYONE, rank, encrypted)
        self._listener = Listener(
            self._attend, self._refusal, host=host, secret=secret, seconds=seconds, local=True
        )
        self.address = Address(node, host, self._listener.port, self._listener.local_name, identity)

    def close(self) -> None:
        """End the service and all connections: clients get `PeerLost`.

        Requests that came are answered, if that takes no more than `GRACE_SECONDS`: who gets no answer may
        take it that nothing was done.
        """
        with self._lock:
            self._open = False
            wires = [*self._connections]
        self._listener.close()
        shut((wire.socket for wire in wires), socket.SHUT_RD)
        with self._lock:
            self._lock.wait_for(lambda: not self._connections, GRACE_SECONDS)
            wires = [*self._connections]
        shut(wire.socket for wire in wires)

    def _refusal(self, claim: Claim) -> str:
        own = self._own
        if (claim.purpose, claim.label, claim.to) != (own.purpose, own.label, own.to):
            return f"this is another service than the one that is meant, for {own.purpose} of rank {own.to}"
        if claim.encrypted != own.encrypted:
            return "either all of a run encrypt, or none"
        return "" if claim.rank in self._ranks else f"no client of this service has the rank {claim.rank}"

    def _attend(self, claim: Claim, wire: Wire) -> None:
        rank = claim.rank
        try:
            with self._lock:
                if not self._open:
                    return
                self._connections[wire] = None
                crowd(self._clients[rank], wire, MOST_OF_ONE)
            self._attend_to(self._welcomed(rank, wire))
        except (OSError, D5Error, ValueError, RecursionError):
            pass  # gone, or wrong
        finally:
            with self._lock:
                self._connections.pop(wire, None)
                self._clients[rank].pop(wire, None)
                if not self._clients[rank]:
                    del self._clients[rank]
                self._lock.notify_all()
            wire.close()

    def _attend_to(self, client: Connection) -> None:
        try:
            self._serve(client)
        except (OSError, PeerLost):
            pass  # gone: the client may connect again
        except D5Error as error:
            client.fail(str(error))
        except Exception as error:  # of code that is perhaps not ours
            client.fail("".join(traceback.format_exception(error, limit=-4)).rstrip())

    def _welcomed(self, rank: int, wire: Wire) -> Connection:
        """A client that has introduced itself. Raises `Unexpected` for others."""
        stream = FrameStream(wire)
        head = stream.receive(MAX_HELLO_BYTES)
        if head is None or head.kind != HELLO:
            raise Unexpected("a client begins with another request than its introduction")
        said = np.empty(head.payload_bytes, np.uint8)
        stream.fill(said)
        hello = json.loads(said.tobytes())
        if not isinstance(hello, dict):
            raise Unexpected("a client introduces itself by something else than names and values")
        shared_bytes, *_ = head.numbers
        region = None
        if shared_bytes and wire.socket.family == socket.AF_UNIX:
            region = SharedRegion(shared_bytes, _one_descriptor(wire.socket))
            region.close_descriptor()
        stream.send(WELCOME)
        wire.bound(None)
        return Connection(stream, rank, hello, region, lambda: self._open)


def _one_descriptor(connection: socket.socket) -> int:
    """The file descriptor that a client sends with one byte; `Unexpected` if there is none, or more."""
    _, found, flags, _ = socket.recv_fds(connection, 1, 2)
    if len(found) == 1 and not flags & socket.MSG_CTRUNC:
        return found[0]
    for descriptor in found:
        os.close(descriptor)
    raise Unexpected(f"a client sends {len(found)} file descriptors where one is expected")


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
    claim = Claim(caller.purpose, address.identity, caller.rank, to, caller.encrypted)
    wire = None
    try:
        connection = _reached(address, seconds, near)
        wire = initiate(connection, caller.secret, claim, seconds)
        stream = FrameStream(wire)
        shared = region if near else None
        said = np.frombuffer(json.dumps(hello).encode(), np.uint8)
        stream.send(HELLO, (0 if shared is None else len(shared.bytes),), said)
        if shared is not None:
            socket.send_fds(wire.socket, [b"\0"], [shared.descriptor])
        answer = stream.receive(0)
        if answer is None or answer.kind != WELCOME:
            raise Refused("it turned this process away")
    except (OSError, D5Error) as error:
        if wire is not None:
            wire.close()
        why = error.detail if isinstance(error, PeerLost) else str(error)
        raise PeerLost(None, f"{address.host}:{address.port} does not answer: {why}") from error
    return stream


def _reached(address: Address, seconds: float, near: bool) -> socket.socket:
    """A connection over which nothing has been said."""
    if not near:
        return socket.create_connection((address.host, address.port), timeout=seconds)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect(address.local)
        if not of_this_user(connection):
            raise Refused("a process of another user answers")
    except BaseException:
        connection.close()
        raise
    return connection
