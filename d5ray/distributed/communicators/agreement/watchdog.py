"""Compares what members call when they wait long: a group that disagrees fails instead of hanging"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import final

from d5ray.distributed.communicators.agreement.call_signature import Signature, disagreement
from d5ray.distributed.group.membership import Membership
from d5ray.distributed.group.waits import PresentWait, declared
from d5ray.errors import D5Error, PeerLost

SUSPICIOUS_SECONDS = 1.0  # of waiting, after which a member tells what it waits in
LOOK_SECONDS = 0.25


@final
@dataclass
class _Collective:
    """A collective that this member is in."""

    index: int  # the same on all members
    call: Signature
    since: float
    due: float  # when it is compared next


@final
class Watchdog:
    """A guard for backends whose transport waits for ever when members call different things.

    Members that wait longer than a second in a collective tell the others which one it is, by way of the
    rendezvous, and compare it with what those tell: after 1, 2, 4, … s, since news may come late. Whoever
    sees a different one fails the group, and the failure of the membership must end the wait of every
    member, of those too that have not compared. Waiting for a member that computes is no disagreement.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._rank, self._size = membership.group.rank, membership.group.size
        self._index = 0  # of the last collective
        self._waiting: _Collective | None = None
        self._exchanging: tuple[Sequence[int], Signature] | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="d5ray-watchdog", daemon=True).start()

    @contextmanager
    def watching(self, call: Signature) -> Iterator[None]:
        """A context: this member is in this collective while the block runs."""
        self._index += 1
        now = time.monotonic()
        self._waiting = _Collective(self._index, call, now, now + SUSPICIOUS_SECONDS)
        try:
            yield
        finally:
            self._waiting = None

    @contextmanager
    def exchanging(self, call: Signature, members: Sequence[int]) -> Iterator[None]:
        """A context: this member exchanges with these alone while the block runs; nothing is compared."""
        self._exchanging = members, call
        try:
            yield
        finally:
            self._exchanging = None

    def waits(self) -> list[PresentWait]:
        """The wait of this member as it lasts now; called from another thread.

        In a collective it is for all others, though some of them may have come: they wait as well.
        """
        waiting = self._exchanging
        if (collective := self._waiting) is not None:
            others = [rank for rank in range(self._size) if rank != self._rank]
            waiting = others, collective.call
        return declared(self._membership.group, waiting)

    def close(self) -> None:
        """End the thread that watches."""
        self._closed.set()

    def agree(self, seconds: float) -> None:
        """Compare the collective that this member is in with every other's, before data moves.

        Who does not compare it too, because it knows the call, tells it after a second of waiting. Raises
        the disagreement, or `PeerLost` where a member does not come within `seconds`.
        """
        assert self._waiting is not None
        self._waiting.due = float("inf")
        self._compare(self._waiting, seconds)

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            now, waiting = time.monotonic(), self._waiting
            if waiting is not None and now > waiting.due:
                waiting.due = 2 * now - waiting.since
                with suppress(D5Error):  # raised where the operation waits
                    self._compare(waiting)

    def _compare(self, waiting: _Collective, seconds: float | None = None) -> None:
        """Tell the others this collective, and raise if theirs is another one.

        seconds: for which each must answer. None: who does not answer does not wait, or not yet.
        """
        index, calls = waiting.index, {self._rank: waiting.call}
        self._membership.put(f"waits in/{index}/{self._rank}", waiting.call.pack())
        for rank in range(self._size):
            if rank != self._rank:
                with suppress(*((PeerLost,) if seconds is None else ())):
                    heard = self._membership.take(f"waits in/{index}/{rank}", seconds or LOOK_SECONDS)
                    calls[rank] = Signature.unpack(heard)
        if len(set(calls.values())) > 1:
            error = disagreement(calls)
            self._membership.fail(error)
            raise error
