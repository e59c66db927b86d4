"""Serves requests of other processes: a thread for every connection"""

import contextlib
import json
import os
import secrets
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.distributed.remote import frames
from d5ray.distributed.remote.region import Region
from d5ray.errors import D5Error, PeerLost
from d5ray.frameworks.sockets import keep_alive

HELLO, WELCOME, ERROR = 1, 2, 3
BACKLOG = 2048
MAX_HELLO_BYTES = 2**16
GRACE_SECONDS = 1.0  # for the requests that are served when a service ends
RETRY_SECONDS = 0.05  # before a connection is accepted that could not be, for want of open files


@dataclass(frozen=True)
class Address:
    """Where a service is reached: over TCP, and within its node over a Unix socket without a file."""

    node: str
    host: str
    port: int
    local: str

    def near(self, node: str) -> bool:
        """Whether somebody on this node shares memory with it."""
        return bool(self.local) and node == self.node and sys.platform == "linux"


@final
class Connection:
    """One client as the service sees it. hello: what it said of itself; region: memory it shares, or None."""

    def __init__(
        self,
        connection: socket.socket,
        hello: dict[str, Any],
        region: Region | None,
        is_open: Callable[[], bool],
    ) -> None:
        self.socket = connection
        self.hello = hello
        self.region = region
        self._is_open = is_open

    def receive(self) -> frames.Frame | None:
        """The next request; None when the client has gone, or the service ends."""
        return frames.receive(self.socket) if self._is_open() else None

    def fill(self, into: frames.Bytes) -> None:
        """into (bytes,) ← the payload of the request."""
        frames.fill(self.socket, into)

    def reply(self, kind: int, numbers: tuple[int, ...], payload: frames.Bytes = frames.EMPTY) -> None:
        """Answer it."""
        frames.send(self.socket, kind, numbers, payload)

    def fail(self, words: str) -> None:
        """Answer with an error, which the client raises."""
        self.reply(ERROR, (), np.frombuffer(words.encode(), np.uint8))

    def gone(self) -> bool:
        """Whether the client has gone meanwhile."""
        try:
            return self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True


Serve = Callable[[Connection], None]  # until the client has gone; runs in a thread of its own


@final
class Service:
    """Listens on free ports; `serve(connection)` is called for every client in a thread of its own.

    Who does not know the `secret` is turned away. What `serve` raises is raised at the client.
    """

    def __init__(self, serve: Serve, *, node: str, host: str, secret: str) -> None:
        self._serve, self._secret = serve, secret
        self._open = True
        self._lock = threading.Condition()
        self._connections: set[socket.socket] = set()
        tcp = socket.create_server((host, 0), backlog=BACKLOG)
        listeners = [tcp]
        local = ""
        if sys.platform == "linux":
            local = f"\0d5ray-{os.getpid()}-{secrets.token_hex(8)}"
            unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            unix.bind(local)
            unix.listen(BACKLOG)
            listeners.append(unix)
        self._listeners = listeners
        self.address = Address(node, host, tcp.getsockname()[1], local)
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
            with self._lock:
                closing = not self._open
                if not closing:
                    self._connections.add(connection)
            if closing:
                connection.close()
                return
            threading.Thread(target=self._attend, args=(connection,), name="d5ray-serve", daemon=True).start()

    def _attend(self, connection: socket.socket) -> None:
        try:
            if connection.family != socket.AF_UNIX:
                keep_alive(connection)
            client = self._welcome(connection)
            if client is not None:
                self._attend_to(client)
        except (OSError, PeerLost, ValueError):
            pass  # gone, or nobody of ours
        finally:
            with self._lock:
                self._connections.discard(connection)
                self._lock.notify_all()
            connection.close()

    def _attend_to(self, client: Connection) -> None:
        try:
            self._serve(client)
        except (OSError, PeerLost):
            pass
        except D5Error as error:
            client.fail(str(error))
        except Exception as error:  # of code that is perhaps not ours
            client.fail("".join(traceback.format_exception(error, limit=-4)).rstrip())

    def _welcome(self, connection: socket.socket) -> Connection | None:
        connection.settimeout(10.0)
        descriptors: list[int] = []
        if connection.family == socket.AF_UNIX:
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        try:
            head = frames.receive(connection)
            if head is None or head.kind != HELLO or head.payload_bytes > MAX_HELLO_BYTES:
                return None
            said = np.empty(head.payload_bytes, np.uint8)
            frames.fill(connection, said)
            hello = json.loads(said.tobytes())
            if not isinstance(hello, dict) or not secrets.compare_digest(
                str(hello.get("secret")).encode(), self._secret.encode()
            ):
                return None
            region = Region(head.numbers[0], descriptors.pop()) if descriptors else None
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        if region is not None:
            region.close_descriptor()
        connection.settimeout(None)
        frames.send(connection, WELCOME)
        return Connection(connection, hello, region, lambda: self._open)


def _shut_down(sockets: Iterable[socket.socket], how: int) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(how)


def connect(
    address: Address, node: str, hello: dict[str, Any], region: Region | None, seconds: float
) -> socket.socket:
    """A connection to a service, which shares the region if it is on this node.

    Every wait for it is bounded by `seconds`; raises `PeerLost` when it does not answer.
    """
    near = address.near(node)
    connection = None
    try:
        if near:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(seconds)
            connection.connect(address.local)
            descriptors = [] if region is None else [region.descriptor]
            if descriptors:
                socket.send_fds(connection, [b"\0"], descriptors)
            else:
                connection.sendall(b"\0")
        else:
            connection = socket.create_connection((address.host, address.port), timeout=seconds)
            keep_alive(connection)
        said = np.frombuffer(json.dumps(hello).encode(), np.uint8)
        frames.send(connection, HELLO, (0 if region is None else len(region.bytes),), said)
        answer = frames.receive(connection)
    except (OSError, struct.error, PeerLost) as error:
        if connection is not None:
            connection.close()
        raise PeerLost(None, f"{address.host}:{address.port} does not answer: {error}") from error
    if answer is None or answer.kind != WELCOME:
        connection.close()
        raise PeerLost(None, f"{address.host}:{address.port} turned this process away")
    return connection
