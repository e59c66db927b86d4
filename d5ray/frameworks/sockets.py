"""TCP connections that notice a host which does not answer any more: those of one's own, and a library's"""

import os
import socket
import stat
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
        for descriptor, what in _open_files().items():
            if before.get(descriptor) != what:  # opened meanwhile, perhaps under a number that was in use
                with suppress(OSError):  # and closed again
                    _keep_alive(descriptor)


def _keep_alive(descriptor: int) -> None:
    """Set the options of a TCP connection by way of a copy, which is closed again; leave others alone."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
            keep_alive(copy)


def _open_files() -> dict[int, str]:
    """The open files of this process: what each descriptor stands for, with the kernel's number of it."""
    found: dict[int, str] = {}
    with suppress(OSError):
        for entry in OPEN_FILES.iterdir():
            with suppress(OSError):
                found[int(entry.name)] = str(entry.readlink())
    return found
