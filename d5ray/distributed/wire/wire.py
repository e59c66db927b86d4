"""Wires: bytes between two processes that have proved themselves, in both directions at once"""

import select
import socket
import ssl
import struct
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, final

from d5ray.errors import PeerLost

Buffer = Any  # bytes, or what has their interface: a memoryview, a flat array of uint8
_SECONDS = struct.Struct("@ll")  # a time-out of the system's
MOST_BETWEEN = 5.0  # seconds between two signs of life
MOST = {"TCP_KEEPCNT": 127, "TCP_USER_TIMEOUT": 2**31 - 1}  # that the options take
_RTO_MAX_MS = 44  # TCP_RTO_MAX_MS, of Linux 6.15: the longest pause before what was lost is sent again


class Wire(ABC):
    """One end of a connection. `put` and `get` do not wait; every other wait is bounded by `seconds`.

    What goes wrong is an `OSError`, a wait that is too long a `TimeoutError`, and the end of the connection a
    `PeerLost`. One thread may send while another one receives.
    """

    protected: bool  # whether what travels is encrypted, and proves its sender and place

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.fileno: Callable[[], int] = connection.fileno
        self.seconds: float | None = None

    @abstractmethod
    def put(self, piece: Buffer) -> int:
        """Send as much as the system takes now; how many bytes those were."""

    @abstractmethod
    def get(self, into: Buffer) -> int:
        """Receive what has come, at most as much as there is room for; how many bytes those were."""

    @abstractmethod
    def take(self, into: Buffer) -> int:
        """`get`, but wait until something has come."""

    @abstractmethod
    def bound(self, seconds: float | None) -> None:
        """Bound every wait from now on by `seconds`; None: as long as the other end lives."""

    @final
    def send(self, *pieces: Buffer) -> None:
        """Send all of these pieces."""
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                count = self.put(rest)
                rest = rest[count:]
                if not count:
                    self._await(select.POLLOUT)

    @final
    def fill(self, into: Buffer, *, may_end: bool = False) -> bool:
        """into ← the next bytes. may_end: the connection may end before the first; False if it does."""
        rest = memoryview(into)
        whole = len(rest)
        while rest:
            try:
                rest = rest[self.take(rest) :]
            except PeerLost:
                if may_end and len(rest) == whole:
                    return False
                raise PeerLost(None, "the connection ended in the middle of a message") from None
        return True

    @final
    def shut(self) -> None:
        """End the connection, from any thread: who waits at either end is woken."""
        with suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    @final
    def gone(self) -> bool:
        """True if the other end has closed the connection."""
        try:
            return socket.socket.recv(self.socket, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    @final
    def close(self) -> None:
        """End the connection, for which no other thread waits."""
        self.shut()
        self.socket.close()

    def _await(self, event: int) -> None:
        poller = select.poll()
        try:
            poller.register(self.fileno(), event)
        except ValueError:  # closed in another thread
            raise PeerLost(None, "the connection was closed here") from None
        if not poller.poll(None if self.seconds is None else 1000 * self.seconds):
            raise TimeoutError(f"nothing moved for {self.seconds:g} s")


@final
class PlainWire(Wire):
    """A wire on which bytes travel as they are."""

    protected = False

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        super().__init__(connection)
        connection.settimeout(None)
        self.bound(seconds)

    def bound(self, seconds: float | None) -> None:
        self.seconds = seconds
        microseconds = 0 if seconds is None else max(1, int(1e6 * seconds))  # 0: for ever
        words = _SECONDS.pack(*divmod(microseconds, 10**6))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, words)

    def put(self, piece: Buffer) -> int:
        try:
            return self.socket.send(piece, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def get(self, into: Buffer) -> int:
        try:
            return self.socket.recv_into(into, 0, socket.MSG_DONTWAIT) or _ended(into)
        except BlockingIOError:
            return 0

    def take(self, into: Buffer) -> int:
        try:  # without asking first whether something has come
            return self.socket.recv_into(into) or _ended(into)
        except BlockingIOError:
            raise TimeoutError(f"nothing came for {self.seconds:g} s") from None


@final
class TLSWire(Wire):
    """A wire over TLS 1.3."""

    protected = True
    socket: ssl.SSLSocket

    def __init__(self, connection: ssl.SSLSocket, seconds: float) -> None:
        super().__init__(connection)
        self._lock = threading.Lock()  # OpenSSL lets one thread at a time use a connection
        connection.setblocking(False)
        self.seconds = seconds

    def bound(self, seconds: float | None) -> None:
        self.seconds = seconds

    def put(self, piece: Buffer) -> int:
        try:
            with self._lock:
                return self.socket.send(piece)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return 0
        except (ssl.SSLEOFError, ValueError):  # also closed in another thread
            raise BrokenPipeError("the connection ended") from None

    def get(self, into: Buffer) -> int:
        try:
            with self._lock:
                return self.socket.recv_into(into) or _ended(into)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except (ssl.SSLEOFError, ValueError):  # also closed in another thread
            return _ended(into)

    def take(self, into: Buffer) -> int:
        while not (count := self.get(into)):
            self._await(select.POLLIN)
        return count


def _ended(into: Buffer) -> int:
    raise PeerLost(None, "the connection ended")


def keep_alive(connection: socket.socket, seconds: float) -> None:
    """Break a connection when the other host has not answered for so long, and send small messages at once.

    A shorter silence is survived: TCP sends again what was lost. It waits twice as long each time, up to a
    tenth of `seconds` where the system lets one say so; elsewhere a silence of more than half of them may
    break the connection. A process that ends breaks it at once.
    """
    between = min(MOST_BETWEEN, max(1.0, seconds / 10))
    options = {  # as far as the system has them
        "TCP_KEEPIDLE": int(between),
        "TCP_KEEPINTVL": int(between),
        "TCP_KEEPCNT": max(2, int(seconds / int(between))),
        "TCP_USER_TIMEOUT": int(1000 * seconds),
    }
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in options.items():
        if hasattr(socket, name):
            connection.setsockopt(
                socket.IPPROTO_TCP, getattr(socket, name), min(value, MOST.get(name, value))
            )
    if sys.platform == "linux":
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, _RTO_MAX_MS, int(1000 * between))
