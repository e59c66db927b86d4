"""Handshake of two members over gloo: headers and eager messages of one step, so that no wait is in vain"""

from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.distributed.authentication.envelopes import Envelope
from d5ray.distributed.communicators.gloo.eager import INLINE_BYTES, Letters
from d5ray.distributed.communicators.gloo.header import NONE, Greeting, payload_tag

if TYPE_CHECKING:
    from d5ray.frameworks.torch.process_group import GlooGroup, Work

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
END, RECEIPT = 1, 2  # tags


@final
class Crossing:
    """A greeting each way, with a small payload in it or a large one beside it; then the steps in this order.

    Two things in gloo shape this. A message longer than what its receiver waits for ends the receiver's
    process; so a large payload has a tag that only the same call with as many bytes has, and counts only
    when the greetings agree. And a wait for a message that is under way goes on when the other process has
    died; so what is waited for is a byte that follows the payload, and a byte that says that it has
    arrived.
    """

    def __init__(
        self,
        mesh: "GlooGroup",
        letters: Letters,
        peer: int,
        call: tuple[int, bytes],  # the number of collectives begun, and what is called
        given: Bytes | None,
        wanted: Bytes | None,
        envelope: Envelope,
    ) -> None:
        self.mine = Greeting(
            *call, NONE if given is None else given.size, NONE if wanted is None else wanted.size
        )
        self.peer = peer
        self._mesh = mesh
        self._letters = letters
        self._wanted = wanted
        self._envelope = envelope
        self._received: list[Work] = []  # in the order in which they are waited for
        self._confirmed: Work | None = None
        self._sent: list[Work] = []
        self._begin(given, wanted)

    def _begin(self, given: Bytes | None, wanted: Bytes | None) -> None:
        mesh, peer, mine, envelope = self._mesh, self.peer, self.mine, self._envelope
        if wanted is not None and wanted.size > INLINE_BYTES:
            self._body, self._end = envelope.incoming(wanted), np.empty(envelope.end_bytes, np.uint8)
            payload = mesh.receive(self._body, peer, payload_tag(mine.number, mine.call, wanted.size))
            self._received += [mesh.receive(self._end, peer, END), payload]
        if given is None or given.size <= INLINE_BYTES:
            self._sent.append(self._letters.post(mine.pack(), peer, given))
            return
        self._sent.append(self._letters.post(mine.pack(), peer))
        tag = payload_tag(mine.number, mine.call, given.size)
        self._sent.append(mesh.send(envelope.outgoing(given), peer, tag))
        self._sent.append(mesh.send(envelope.end(given), peer, END))
        self._receipt = np.empty(envelope.end_bytes, np.uint8)
        self._confirmed = mesh.receive(self._receipt, peer, RECEIPT)

    def greet(self) -> Greeting | None:
        """Wait for the other member's header, with its small payload; gives a header that does not fit."""
        words, rest = self._letters.next(self.peer)
        if words != self.mine.answer():
            return Greeting.unpack(words)
        if self._wanted is not None and self._wanted.size <= INLINE_BYTES:
            self._wanted[:] = self._letters.payload(self.peer, rest, self._wanted.size)
        self._letters.done(self.peer)
        return None

    def take(self) -> None:
        """Wait for a large payload, and confirm it."""
        if self._received:
            for work in self._received:
                work.wait()
            assert self._wanted is not None
            self._envelope.accept(self._body, self._end, self._wanted)
            self._sent.append(self._mesh.send(self._envelope.receipt(), self.peer, RECEIPT))

    def settle(self) -> None:
        """Wait until the other member has everything."""
        if self._confirmed is not None:
            self._confirmed.wait()
            self._envelope.confirm(self._receipt)
        for work in self._sent:
            work.wait()

    def drop(self) -> None:
        """Give up what is under way."""
        for work in (*self._received, self._confirmed, *self._sent):
            if work is not None:
                work.drop()
