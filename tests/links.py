"""A link of a host that delays and loses frames, where the kernel has no netem: a program between two cables

It hands frames on from one network device to the other, both ways. A line `SECONDS SHARE` on its standard
input says how long each takes from then on, and which share of them is lost; it ends with its input.
"""

import array
import fcntl
import heapq
import random
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tests.hosts import REPOSITORY, Host, ip

SIOCETHTOOL = 0x8946
OFFLOADS = (0x17, 0x1F, 0x24, 0x2C)  # ETHTOOL_STXCSUM, STSO, SGSO, SGRO
ETH_P_ALL = 3
OUTGOING = 4  # PACKET_OUTGOING: what this machine sends itself
SEED = 20260101


@dataclass(frozen=True)
class Link:
    """The way to a host, which a program makes worse."""

    process: "subprocess.Popen[str]"

    def worsen(self, delay_seconds: float, lost_share: float) -> None:
        """Let every frame take so long, one way, and lose this share of them; 0, 0: a good link again."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{delay_seconds} {lost_share}\n")
        self.process.stdin.flush()


@contextmanager
def link(host: Host) -> Iterator[Link]:
    """The way to this host goes through a program; both ends compute sums and cut segments themselves."""
    near, far = f"{host.link}a", f"{host.link}b"
    ip("link", "add", near, "type", "veth", "peer", "name", far)
    program = None
    try:
        ip("link", "set", far, "master", host.bridge, "up")
        ip("link", "set", near, "up")
        _offloads_off(far)
        ip("link", "set", host.link, "nomaster")
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.links", host.link, near],
            cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        yield Link(program)
    finally:
        if program is not None:
            program.kill()
            program.communicate()
        with suppress(subprocess.CalledProcessError):
            ip("link", "del", near)
        with suppress(subprocess.CalledProcessError):
            ip("link", "set", host.link, "master", host.bridge)


def without_offloads(host: Host, device: str = "eth0") -> None:
    """Let a host send frames as a wire has them: of its size, with their sums."""
    command = [sys.executable, "-m", "tests.links", device]
    subprocess.run(["ip", "netns", "exec", host.name, *command], cwd=REPOSITORY, check=True)


def _offloads_off(device: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in OFFLOADS:
            value = array.array("B", struct.pack("II", command, 0))
            where, _ = value.buffer_info()
            fcntl.ioctl(any_socket, SIOCETHTOOL, struct.pack("16sP", device.encode(), where))


def _forward(first: str, second: str) -> None:
    """Hand frames on until standard input ends."""
    ends = []
    for device in (first, second):
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        end.bind((device, 0))
        end.setblocking(False)
        ends.append(end)
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    chance = random.Random(SEED)
    waiting: list[tuple[float, int, socket.socket, bytes]] = []
    delay = lost = 0.0
    count = 0
    print("ready", flush=True)  # noqa: T201 - a program's output
    while True:
        left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([*ends, sys.stdin], [], [], left)
        if sys.stdin in ready:
            line = sys.stdin.readline()
            if not line:
                return
            delay, lost = map(float, line.split())
        for end in ends:
            while end in ready:
                try:
                    frame, (_, _, kind, *_) = end.recvfrom(1 << 16)
                except BlockingIOError:
                    break
                if kind != OUTGOING and chance.random() >= lost:
                    count += 1
                    heapq.heappush(waiting, (time.monotonic() + delay, count, other[end], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, to, frame = heapq.heappop(waiting)
            with suppress(OSError):  # as a queue that is full
                to.send(frame)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        _offloads_off(sys.argv[1])
    else:
        _forward(*sys.argv[1:3])
