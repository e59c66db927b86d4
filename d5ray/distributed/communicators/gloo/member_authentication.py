"""The members of a gloo group prove to each other over their connections who they are, before all else"""

import ipaddress
from typing import TYPE_CHECKING

import numpy as np

from d5ray.distributed.authentication.envelopes import Envelope, Plain, Protected
from d5ray.distributed.authentication.handshake import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    PROOF_BYTES,
    Initiator,
    Responder,
)
from d5ray.distributed.authentication.session import TAG_BYTES, Forged, SessionKeys
from d5ray.distributed.group.group import Group
from d5ray.distributed.wire.proof import Claim, Refused

if TYPE_CHECKING:
    from d5ray.frameworks.torch.process_group import GlooGroup

HELLO, CHALLENGE, PROOF, ADMITTED = 3, 4, 5, 6  # tags of messages
ADMISSION = 3  # the stream of the last one


def introduced(mesh: "GlooGroup", group: Group, seconds: float) -> dict[int, Envelope]:
    """The envelopes of messages to and from each other member, by rank; all members call it at once.

    The lower rank of two begins. seconds: for each message. Raises `Refused` where one does not know the
    run's secret, or is not the member that it claims to be.
    """
    assert group.store is not None
    secret, rank = group.store.secret, group.rank
    lower, higher = range(rank), range(rank + 1, group.size)
    initiators = {
        other: Initiator(secret, Claim("gloo", group.label, rank, other), encrypted=group.encrypted)
        for other in higher
    }
    responders = {
        other: Responder(secret, "gloo", label=group.label, rank=rank, encrypted=group.encrypted)
        for other in lower
    }
    under_way = []  # messages that are being sent

    def send(message: bytes, to: int, tag: int) -> None:
        under_way.append(mesh.send(np.frombuffer(bytearray(message), np.uint8), to, tag))

    def received(size: int, source: int, tag: int) -> bytes:
        message = np.empty(size, np.uint8)
        mesh.receive(message, source, tag).wait(seconds)
        return message.tobytes()

    sessions: dict[int, SessionKeys] = {}
    for other, initiator in initiators.items():
        send(initiator.hello, other, HELLO)
    for other, responder in responders.items():
        send(responder.challenge(received(HELLO_BYTES, other, HELLO)), other, CHALLENGE)
        if responder.rank != other:
            raise Refused(f"the connection of rank {other} is used by rank {responder.rank}")
    for other, initiator in initiators.items():
        proof, sessions[other] = initiator.prove(received(CHALLENGE_BYTES, other, CHALLENGE))
        send(proof, other, PROOF)
    for other, responder in responders.items():
        sessions[other] = responder.admit(received(PROOF_BYTES, other, PROOF))
        send(sessions[other].sender(ADMISSION).seal(b""), other, ADMITTED)
    for other in initiators:
        try:
            sessions[other].receiver(ADMISSION).open(received(TAG_BYTES, other, ADMITTED))
        except Forged:
            raise Refused(
                f"rank {other} has other keys: either all members of {group.label!r} encrypt, or none"
            ) from None
    for work in under_way:
        work.wait(seconds)
    return {
        other: Protected(session) if leaves_machine(group, other) else Plain()
        for other, session in sessions.items()
    }


def leaves_machine(group: Group, other: int) -> bool:
    """True if what this member sends to another one can be seen or altered outside the machine."""
    if group.nodes and group.nodes[group.rank] == group.nodes[other]:
        return False
    try:
        return not ipaddress.ip_address(group.host).is_loopback
    except ValueError:  # a name
        return group.host != "localhost"
