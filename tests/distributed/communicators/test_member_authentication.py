"""Claims about members' connections: they prove who they are, and nothing that leaves a machine is altered"""

import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.socket.transfer import INLINE_BYTES
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Complete, Ring
from d5ray.distributed.wire import proof
from tests.distributed.forming import Former, on_all, read, written
from tests.hosts import hosts

SIZES = [
    1,
    INLINE_BYTES // 4,
    INLINE_BYTES // 4 + 1,
    200_000,
]  # elements, with their header and after it
SECRET_WORDS = b"the parameters of a run: "


@pytest.fixture
def between_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of one process protect their messages as members on several machines do."""
    monkeypatch.setattr(proof, "leaves_machine", lambda connection: True)


# -- protected messages ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("between_machines")
@pytest.mark.parametrize("members", [2, 3])
def test_protected_messages_give_what_plain_ones_give(groups: Former, members: int) -> None:
    """Sums, neighbours' means and messages of every size, against NumPy, one after the other."""
    communicators = groups.form("socket", Ring(members), encrypted=True)
    assert all(link.wire.protected for member in communicators for link in member._links.values())  # type: ignore[attr-defined]
    weights = Ring(members).weights()
    for elements in SIZES:
        rows = np.random.default_rng([members, elements]).integers(-99, 99, (members, elements)) * 1.0

        def work(member: Communicator, rows: Any = rows) -> list[Any]:
            total, mean = rows[member.rank].copy(), rows[member.rank].copy()
            member.allreduce(total)
            member.neighbor_average(mean)
            return [total, mean, member.all_gather_messages(rows[member.rank].view(np.uint8))]

        for rank, (total, mean, messages) in enumerate(on_all(communicators, work)):
            assert np.array_equal(total, rows.sum(0))
            np.testing.assert_allclose(mean, weights[rank] @ rows, rtol=1e-12, atol=1e-12)
            assert np.array_equal(np.stack(messages).view(rows.dtype), rows)


@pytest.mark.full
def test_what_crosses_a_network_is_readable_unless_it_is_encrypted() -> None:
    """A listener on the bridge between two hosts sees the words of an array; encrypted, nothing of them."""
    with hosts(2) as places:
        rendezvous = Rendezvous("10.213.77.254")
        try:
            for encrypted in (False, True):
                arguments = [__file__, written(rendezvous.address), str(int(encrypted))]
                with listening(places[0].link) as heard:
                    processes = [
                        place.start(*arguments, str(rank), place.address) for rank, place in enumerate(places)
                    ]
                    said = [process.communicate(timeout=60) for process in processes]
                assert [json.loads(out) for out, _ in said] == [[6.0, 6.0], [6.0, 6.0]], said
                assert (SECRET_WORDS in heard[0]) is not encrypted
                assert len(heard[0]) > 2 * 8 * SIZES[-1]
        finally:
            rendezvous.close()


@contextmanager
def listening(interface: str) -> Iterator[list[bytes]]:
    """Everything that passes an interface during the block, in one piece afterwards."""
    heard: list[bytes] = []
    packets: list[bytes] = []
    ended = threading.Event()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as tap:
        tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**26)
        tap.bind((interface, 0))
        tap.settimeout(0.2)

        def listen() -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    packets.append(tap.recv(2**16))

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield heard
        finally:
            time.sleep(0.2)
            ended.set()
            thread.join()
            heard.append(b"".join(packets))


def member(store: str, encrypted: str, rank: str, address: str) -> None:
    """What runs on a host: sums arrays that hold words, with their header and after it."""
    nodes = ("a", "b")
    group = Group(
        "words", int(encrypted), int(rank), 2, read(store), address, 30.0, nodes, encrypted=encrypted == "1"
    )
    communicator = backends.join("socket", group, Complete(2))
    found = []
    for elements in (100, SIZES[-1]):
        array = np.full(elements, 2.0 + 2 * int(rank))
        communicator.allreduce(array)
        found.append(array[-1])
        words = np.frombuffer(SECRET_WORDS * (elements * 8 // len(SECRET_WORDS)), np.uint8)
        communicator.all_gather_messages(words)
    communicator.close()
    print(json.dumps(found))  # noqa: T201 - a program's output


# -- strangers ---------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("noise", [0, 200], ids=["silent", "noisy"])
def test_a_stranger_who_takes_the_connections_of_a_group_that_forms_does_not_end_it(
    groups: Former, noise: int
) -> None:
    """It finds their ports and speaks first, as a member would: groups form, and their sums are right."""
    known, held, over = listening_ports(), list[socket.socket](), threading.Event()

    def press() -> None:
        while not over.is_set():
            for port in listening_ports() - known:
                known.add(port)
                for number in range(6):
                    with suppress(OSError):
                        held.append(socket.create_connection(("127.0.0.1", port), timeout=0.2))
                        held[-1].sendall(struct.pack("<q", number) + os.urandom(noise))

    pressing = threading.Thread(target=press)
    pressing.start()
    try:
        for _ in range(100):
            formed = groups.form("socket", 3)
            assert on_all(formed, lambda member: summed(member, 10)) == [6.0] * 3
            for each in formed:
                each.close()
            if len(held) > 60:
                break
        assert held
    finally:
        over.set()
        pressing.join()
        for stranger in held:
            stranger.close()


def summed(member: Communicator, elements: int) -> float:
    """The first element of the sum of 1, 2, 3, …"""
    array = np.full(elements, member.rank + 1.0)
    member.allreduce(array)
    return float(array[0])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nobody_connects_to_a_group_that_has_formed(groups: Former) -> None:
    """The ports at which members listened for each other are closed; the members go on."""
    before = listening_ports()
    communicators = groups.form("socket", 3)
    assert listening_ports() == before
    assert on_all(communicators, lambda member: summed(member, 10**5)) == [6.0] * 3


def listening_ports() -> set[int]:
    """Those of this process's own sockets."""
    own = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            own.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return {int(words[1].split(":")[1], 16) for words in lines if words[3] == "0A" and words[9] in own}


if __name__ == "__main__":
    member(*sys.argv[1:])
