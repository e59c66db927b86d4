"""The connections of a group: one between every two members, which have proved themselves"""

import json
import threading
import time
from contextlib import suppress
from socket import create_connection
from typing import final

from d5ray.distributed.group.group import Group
from d5ray.distributed.group.membership import Membership
from d5ray.distributed.wire.listener import Listener
from d5ray.distributed.wire.proof import HANDSHAKE_SECONDS, Claim, Refused, initiate
from d5ray.distributed.wire.wire import Wire
from d5ray.errors import D5Error, PeerLost

PURPOSE = "group"
LOOK_SECONDS = 0.2  # after which who waits for connections looks whether the group goes on


def connect_members(membership: Membership) -> dict[int, Wire]:
    """The wires to all other members, by rank; all call it at once, and of two the lower rank connects.

    When all are there nobody listens any more.
    """
    group = membership.group
    assert group.store is not None
    arrivals = _Arrivals(group)
    listener = Listener(
        arrivals.serve,
        arrivals.admit,
        host=group.host,
        secret=group.store.secret,
        seconds=group.timeout_seconds,
    )
    try:
        own = json.dumps([group.host, listener.port]).encode()
        places = membership.gather("listens at", own)
        for rank in range(group.rank + 1, group.size):
            arrivals.serve(Claim("", "", rank), _connected(group, rank, *json.loads(places[rank])))
        arrivals.wait(membership)
        membership.gather("connected", b"")  # so that none is let go which another one waits for
        return arrivals.taken()
    finally:
        listener.close()
        arrivals.close()


def _connected(group: Group, to: int, host: str, port: int) -> Wire:
    """A wire to a member of a higher rank."""
    assert group.store is not None
    claim = Claim(PURPOSE, group.label, group.rank, to, group.encrypted)
    kept = group.timeout_seconds
    seconds = min(kept, HANDSHAKE_SECONDS)
    try:
        connection = create_connection((host, port), timeout=seconds)
        wire = initiate(connection, group.store.secret, claim, seconds, kept_seconds=kept)
    except Refused as error:
        raise D5Error(f"rank {to} of {group.label!r} at {host}:{port} is none of this run: {error}") from None
    except (OSError, PeerLost) as error:
        raise PeerLost(to, f"{host}:{port} does not answer: {error}") from None
    return wire


@final
class _Arrivals:
    """The wires of members that are there, by rank."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._news = threading.Condition()
        self._wires: dict[int, Wire] = {}
        self._closed = False

    def admit(self, claim: Claim) -> str:
        """Why a claim cannot be met: it is for another group, rank or purpose, or wants it otherwise."""
        group = self._group
        if (claim.purpose, claim.label, claim.to) != (PURPOSE, group.label, group.rank):
            return f"this is rank {group.rank} of {group.label!r}"
        if claim.rank not in range(group.rank) or claim.rank in self._wires:
            return f"a connection of rank {claim.rank} is not waited for"
        if claim.encrypted != group.encrypted:
            return f"either all members of {group.label!r} encrypt, or none"
        return ""

    def serve(self, claim: Claim, wire: Wire) -> None:
        """Keep a wire."""
        wire.bound(self._group.timeout_seconds)
        with self._news:
            if self._closed or claim.rank in self._wires:
                wire.close()
                return
            self._wires[claim.rank] = wire
            self._news.notify_all()

    def wait(self, membership: Membership) -> None:
        """Wait until all members are there; raises why the group cannot go on, or `PeerLost`."""
        deadline = time.monotonic() + self._group.timeout_seconds
        others = set(range(self._group.size)) - {self._group.rank}
        with self._news:
            while missing := others - self._wires.keys():
                if time.monotonic() > deadline:
                    seconds = self._group.timeout_seconds
                    raise PeerLost(min(missing), f"it did not connect within {seconds:g} s")
                membership.check(*missing)
                self._news.wait(LOOK_SECONDS)

    def taken(self) -> dict[int, Wire]:
        """The wires, which are the caller's from now on."""
        with self._news:
            wires, self._wires = self._wires, {}
            return wires

    def close(self) -> None:
        """Keep no further wire, and end those that nobody has taken."""
        with self._news:
            self._closed = True
            for wire in self._wires.values():
                with suppress(OSError):
                    wire.close()
            self._wires = {}
