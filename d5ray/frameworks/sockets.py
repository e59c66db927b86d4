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

MOST_BETWEEN = 5.0  # seconds between two signs of life
MOST = {"TCP_KEEPCNT": 127, "TCP_USER_TIMEOUT": 2**31 - 1}  # that the options take
_RTO_MAX_MS = 44  # TCP_RTO_MAX_MS, of Linux 6.15: the longest pause before what was lost is sent again
OPEN_FILES = Path("/proc/self/fd")
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER: a program that says how many bytes of a packet pass (man 7 socket)
_FILTER, _FILTER_STEP, _RETURN = struct.Struct("@HP"), struct.Struct("@HBBI"), 0x06  # BPF_RET | BPF_K
_listening = threading.Lock()


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


@contextmanager
def kept_alive(seconds: float) -> Iterator[None]:
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
                    keep_alive(connection, seconds)


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
