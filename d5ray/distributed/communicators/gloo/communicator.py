"""Agents on processors, on one node or several: messages over torch.distributed's gloo"""

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.distributed.authentication.envelopes import Envelope
from d5ray.distributed.communicators.gloo.eager import EagerMessages
from d5ray.distributed.communicators.gloo.header_exchange import Handshake
from d5ray.distributed.communicators.gloo.member_authentication import introduced
from d5ray.distributed.communicators.point_to_point.collectives import Flat, Pieces
from d5ray.distributed.communicators.point_to_point.communicator import Conversation, PointToPoint
from d5ray.distributed.communicators.socket.header import ALARM, dispute, packed
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.membership import Membership, Prefixed
from d5ray.distributed.group.waits import PresentWait, declared
from d5ray.distributed.topologies.topology import Topology
from d5ray.distributed.wire.proof import Refused
from d5ray.errors import ConfigurationError, D5Error, PeerLost

if TYPE_CHECKING:
    from d5ray.frameworks.torch.process_group import GlooGroup, Work

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
ATTEMPTS = 5  # to connect without a stranger in between
PATIENCE_SECONDS = 3.0  # for an answer over a new connection; twice as long with each attempt


@final
class Gloo(PointToPoint):
    """One gloo process group per (group name, epoch), in which two members exchange by a `Handshake`.

    Whoever waits is woken: by a broken connection when the other one is gone or gives up, and by an alarm
    from everyone when a member is lost or fails elsewhere. All then raise the same error.
    """

    backend = "gloo"

    def __init__(self, group: Group, topology: Topology) -> None:
        super().__init__(group, topology)
        from d5ray.frameworks.torch import process_group  # noqa: PLC0415 - imports torch

        self._torch = process_group
        self._broken = process_group.Broken
        self._membership = Membership(group)
        self._membership.waits = self.told_waits
        self._ended: D5Error | None = None  # why this member takes no further part
        # a transfer under way: to and from whom, in what
        self._busy: tuple[Pieces, Pieces, Conversation] | None = None
        self._alarms: list[Work] = []
        self._lock = threading.Lock()  # of the mesh: alarms come from another thread
        self._mesh, envelopes = self._connect()
        self._eager = {
            peer: EagerMessages(self._mesh, peer, envelope, self._broken)
            for peer, envelope in envelopes.items()
        }
        self._membership.on_failure(self._alarm)

    def _connect(self) -> tuple["GlooGroup", dict[int, Envelope]]:
        """The connections, of which each has proved to belong to a member, and how messages go over them."""
        try:
            for attempt in range(ATTEMPTS):
                # gloo takes a connection by its number, from whoever comes first: they come within
                # milliseconds. A stranger that takes a member's place spoils the attempt for all.
                self._membership.gather(f"connecting/{attempt}", b"")
                found, refused = self._connected(attempt)
                reasons = self._membership.gather(f"introduced/{attempt}", refused.encode())
                if found is not None and not any(reasons):
                    found[0].shut()
                    return found
                if found is not None:
                    found[0].close()
            first = next(filter(None, reasons)).decode()
            trouble = D5Error(
                f"the members of {self.group.label!r} cannot connect and prove who they are to each "
                f"other, in {ATTEMPTS} attempts: {first}"
            )
        except D5Error as error:
            trouble = error
        trouble = self._membership.explain(trouble)
        self._membership.leave()
        raise trouble.with_traceback(None)

    def _connected(self, attempt: int) -> tuple[tuple["GlooGroup", dict[int, Envelope]] | None, str]:
        """Connections to all others, if all of them are the members'; otherwise the reason."""
        group, values = self.group, Prefixed(self._membership, f"gloo/{attempt}")
        seconds = min(PATIENCE_SECONDS * 2**attempt, group.timeout_seconds)
        mesh = None
        try:
            mesh = self._torch.GlooGroup(
                values, self.rank, self.size, group.host, group.timeout_seconds, seconds
            )
            return (mesh, introduced(mesh, group, seconds)), ""
        except Refused as error:
            reason = str(error)
        except self._broken as broken:
            reason = broken.words
        if mesh is not None:
            mesh.close()
        return None, reason

    def _close(self) -> None:
        self._membership.leave()
        if self._busy:  # in another thread, from which the connections cannot be taken away
            self._alarm()
        self._end(PeerLost(self.rank, "this member has left the group"))

    def _transfer(self, outgoing: Pieces, incoming: Pieces, conversation: Conversation) -> None:
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        handshakes: list[Handshake] = []
        self._busy = outgoing, incoming, conversation
        try:
            self._shake_hands(handshakes, outgoing, incoming, conversation)
            return
        except self._broken as broken:
            certain = broken.timed_out and broken.peer is not None
            trouble: D5Error = PeerLost(broken.peer, broken.words)
            if broken.timed_out and broken.peer is not None:
                trouble = self._membership.silent([broken.peer], conversation.call)
        except D5Error as error:
            trouble, certain = error.with_traceback(None), isinstance(error, ConfigurationError)
        finally:
            self._busy = None
        for handshake in handshakes:  # which would keep the connections open
            handshake.drop()
        raise self._give_up(trouble, certain).with_traceback(None)

    def _shake_hands(
        self, handshakes: list[Handshake], outgoing: Pieces, incoming: Pieces, conversation: Conversation
    ) -> None:
        given = {rank: _bytes(flat) for flat, rank in outgoing}
        wanted = {rank: _bytes(flat) for flat, rank in incoming}
        number, call = conversation.number, packed(conversation.call)
        for rank in dict.fromkeys((*given, *wanted)):
            handshakes.append(Handshake(self._eager[rank], number, call, given.get(rank), wanted.get(rank)))
        for handshake in handshakes:
            theirs = handshake.refusal()
            if theirs is not None:
                error = dispute(self.rank, handshake.mine, handshake.peer, theirs, dict(self._calls))
                raise self._membership.explain(error) if theirs.number > number else error
        for handshake in handshakes:
            handshake.take()
        for handshake in handshakes:
            handshake.finish()

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
        if self._ended is not None:  # closed from another thread
            return self._ended
        if certain:
            self._membership.fail(trouble)
        cause = self._membership.explain(trouble)
        if cause is trouble:
            self._membership.fail(trouble)
            cause = self._membership.failure or trouble
        self._end(cause)
        return cause

    def _end(self, why: D5Error) -> None:
        with self._lock:
            self._ended = self._ended or why
            for work in self._alarms:
                work.drop()
            for eager in self._eager.values():
                eager.drop()
            self._mesh.close()

    def _alarm(self) -> None:
        """Wake the others that wait for this member, now or later."""
        with self._lock:
            for eager in self._eager.values():
                with suppress(self._broken):
                    self._alarms.append(eager.post(ALARM))


def _bytes(flat: Flat) -> Bytes:
    """The array's bytes; PyTorch knows no read-only memory, so what is read-only is copied."""
    seen: Bytes = flat.view(np.uint8)
    return seen if seen.flags.writeable else seen.copy()
