"""TCP connections that notice a host which does not answer any more"""

import socket
import sys
from contextlib import suppress

MOST_BETWEEN = 5.0  # seconds between two signs of life
MOST = {"TCP_KEEPCNT": 127, "TCP_USER_TIMEOUT": 2**31 - 1}  # that the options take
_RTO_MAX_MS = 44  # TCP_RTO_MAX_MS, of Linux 6.15: the longest pause before what was lost is sent again


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
