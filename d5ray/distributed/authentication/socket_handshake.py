"""The handshake over a socket of this thread: fixed lengths are read, and one deadline holds for all of it"""

import socket
import time

from d5ray.distributed.authentication.handshake import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    PROOF_BYTES,
    Initiator,
    Responder,
)
from d5ray.distributed.authentication.session import SessionKeys
from d5ray.errors import PeerLost

HANDSHAKE_SECONDS = 10.0  # that who connected may take to prove itself


def initiate(connection: socket.socket, initiator: Initiator, seconds: float) -> SessionKeys:
    """The session with who answers at the other end, which has proved itself.

    Raises `Refused` if it has not, and `OSError` or `PeerLost` if it takes longer or hangs up. Afterwards the
    socket has no time-out.
    """
    deadline = time.monotonic() + seconds
    _send(connection, initiator.hello, deadline)
    proof, session = initiator.prove(_receive(connection, CHALLENGE_BYTES, deadline))
    _send(connection, proof, deadline)
    connection.settimeout(None)
    return session


def respond(connection: socket.socket, responder: Responder, seconds: float) -> SessionKeys:
    """The session with who has connected, as `initiate`."""
    deadline = time.monotonic() + seconds
    _send(connection, responder.challenge(_receive(connection, HELLO_BYTES, deadline)), deadline)
    session = responder.admit(_receive(connection, PROOF_BYTES, deadline))
    connection.settimeout(None)
    return session


def _send(connection: socket.socket, message: bytes, deadline: float) -> None:
    _set_time_left(connection, deadline)
    connection.sendall(message)


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    found = b""
    while len(found) < size:
        _set_time_left(connection, deadline)
        piece = connection.recv(size - len(found))
        if not piece:
            raise PeerLost(None, "the connection was closed during the handshake")
        found += piece
    return found


def _set_time_left(connection: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the handshake took too long")
    connection.settimeout(left)
