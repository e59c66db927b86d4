"""Claims about TCP connections that notice a silent host: options set from outside, and nothing left open"""

import os
import socket
from pathlib import Path

from d5ray.frameworks.sockets import kept_alive


def test_connections_opened_in_the_block_are_kept_alive_and_no_descriptor_is_left() -> None:
    """TCP both ways gets the options; pipes and other sockets are left alone; no file stays open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    listener = socket.create_server(("127.0.0.1", 0))
    with kept_alive(20.0):
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        pipe = os.pipe()
        pair = socket.socketpair()
    for connection in (client, server):
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
    assert not listener.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    for end in (listener, client, server, *pair):
        end.close()
    for descriptor in pipe:
        os.close(descriptor)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
