"""Handshake of two members over gloo: headers and eager messages of one step, so that no wait is in vain"""

from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.distributed.communicators.gloo.eager import INLINE_BYTES, EagerMessages
from d5ray.distributed.communicators.socket.header import NONE, Header

if TYPE_CHECKING:
    from d5ray.frameworks.torch.process_group import Work

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
END, RECEIPT = 1, 2  # tags


@final
class Handshake:
    """A header each way, a small payload after it or a large one beside it; then the steps in this order.

    Two things in gloo shape this. A message longer than what its receiver waits for ends the receiver's
    process; so a large payload has a tag that only the same call with as many bytes has, and counts only
    when the headers agree. And a wait for a message that is under way goes on when the other process has
    died; so what is waited for is a byte that follows the payload, and a byte that says that it has
    arrived.
    """

    def __init__(
        self, eager: EagerMessages, number: int, call: bytes, given: Bytes | None, wanted: Bytes | None
    ) -> None:
        """number: of collectives begun; call: what is called, packed."""
        sizes = (NONE if given is None else given.size, NONE if wanted is None else wanted.size)
        self.mine = Header(number, call, *sizes)
        self.peer = eager.peer
        self._eager = eager
        self._wanted = wanted
        self._received: list[Work] = []  # in the order in which they are waited for
        self._confirmed: Work | None = None
        self._sent: list[Work] = []
        if wanted is not None and wanted.size > INLINE_BYTES:
            self._receive(wanted)
        large = given is not None and given.size > INLINE_BYTES
        self._sent.append(eager.post(self.mine.pack(), None if large else given))
        if given is not None and large:
            self._send(given)

    def _receive(self, wanted: Bytes) -> None:
        """Begin to receive a large payload."""
        mesh, envelope = self._eager.mesh, self._eager.envelope
        self._body, self._end = envelope.incoming(wanted), np.empty(envelope.end_bytes, np.uint8)
        payload = mesh.receive(self._body, self.peer, self.mine.payload_tag(wanted.size))
        self._received += [mesh.receive(self._end, self.peer, END), payload]

    def _send(self, given: Bytes) -> None:
        """Begin to send a large payload."""
        mesh, envelope = self._eager.mesh, self._eager.envelope
        self._sent.append(mesh.send(envelope.outgoing(given), self.peer, self.mine.payload_tag(given.size)))
        self._sent.append(mesh.send(envelope.end(given), self.peer, END))
        self._receipt = np.empty(envelope.end_bytes, np.uint8)
        self._confirmed = mesh.receive(self._receipt, self.peer, RECEIPT)

    def refusal(self) -> Header | None:
        """Wait for the other member's header, and its small payload; gives a header that does not fit."""
        words, rest = self._eager.next()
        if words != self.mine.answer():
            return Header.unpack(words)
        if self._wanted is not None and self._wanted.size <= INLINE_BYTES:
            self._wanted[:] = self._eager.envelope.payload(rest, self._wanted.size)
        self._eager.listen()
        return None

    def take(self) -> None:
        """Wait for a large payload, and confirm it."""
        if self._received:
            for work in self._received:
                work.wait()
            assert self._wanted is not None
            envelope = self._eager.envelope
            envelope.accept(self._body, self._end, self._wanted)
            self._sent.append(self._eager.mesh.send(envelope.receipt(), self.peer, RECEIPT))

    def finish(self) -> None:
        """Wait until the other member has everything."""
        if self._confirmed is not None:
            self._confirmed.wait()
            self._eager.envelope.confirm(self._receipt)
        for work in self._sent:
            work.wait()

    def drop(self) -> None:
        """Give up what is under way."""
        for work in (*self._received, self._confirmed, *self._sent):
            if work is not None:
                work.drop()
