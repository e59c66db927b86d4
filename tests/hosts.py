"""Hosts for tests: network namespaces of this machine, each with an address of its own, on one bridge"""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import patience

REPOSITORY = Path(__file__).parent.parent


@dataclass(frozen=True)
class Host:
    """A network namespace."""

    name: str
    address: str
    link: str  # this machine's end of its cable
    bridge: str  # where that is plugged in

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """A Python program on this host."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        )

    def unplug(self) -> None:
        """Nothing gets to this host or from it any more."""
        ip("link", "set", self.link, "down")

    def plug(self) -> None:
        """What was unplugged is connected again."""
        ip("link", "set", self.link, "up")


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Hosts that reach one another; skips the test where namespaces cannot be made. All is removed after."""
    tag = uuid.uuid4().hex[:5]
    bridge, made = f"d5b{tag}", []
    if not shutil.which("ip"):
        pytest.skip("needs `ip` (Debian's iproute2)")
    try:
        try:
            ip("link", "add", bridge, "type", "bridge")
            ip("link", "set", bridge, "up")
            ip("addr", "add", "10.213.77.254/24", "dev", bridge)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")
        for number in range(1, count + 1):
            host = Host(f"d5n{tag}{number}", f"10.213.77.{number}", f"d5v{tag}{number}", bridge)
            made.append(host)
            ip("netns", "add", host.name)
            ip("link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.name)
            ip("link", "set", host.link, "master", bridge, "up")
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
            ip("-n", host.name, "link", "set", "eth0", "up")
            ip("-n", host.name, "link", "set", "lo", "up")
        yield made
    finally:
        for host in made:
            with suppress(subprocess.CalledProcessError):
                ip("netns", "del", host.name)
            with suppress(subprocess.CalledProcessError):
                ip("link", "del", host.link)
        with suppress(subprocess.CalledProcessError):
            ip("link", "del", bridge)


def ip(*arguments: str) -> None:
    """Run `ip`, which must succeed."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=patience(10))
