"""Small messages over gloo that come without being asked for: one row of them from every other member"""

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.distributed.authentication.envelopes import Envelope
from d5ray.distributed.communicators.gloo.header import ALARM, GREETING_BYTES
from d5ray.errors import PeerLost

if TYPE_CHECKING:
    from d5ray.frameworks.torch.process_group import GlooGroup, Work

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
TAG = 0
INLINE_BYTES = 65_536  # the largest payload in a letter: what a socket mostly takes as a whole


@final
class Letters:
    """A letter is a greeting or an alarm, and a small payload.

    The receive for the next letter of each member is posted before it is needed: the sender then writes it
    into its socket right away, which saves the way there and back that gloo otherwise takes to learn that
    somebody waits.
    """

    def __init__(self, mesh: "GlooGroup", envelopes: Mapping[int, Envelope], broken: type[Exception]) -> None:
        """envelopes: how letters travel to and from each other member, by rank."""
        self._mesh = mesh
        self._envelopes = envelopes
        self._broken = broken
        self._posting = threading.Lock()  # letters leave in the order in which they are made
        longest = GREETING_BYTES + INLINE_BYTES
        self._heard: dict[int, Bytes] = {
            other: np.empty(longest + envelope.margin, np.uint8) for other, envelope in envelopes.items()
        }
        self._coming: dict[int, Work] = {}
        for other in envelopes:
            self._listen(other)

    def post(self, words: bytes, to: int, payload: Bytes | None = None) -> "Work":
        """Send a letter of `GREETING_BYTES` words, and at most `INLINE_BYTES`."""
        with self._posting:
            return self._mesh.send(self._envelopes[to].short(words, payload), to, TAG)

    def next(self, source: int) -> tuple[bytes, Bytes]:
        """The next message of a member: its words, and the rest, in which `payload` finds its payload."""
        coming = self._coming.pop(source, None) or self._mesh.receive(self._heard[source], source, TAG)
        coming.wait()
        words, rest = self._envelopes[source].read(self._heard[source], GREETING_BYTES)
        if words == ALARM:
            raise PeerLost(source, "it cannot go on")
        return words, rest

    def payload(self, source: int, rest: Bytes, size: int) -> Bytes:
        """The payload (size,) in the rest of a letter; it is copied before `done`."""
        return self._envelopes[source].payload(rest, size)

    def done(self, source: int) -> None:
        """The member's letter is read."""
        self._listen(source)

    def drop(self) -> None:
        """Receive no more messages."""
        for work in self._coming.values():
            work.drop()

    def _listen(self, source: int) -> None:
        with suppress(self._broken):  # of one that may have left: to be seen when it is needed
            self._coming[source] = self._mesh.receive(self._heard[source], source, TAG)
