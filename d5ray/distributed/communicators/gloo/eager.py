"""Eager messages over gloo: small ones that a member takes without being asked, from one other member"""

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.distributed.authentication.envelopes import Envelope
from d5ray.distributed.communicators.socket.header import ALARM, HEADER_BYTES
from d5ray.errors import PeerLost

if TYPE_CHECKING:
    from d5ray.frameworks.torch.process_group import GlooGroup, Work

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
TAG = 0
INLINE_BYTES = 65_536  # the largest payload in an eager message: what a socket mostly takes as a whole


@final
class EagerMessages:
    """The eager messages to and from one other member: each is a header or an alarm, and a small payload.

    The receive for the next message is posted before it is needed: the sender then writes it into its
    socket right away, which saves the way there and back that gloo otherwise takes to learn that somebody
    waits.
    """

    def __init__(self, mesh: "GlooGroup", peer: int, envelope: Envelope, broken: type[Exception]) -> None:
        """envelope: how messages travel to and from the peer."""
        self.mesh, self.peer, self.envelope = mesh, peer, envelope
        self._broken = broken
        self._posting = threading.Lock()  # messages leave in the order in which they are made
        self._received: Bytes = np.empty(HEADER_BYTES + INLINE_BYTES + envelope.margin, np.uint8)
        self._coming: Work | None = None
        self.listen()

    def post(self, header: bytes, payload: Bytes | None = None) -> "Work":
        """Send a message of `HEADER_BYTES`, and a payload of at most `INLINE_BYTES`."""
        with self._posting:
            return self.mesh.send(self.envelope.short(header, payload), self.peer, TAG)

    def next(self) -> tuple[bytes, Bytes]:
        """The next message: its header, and the rest, in which `Envelope.payload` finds its payload.

        It is overwritten after `listen`.
        """
        coming = self._coming or self.mesh.receive(self._received, self.peer, TAG)
        self._coming = None
        coming.wait()
        header, rest = self.envelope.read(self._received, HEADER_BYTES)
        if header == ALARM:
            raise PeerLost(self.peer, "it cannot go on")
        return header, rest

    def listen(self) -> None:
        """Post the receive for the next message: the one before is read."""
        with suppress(self._broken):  # the peer may have left: to be seen when it is needed
            self._coming = self.mesh.receive(self._received, self.peer, TAG)

    def drop(self) -> None:
        """Receive no more messages."""
        if self._coming is not None:
            self._coming.drop()
