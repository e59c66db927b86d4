"""Processes that do not belong to a run: of another user, and between two ends of a connection"""

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, final

import psutil

from d5ray.distributed.wire.certificate import contexts
from d5ray.distributed.wire.proof import VERSION, Claim, framed
from d5ray.distributed.wire.secret import Secret
from tests.distributed.elsewhere import Elsewhere, elsewhere

ANOTHER_USER = 65534
UNIX = Path("/proc/net/unix")
Place = tuple[str, Any]  # "tcp" and (host, port), or "unix" and a name
ALERT_BYTES = 64  # at most, of TLS, which says why it ends


@final
class Initiator:
    """The messages of who connects, as bytes: TLS by hand."""

    def __init__(self, secret: Secret, claim: Claim) -> None:
        self._claim = claim
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = contexts(secret)[0].wrap_bio(self._in, self._out)
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        self.hello: bytes = self._out.read()

    def prove(self, challenge: bytes) -> bytes:
        """The proof and the claim, for what came as the answer to the hello."""
        self._in.write(challenge)
        self._tls.do_handshake()
        self._tls.write(framed([VERSION, *self._claim, False]))
        return self._out.read()


def challenge_bytes() -> int:
    """The bytes of the answer that every hello gets: the same for each run."""
    secret = Secret.new()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(Initiator(secret, Claim("x", "x", 0)).hello)
    with suppress(ssl.SSLWantReadError):
        contexts(secret)[1].wrap_bio(incoming, outgoing, server_side=True).do_handshake()
    return len(outgoing.read())


CHALLENGE_BYTES = challenge_bytes()
HELLO_BYTES = len(Initiator(Secret.new(), Claim("x", "x", 0)).hello)
PROOF_BYTES = 500  # about


def places_of(pid: int) -> list[Place]:
    """Where a process listens, as the system shows it to everybody."""
    listening = [
        ("tcp", (each.laddr.ip, each.laddr.port))
        for each in psutil.Process(pid).net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
    ]
    names = [line.split()[-1] for line in UNIX.read_text().splitlines() if f"@d5ray-{pid}-" in line]
    return [*listening, *(("unix", "\0" + name.removeprefix("@")) for name in set(names))]


def connected(place: Place) -> socket.socket:
    """A connection to a place."""
    kind, where = place
    made = socket.socket(socket.AF_INET if kind == "tcp" else socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(2.0)
    made.connect(where)
    if kind == "tcp":
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def words_of(public: str) -> list[bytes]:
    """What a stranger says who knows the protocol, and the run's name, but not its secret."""
    hello = Initiator(Secret.new(), Claim("rendezvous", f"{public}/0", 1)).hello
    return [
        b"",
        b"\0" * HELLO_BYTES,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        hello,
        hello[:-1],
        hello + os.urandom(PROOF_BYTES),
        b"\xff" * 100_000,
    ]


def attacks(pipe: Any, public: str, pid: int) -> None:
    """In a process of another user: everything that can be tried against the sockets, memory and files of a
    process, until told to stop. Says what it learnt or could do, which must be nothing."""
    os.setgroups([])
    os.setgid(ANOTHER_USER)
    os.setuid(ANOTHER_USER)
    places: list[Place] = pipe.recv()
    found: set[str] = set()
    rounds = {str(place): 0 for place in places}
    held: list[socket.socket] = []
    pipe.send("ready")
    number = 0
    while not pipe.poll(0):
        number += 1
        for place in places:
            words = words_of(public)
            found |= _spoken(place, words[number % len(words)])
            rounds[str(place)] += 1
            with suppress(OSError):
                held.append(connected(place))  # and says nothing
        for one in held[:-300]:
            one.close()
        held = held[-300:]
        found |= _looked(pid) if number % 10 == 1 else set()
    pipe.recv()
    pipe.send((sorted(found), min(rounds.values(), default=0)))
    pipe.recv()


def _spoken(place: Place, words: bytes) -> set[str]:
    """What is heard for these words beyond the answer that any hello gets, and why TLS ends."""
    heard = b""
    with suppress(OSError), connected(place) as connection:
        if place[0] == "unix":
            with Path("/dev/null").open("rb") as null:
                socket.send_fds(connection, [words or b"\0"], [null.fileno()])
        else:
            connection.sendall(words)
        connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(4096):
            heard += piece
    known = CHALLENGE_BYTES + ALERT_BYTES if place[0] == "tcp" else 0  # the other end's user is not known
    return {f"{place} says {len(heard)} bytes"} if len(heard) > known else set()


def _looked(pid: int) -> set[str]:
    """What of a process's memory, files and shared memory can be opened."""
    paths = [Path(f"/proc/{pid}/{name}") for name in ("mem", "environ", "maps", "fd/0")]
    shared = [path for path in Path("/dev/shm").iterdir() if f"d5ray-{pid}-" in path.name]
    temporary = [path for path in Path("/tmp").iterdir() if f"d5ray-{pid}" in path.name]
    found = set()
    for path in [*paths, *shared]:
        for mode in (os.O_RDONLY, os.O_RDWR):
            with suppress(OSError):
                os.close(os.open(path, mode))
                found.add(f"{path} can be opened")
    for path in shared:
        with suppress(OSError):
            path.unlink()
            found.add(f"{path} can be removed")
    for path in temporary:
        with suppress(OSError):
            found |= {f"{each} can be seen" for each in path.iterdir()}
    with suppress(OSError):  # one that looks as if a member had made it
        trap = Path(f"/dev/shm/d5ray-{pid}-1-{0:016x}")
        trap.symlink_to("/etc/passwd")
        time.sleep(0.01)
        trap.unlink()
    return found


@contextmanager
def another_user(public: str, pid: int) -> Iterator[Elsewhere]:
    """A process of another user that is about to attack one that it knows by its number and name."""
    with elsewhere(attacks, public, pid) as attacker:
        yield attacker


@final
class Between:
    """Stands between clients and a service over TCP: passes on what both say, keeps it, and may alter it."""

    def __init__(self, host: str, port: int, alter: Callable[[bytes, bool], bytes] | None = None) -> None:
        """alter: of a piece, and whether it is a client's, what is passed on instead."""
        self.heard: list[bytearray] = []
        self.clients: list[bytes] = []
        self._to, self._alter = (host, port), alter
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock, self._closed = threading.Lock(), False
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """End all connections, those that are made in this moment too."""
        with self._lock:
            self._closed = True
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _kept(self, end: socket.socket) -> socket.socket:
        with self._lock:
            self._open.append(end)
            if self._closed:
                end.close()
        return end

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client = self._kept(self._listener.accept()[0])
                service = self._kept(socket.create_connection(self._to))
                for source, target, own in ((client, service, True), (service, client, False)):
                    kept = bytearray()
                    self.heard.append(kept)
                    threading.Thread(
                        target=self._pass_on, args=(source, target, own, kept), daemon=True
                    ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, own: bool, kept: bytearray) -> None:
        with suppress(OSError):
            while piece := source.recv(2**16):
                kept += piece
                target.sendall(piece if self._alter is None else self._alter(piece, own))
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
