"""Listens for processes of a run: nothing is read from who has not proved itself, and such ones are few"""

import os
import secrets
import socket
import ssl
import struct
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar, final

from d5ray.distributed.wire.certificate import contexts
from d5ray.distributed.wire.proof import HANDSHAKE_SECONDS, Claim, respond, secured
from d5ray.distributed.wire.secret import Secret
from d5ray.distributed.wire.wire import Wire, keep_alive
from d5ray.errors import D5Error

BACKLOG = 2048
MOST_STRANGERS = 256  # connections to a listener that have not proved themselves; more end the oldest
RETRY_SECONDS = 0.05  # before a connection is accepted that could not be, for want of open files
AnyEnd = TypeVar("AnyEnd", socket.socket, ssl.SSLSocket, Wire)
_CREDENTIALS = struct.Struct("3i")  # process, user and group at the other end of a Unix socket


@final
class Listener:
    """Accepts connections on a free port of `host`; each is served in a thread of its own, once proved.

    Whoever serves closes the wire, and bounds its waits, which are bounded by `HANDSHAKE_SECONDS` before.

    local: also within the node, over a Unix socket without a file, where processes of other users are not
    heard. `local_name` is that one's name, or empty where the system has none.
    """

    def __init__(
        self,
        serve: Callable[[Claim, Wire], None],
        admit: Callable[[Claim], str],
        *,
        host: str,
        secret: Secret,
        seconds: float,
        local: bool = False,
    ) -> None:
        """serve: whose the wire is then. admit: why a claim cannot be met; empty if it can.

        seconds: for which a client's host may be silent.
        """
        self._serve, self._admit, self._secret, self._seconds = serve, admit, secret, seconds
        contexts(secret)  # which opens a file, and may take a while
        self._open = True
        self._lock = threading.Lock()
        self._strangers: dict[int, dict[socket.socket, None]] = defaultdict(dict)  # by family, oldest first
        self._listening = [socket.create_server((host, 0), backlog=BACKLOG)]
        self.port: int = self._listening[0].getsockname()[1]
        self.local_name = ""
        if local and sys.platform == "linux":
            self.local_name = f"\0d5ray-{os.getpid()}-{secrets.token_hex(8)}"
            try:
                self._listening.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                self._listening[1].bind(self.local_name)
                self._listening[1].listen(BACKLOG)
            except OSError:  # such as for want of open files
                for listening in self._listening:
                    listening.close()
                raise
        for listening in self._listening:
            threading.Thread(
                target=self._accept, args=(listening,), name="d5ray-service", daemon=True
            ).start()

    def close(self) -> None:
        """Accept no further connections, and end those that have not proved themselves."""
        with self._lock:
            self._open = False
            strangers = [each for family in self._strangers.values() for each in family]
        shut(self._listening)
        for listening in self._listening:
            listening.close()
        shut(strangers)

    def _accept(self, listening: socket.socket) -> None:
        while self._open:
            try:
                connection, _ = listening.accept()
            except OSError:
                time.sleep(RETRY_SECONDS if self._open else 0.0)
                continue
            if connection.family == socket.AF_UNIX and not of_this_user(connection):
                connection.close()
                continue
            try:
                stranger = secured(connection, self._secret, server_side=True)
            except OSError:  # gone
                connection.close()
                continue
            with self._lock:
                closing = not self._open
                if not closing:
                    crowd(self._strangers[stranger.family], stranger, MOST_STRANGERS)
            if closing:
                stranger.close()
                return
            threading.Thread(target=self._attend, args=(stranger,), name="d5ray-serve", daemon=True).start()

    def _attend(self, stranger: ssl.SSLSocket) -> None:
        family, wire = stranger.family, None
        try:
            if family != socket.AF_UNIX:
                keep_alive(stranger, self._seconds)
            claim, wire = respond(stranger, self._admit, HANDSHAKE_SECONDS)
        except (OSError, D5Error, ValueError):
            stranger.close()  # gone, or nobody of ours
        finally:
            with self._lock:
                self._strangers[family].pop(stranger, None)
        if wire is not None:
            self._serve(claim, wire)


def crowd(all_of: dict[AnyEnd, None], newest: AnyEnd, most: int) -> None:
    """Add a connection to those of a kind; where they are too many the oldest is ended."""
    all_of[newest] = None
    if len(all_of) > most:
        oldest = next(iter(all_of))
        del all_of[oldest]
        shut([oldest.socket if isinstance(oldest, Wire) else oldest])


def of_this_user(connection: socket.socket) -> bool:
    """True if the process at the other end of a Unix socket is of the same user."""
    size = _CREDENTIALS.size
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.geteuid())


def shut(sockets: Iterable[socket.socket], how: int = socket.SHUT_RDWR) -> None:
    """End connections, from any thread."""
    for each in sockets:
        with suppress(OSError):
            socket.socket.shutdown(each, how)  # the method of TLS would forget its keys first
