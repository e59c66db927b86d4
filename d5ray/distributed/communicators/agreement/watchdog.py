"""Compares what members call when they wait long: a group that disagrees fails instead of hanging"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import final

from d5ray.distributed.communicators.agreement.call_signature import Signature, disagreement
from d5ray.distributed.group.membership import Membership
from d5ray.distributed.group.waits import PresentWait, declared
from d5ray.errors import D5Error, PeerLost

SUSPICIOUS_SECONDS = 1.0  # of waiting, after which a member tells what it waits in
LOOK_SECONDS = 0.25


@final
class Watchdog:
    """A guard for backends whose transport waits for ever when members call different things.

    Members that wait longer than a second in a collective tell the others which one it is, by way of the
    rendezvous. Whoever sees a different one fails the group, and calls `stop` with the error: that must end
    this member's wait. Waiting for a member that computes is no disagreement.
    """

    def __init__(self, membership: Membership, stop: Callable[[D5Error], None]) -> None:
        self._membership = membership
        self._rank, self._size = membership.group.rank, membership.group.size
        self._stop = stop
        self._index = 0  # of the collective, the same on all members
        self._waiting: tuple[int, Signature, float] | None = None
        self._exchanging: tuple[float, Sequence[int], Signature] | None = None
        self._told = 0
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="d5ray-watchdog", daemon=True).start()

    @contextmanager
    def watching(self, call: Signature) -> Iterator[None]:
        """A context: this member is in this collective while the block runs."""
        self._index += 1
        self._waiting = (self._index, call, time.monotonic())
        try:
            yield
        finally:
            self._waiting = None

    @contextmanager
    def exchanging(self, call: Signature, members: Sequence[int]) -> Iterator[None]:
        """A context: this member exchanges with these alone while the block runs; nothing is compared."""
        self._exchanging = time.monotonic(), members, call
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
            _, call, since = collective
            waiting = since, [rank for rank in range(self._size) if rank != self._rank], call
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
        index, call, _ = self._waiting
        self._told = index
        self._tell(index, call)
        calls = {rank: self._heard(index, rank, seconds) for rank in range(self._size) if rank != self._rank}
        self._judge({**calls, self._rank: call})

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            waiting = self._waiting
            if waiting and time.monotonic() - waiting[2] > SUSPICIOUS_SECONDS and waiting[0] > self._told:
                self._told = waiting[0]
                with suppress(D5Error):  # raised where the operation waits
                    self._compare(*waiting[:2])

    def _compare(self, index: int, call: Signature) -> None:
        self._tell(index, call)
        calls = {self._rank: call}
        for rank in range(self._size):
            with suppress(PeerLost):  # it does not wait, or not yet: then it will see this member's
                if rank != self._rank:
                    calls[rank] = self._heard(index, rank, LOOK_SECONDS)
        self._judge(calls)

    def _tell(self, index: int, call: Signature) -> None:
        self._membership.put(f"waits in/{index}/{self._rank}", call.pack())

    def _heard(self, index: int, rank: int, seconds: float) -> Signature:
        return Signature.unpack(self._membership.take(f"waits in/{index}/{rank}", seconds))

    def _judge(self, calls: dict[int, Signature]) -> None:
        if len(set(calls.values())) > 1:
            error = disagreement(calls)
            self._membership.fail(error)
            self._stop(error)
            raise error
