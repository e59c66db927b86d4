"""Transfer between members in one step: a header each way, and the payloads behind them"""

import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import final

from d5ray.distributed.communicators.socket.header import HEADER_BYTES, NONE, Header
from d5ray.distributed.wire.wire import Buffer, Wire
from d5ray.errors import PeerLost

LOOK_SECONDS = 0.25  # of waiting, after which a member looks at those that it does not wait for
INLINE_BYTES = 65_536  # the largest payload that is sent and received in one piece with its header


class BrokenTransfer(Exception):
    """A step ended early: connections to these members broke, or nothing came of them for too long."""

    def __init__(self, peers: Sequence[int], words: str, *, timed_out: bool) -> None:
        super().__init__(words)
        self.peers, self.words, self.timed_out = peers, words, timed_out


class DisputedCall(Exception):
    """Another member calls something else."""

    def __init__(self, peer: int, mine: Header, theirs: Header) -> None:
        super().__init__()
        self.peer, self.mine, self.theirs = peer, mine, theirs


@final
class PairExchange:
    """One step with one other member, under way."""

    def __init__(
        self, link: "Link", number: int, call: bytes, given: memoryview | None, wanted: memoryview | None
    ) -> None:
        """number: of collectives begun; call: what is called, packed. given, wanted: bytes."""
        self.wire, self.peer, self._scratch = link.wire, link.peer, link.scratch
        early, link.early = link.early, 0
        self.mine = Header(
            number, call, NONE if given is None else len(given), NONE if wanted is None else len(wanted)
        )
        self._answer = self.mine.answer()
        self._outgoing: list[Buffer] = [self.mine.pack()]
        if given:
            if len(given) <= INLINE_BYTES:
                self._outgoing[0] += given
            else:
                self._outgoing.append(given)
        self._wanted = wanted or memoryview(bytearray())
        self._inline = len(self._wanted) <= INLINE_BYTES
        self._into = self._scratch[early : HEADER_BYTES + (len(self._wanted) if self._inline else 0)]
        self._missing = HEADER_BYTES - early  # bytes of the header that have not come
        if not self._missing:
            self._compare()

    @property
    def sent(self) -> bool:
        """True if the system has all that is sent."""
        return not self._outgoing

    @property
    def done(self) -> bool:
        """True if all has come that is received."""
        return not self._into

    def push(self) -> int:
        """Send what the system takes now; how many bytes those were."""
        moved = 0
        while self._outgoing:
            piece = self._outgoing[0]
            count = self.wire.put(piece)
            moved += count
            if count < len(piece):
                self._outgoing[0] = memoryview(piece)[count:]
                break
            del self._outgoing[0]
        return moved

    def pull(self, receive: Callable[[Buffer], int]) -> int:
        """Receive once, by `get` or `take` of the wire; how many bytes those were."""
        count = receive(self._into)
        self._into = self._into[count:]
        if self._missing > 0:
            self._missing -= count
            if self._missing <= 0:
                self._compare()
        if self._inline and not self._into:
            self._wanted[:] = self._scratch[HEADER_BYTES : HEADER_BYTES + len(self._wanted)]
        return count

    def _compare(self) -> None:
        """The header has come: what is behind it is trusted if it is the answer."""
        words = bytes(self._scratch[:HEADER_BYTES])
        if words != self._answer:
            raise DisputedCall(self.peer, self.mine, Header.unpack(words))
        if not self._inline:
            self._into = self._wanted


@final
class Link:
    """The wire to one other member, with memory for what comes with a header."""

    def __init__(self, peer: int, wire: Wire) -> None:
        self.peer, self.wire = peer, wire
        self.scratch = memoryview(bytearray(HEADER_BYTES + INLINE_BYTES))
        self.early = 0  # bytes of a header in it that came before it was waited for
        wire.bound(LOOK_SECONDS)

    def next_header(self) -> Header | None:
        """The header that the other member has sent already, of an exchange that is not under way here."""
        with suppress(OSError, PeerLost):  # for whoever exchanges with it
            if self.early < HEADER_BYTES:
                self.early += self.wire.get(self.scratch[self.early : HEADER_BYTES])
        return Header.unpack(bytes(self.scratch[:HEADER_BYTES])) if self.early == HEADER_BYTES else None


def exchange_all(
    pairs: Sequence[PairExchange], seconds: float, look: Callable[[Sequence[PairExchange]], None]
) -> None:
    """Send and receive all, in whatever order it comes. Raises `BrokenTransfer` or `DisputedCall`.

    seconds: for which nothing may move. look: called with the pairs after every `LOOK_SECONDS` of waiting.
    """
    pair, left = pairs[0], seconds
    try:
        for pair in pairs:
            pair.push()
        while not all(pair.sent for pair in pairs):
            moved = 0
            for pair in pairs:
                if not pair.sent:
                    moved += pair.push()
                if not pair.done:
                    moved += pair.pull(pair.wire.get)
            if moved or _await(pairs):
                left = seconds
            else:
                left -= LOOK_SECONDS
                _look_beside(pairs, left, look)
        for pair in pairs:
            left = seconds
            while not pair.done:
                try:
                    pair.pull(pair.wire.take)
                except TimeoutError:
                    left -= LOOK_SECONDS
                    _look_beside(pairs, left, look)
    except TimeoutError:
        late = [pair.peer for pair in pairs if not (pair.done and pair.sent)]
        raise BrokenTransfer(late, f"nothing moved for {seconds:g} s", timed_out=True) from None
    except (OSError, PeerLost) as error:
        words = error.detail if isinstance(error, PeerLost) else str(error)
        raise BrokenTransfer([pair.peer], words, timed_out=False) from None


def _look_beside(
    pairs: Sequence[PairExchange], left: float, look: Callable[[Sequence[PairExchange]], None]
) -> None:
    """Look at other members, of which three may each wait for another one; or raise when no time is left."""
    if left <= 0:
        raise TimeoutError
    look(pairs)


def _await(pairs: Sequence[PairExchange]) -> bool:
    """Wait until something can be sent or received; False if nothing can after `LOOK_SECONDS`."""
    poller = select.poll()
    for pair in pairs:
        event = (0 if pair.sent else select.POLLOUT) | (0 if pair.done else select.POLLIN)
        if event:
            poller.register(pair.wire.fileno(), event)
    return bool(poller.poll(1000 * LOOK_SECONDS))
