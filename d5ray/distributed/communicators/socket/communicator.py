"""Agents on processors, on one node or several: messages over sockets, between two members at a time"""

from collections.abc import Sequence
from typing import final

import numpy as np

from d5ray.distributed.communicators.agreement.call_signature import packed
from d5ray.distributed.communicators.point_to_point.collectives import Flat, Pieces
from d5ray.distributed.communicators.point_to_point.communicator import OngoingCollective, PointToPoint
from d5ray.distributed.communicators.socket.header import differ, dispute
from d5ray.distributed.communicators.socket.mesh import connect_members
from d5ray.distributed.communicators.socket.transfer import (
    BrokenTransfer,
    DisputedCall,
    Link,
    PairExchange,
    exchange_all,
)
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.membership import Membership
from d5ray.distributed.group.waits import PresentWait, declared
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import D5Error, PeerLost


@final
class Sockets(PointToPoint):
    """A connection between every two members, over which they compare what they call before they trust it.

    Within a machine bytes travel as they are; between machines over TLS, unless the group is not encrypted.
    Whoever waits is woken by a broken connection when the other one is gone or gives up, and by its own
    membership when a member is lost or fails elsewhere. All then raise the same error.
    """

    backend = "socket"

    def __init__(self, group: Group, topology: Topology) -> None:
        super().__init__(group, topology)
        self._membership = Membership(group)
        self._membership.waits = self.told_waits
        self._ended: D5Error | None = None  # why this member takes no further part
        # a transfer under way: to and from whom, in what
        self._busy: tuple[Pieces, Pieces, OngoingCollective] | None = None
        try:
            wires = connect_members(self._membership)
        except D5Error as error:
            trouble = self._membership.explain(error)
            self._membership.leave()
            raise trouble.with_traceback(None) from None
        self._links = {rank: Link(rank, wire) for rank, wire in wires.items()}
        self._membership.on_failure(self._wake)

    def _close(self) -> None:
        self._membership.leave()
        self._end(PeerLost(self.rank, "this member has left the group"))

    def _transfer(self, outgoing: Pieces, incoming: Pieces, conversation: OngoingCollective) -> None:
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        self._busy = outgoing, incoming, conversation
        try:
            pairs = self._pairs(outgoing, incoming, conversation)
            exchange_all(pairs, self.group.timeout_seconds, self._look_beside)
            return
        except BrokenTransfer as broken:
            certain = broken.timed_out
            trouble: D5Error = PeerLost(broken.peers[0], broken.words)
            if broken.timed_out and self._ended is None:
                trouble = self._membership.silent(broken.peers, conversation.call)
        except DisputedCall as disputed:
            mine, theirs = disputed.mine, disputed.theirs
            trouble, certain = dispute(self.rank, mine, disputed.peer, theirs, dict(self._calls)), True
            if theirs.number > mine.number:
                trouble = self._membership.explain(trouble)
        finally:
            self._busy = None
        raise self._give_up(trouble, certain).with_traceback(None)

    def _pairs(
        self, outgoing: Pieces, incoming: Pieces, conversation: OngoingCollective
    ) -> list[PairExchange]:
        given = {rank: _bytes(flat) for flat, rank in outgoing}
        wanted = {rank: _bytes(flat) for flat, rank in incoming}
        number, call = conversation.number, packed(conversation.call)
        return [
            PairExchange(self._links[rank], number, call, given.get(rank), wanted.get(rank))
            for rank in dict.fromkeys((*given, *wanted))
        ]

    def _look_beside(self, pairs: Sequence[PairExchange]) -> None:
        """Raise `DisputedCall` where a member that nothing is exchanged with calls another collective."""
        busy = {pair.peer for pair in pairs}
        for link in self._links.values():
            if link.peer not in busy and (theirs := link.next_header()) and differ(pairs[0].mine, theirs):
                raise DisputedCall(link.peer, pairs[0].mine, theirs)

    def _waits(self) -> list[PresentWait]:
        waiting = None
        if (busy := self._busy) is not None:
            outgoing, incoming, conversation = busy
            peers = dict.fromkeys(rank for _, rank in (*outgoing, *incoming))
            waiting = tuple(peers), conversation.call
        return declared(self.group, waiting) + self._membership.own_waits()

    # -- trouble ---------------------------------------------------------------------------------------

    def _give_up(self, trouble: D5Error, certain: bool) -> D5Error:
        """Close the connections, so that nobody waits for this member; gives the cause, the same on all."""
        if self._ended is None:
            if certain:
                self._membership.fail(trouble)
            cause = self._membership.explain(trouble)
            if cause is trouble:
                self._membership.fail(trouble)
                cause = self._membership.failure or trouble
            self._ended = self._ended or cause
        self._end(self._ended)  # perhaps closed from another thread
        return self._ended

    def _end(self, why: D5Error) -> None:
        self._ended = self._ended or why
        self._wake()
        if self._busy is None:  # otherwise by the thread that is woken
            for link in self._links.values():
                link.wire.close()

    def _wake(self) -> None:
        """Break all waits: of this member, and of those that wait for it."""
        for link in self._links.values():
            link.wire.shut()


def _bytes(flat: Flat) -> memoryview:
    seen: memoryview = flat.view(np.uint8).data
    return seen
