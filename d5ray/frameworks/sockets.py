"""TCP connections that notice a host which does not answer any more: those of one's own, and a library's"""

import ctypes
import os
import socket
import stat
import struct
import sys
import threading
from collections.abc import Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

KEEPALIVE = (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 4000))
OPEN_FILES = Path("/proc/self/fd")
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER: a program that says how many bytes of a packet pass (man 7 socket)
_FILTER, _FILTER_STEP, _RETURN = struct.Struct("@HP"), struct.Struct("@HBBI"), 0x06  # BPF_RET | BPF_K
_listening = threading.Lock()


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
        for opened in _open_files().items() - before.items():
            with _tcp_socket(opened) as connection:
                if connection is not None:
                    keep_alive(connection)


@contextmanager
def listeners() -> Iterator["Listeners"]:
    """The TCP sockets that listen since the block, which one thread at a time may run."""
    found = Listeners()
    with _listening:
        before = _open_files()
        yield found
        found.opened = _open_files().items() - before.items()


class Listeners:
    """Listening sockets of a library that does not give them away."""

    opened: Set[tuple[int, str]] = frozenset()

    def refuse(self) -> None:
        """Accept no connections any more: the kernel drops whoever asks for one. Linux only."""
        for opened in self.opened if sys.platform == "linux" else ():
            with _tcp_socket(opened) as listener:
                if listener is not None and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    step = ctypes.create_string_buffer(_FILTER_STEP.pack(_RETURN, 0, 0, 0))
                    program = _FILTER.pack(1, ctypes.addressof(step))
                    listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)


@contextmanager
def _tcp_socket(opened: tuple[int, str]) -> Iterator[socket.socket | None]:
    """A copy of an open file's descriptor if it is a TCP socket and still the same file; closed again."""
    descriptor, what = opened
    with ExitStack() as stack:
        copy = None
        with suppress(OSError):  # closed meanwhile
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                same = stack.enter_context(socket.socket(fileno=os.dup(descriptor)))
                is_tcp = same.family in (socket.AF_INET, socket.AF_INET6) and same.type == socket.SOCK_STREAM
                if is_tcp and str((OPEN_FILES / str(descriptor)).readlink()) == what:
                    copy = same
        with suppress(OSError):
            yield copy


def _open_files() -> dict[int, str]:
    """The open files of this process: what each descriptor stands for, with the kernel's number of it."""
    found: dict[int, str] = {}
    with suppress(OSError):
        for entry in OPEN_FILES.iterdir():
            with suppress(OSError):
                found[int(entry.name)] = str(entry.readlink())
    return found
