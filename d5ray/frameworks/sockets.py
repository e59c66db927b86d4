"""TCP connections that notice a host which does not answer any more: those of one's own, and a library's"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

KEEPALIVE = (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 4000))
OPEN_FILES = Path("/proc/self/fd")


def keep_alive(connection: socket.socket) -> None:
    """Break a connection when the other host has not answered for 4 s, and send small messages at once."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


@contextmanager
def kept_alive() -> Iterator[None]:
    """`keep_alive` for the TCP connections that this process opens during the block, whoever opens them.

    For libraries that do not give their connections away. Does nothing where the system has no /proc.
    """
    before = _open_files()
    try:
        yield
    finally:
        for descriptor in _open_files() - before:
            with suppress(OSError):  # closed meanwhile, or no socket
                _keep_alive(descriptor)


def _keep_alive(descriptor: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as copy:  # the options are those of the original too
        if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
            keep_alive(copy)


def _open_files() -> set[int]:
    try:
        return {int(entry.name) for entry in OPEN_FILES.iterdir()}
    except OSError:
        return set()
