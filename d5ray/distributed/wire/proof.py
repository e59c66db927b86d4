"""Beginning of a connection: TLS 1.3 by the run's certificate at both ends, and who speaks to whom

    initiator → responder   [version, purpose, label, rank, to, encrypted, leaves]
    responder → initiator   [refusal, leaves]

Both are JSON after four bytes of length, under TLS. Where nothing is encrypted, or nothing leaves the
machine, TLS ends here (`close_notify` both ways) and bytes travel as they are over the same connection.
"""

import ipaddress
import json
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from d5ray.distributed.wire.certificate import contexts
from d5ray.distributed.wire.secret import Secret
from d5ray.distributed.wire.wire import PlainWire, TLSWire, Wire, keep_alive
from d5ray.errors import D5Error, PeerLost

VERSION = 2
ANYONE = -1  # a rank, where the responder is no member of the group
HANDSHAKE_SECONDS = 10.0  # that who connected may take to prove itself
LENGTH = struct.Struct("!I")
MOST_CLAIM_BYTES = 2**13
INTERNET = (socket.AF_INET, socket.AF_INET6)


class Refused(D5Error):
    """The other end of a connection did not prove that it belongs to this run, in the place it claims."""


class Claim(NamedTuple):
    """The initiator's claim: who it is, and to whom it wants to speak.

    purpose: of the connection, such as "gossip" or "rendezvous".
    label: of the group: its name and epoch; or of a service among all that ever were.
    rank, to: the initiator's rank in the group, and the responder's, or `ANYONE`.
    encrypted: whether what leaves a machine is encrypted; both ends must want the same.
    """

    purpose: str
    label: str
    rank: int
    to: int = ANYONE
    encrypted: bool = True


def initiate(
    connection: socket.socket,
    secret: Secret,
    claim: Claim,
    seconds: float,
    *,
    kept_seconds: float | None = None,
    apart: bool | None = None,
) -> Wire:
    """The wire to who answers at the other end, which has proved itself; the connection is the wire's then.

    seconds: in which all of this is done, and which later bound a wait. kept_seconds: for which the other
    host may be silent; None: as long. apart: whether what is sent leaves the machine; None: as the addresses
    say. Raises `Refused`, `OSError` or `PeerLost`; the connection is closed then.
    """
    try:
        if connection.family in INTERNET:
            keep_alive(connection, kept_seconds or seconds)
        leaves = leaves_machine(connection) if apart is None else apart
        unproved = secured(connection, secret, server_side=False)
    except OSError:  # the other end is gone already
        connection.close()
        raise
    with _talk(unproved, seconds) as talk:
        talk.say([VERSION, *claim, leaves])
        match talk.hear():
            case [str(refusal), bool(theirs)]:
                if refusal:
                    raise Refused(refusal)
            case _:
                raise Refused("who answers does not speak as this version of d5ray does")
        return talk.wire(seconds, protected=claim.encrypted and (leaves or theirs))


def respond(connection: ssl.SSLSocket, admit: Callable[[Claim], str], seconds: float) -> tuple[Claim, Wire]:
    """The claim of who has connected, which has proved itself, and the wire to it; as `initiate`.

    admit: why the claim cannot be met; empty if it can.
    """
    with _talk(connection, seconds) as talk:
        claim, theirs = claimed(talk.hear())
        leaves, refusal = leaves_machine(connection), admit(claim)
        talk.say([refusal, leaves])
        if refusal:
            raise Refused(refusal)
        return claim, talk.wire(seconds, protected=claim.encrypted and (leaves or theirs))


def secured(connection: socket.socket, secret: Secret, *, server_side: bool) -> ssl.SSLSocket:
    """The connection, over which nothing has been said, for TLS; it takes the place of the one given.

    Raises `OSError` if the other end is gone already; the connection is the caller's then.
    """
    context = contexts(secret)[server_side]
    connection.getpeername()  # `wrap_socket` would notice it later, and leave what it has made open
    return context.wrap_socket(connection, server_side=server_side, do_handshake_on_connect=False)


def claimed(words: Any) -> tuple[Claim, bool]:
    """The claim that somebody said, and whether what it sends leaves its machine; raises `Refused`."""
    match words:
        case [int(version), str(purpose), str(label), int(rank), int(to), bool(encrypted), bool(leaves)]:
            if version == VERSION:
                return Claim(purpose, label, rank, to, encrypted), leaves
    raise Refused("who connected does not speak as this version of d5ray does")


def framed(words: Any) -> bytes:
    """A message as it travels: its length, then JSON."""
    text = json.dumps(words).encode()
    return LENGTH.pack(len(text)) + text


def leaves_machine(connection: socket.socket) -> bool:
    """True if what is sent leaves this machine: between two ends of it only root could alter anything."""
    if connection.family not in INTERNET:
        return False
    here, there = (
        ipaddress.ip_address(end[0].partition("%")[0])
        for end in (connection.getsockname(), connection.getpeername())
    )
    return here != there and not (here.is_loopback and there.is_loopback)


@contextmanager
def _talk(connection: ssl.SSLSocket, seconds: float) -> "Iterator[_Talk]":
    """The words at the beginning of a connection, which is closed if they end in an error."""
    try:
        yield _Talk(connection, seconds)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        connection.close()
        raise PeerLost(None, "the connection was closed during the handshake") from None
    except ssl.SSLError as error:
        connection.close()
        raise Refused(f"the other end does not know this run's secret: {error.reason}") from None
    except BaseException:
        connection.close()
        raise


class _Talk:
    """Words over TLS, under one deadline for all of them."""

    def __init__(self, connection: ssl.SSLSocket, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._tls = connection
        self._left().do_handshake()

    def say(self, words: Any) -> None:
        self._left().sendall(framed(words))

    def hear(self) -> Any:
        (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
        if length > MOST_CLAIM_BYTES:
            raise Refused(f"a claim of {length:,} bytes came, and at most {MOST_CLAIM_BYTES:,} were expected")
        try:
            return json.loads(self._exactly(length))
        except (ValueError, RecursionError):
            raise Refused("the other end does not speak as this version of d5ray does") from None

    def wire(self, seconds: float, *, protected: bool) -> Wire:
        if protected:
            return TLSWire(self._tls, seconds)
        self._left().unwrap()
        return PlainWire(socket.socket(fileno=self._tls.detach()), seconds)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self._left().recv(size - len(found))
            if not piece:
                raise PeerLost(None, "the connection was closed during the handshake")
            found += piece
        return found

    def _left(self) -> ssl.SSLSocket:
        """The connection, with what is left of the time as the bound of its next wait."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the handshake took too long")
        self._tls.settimeout(left)
        return self._tls
