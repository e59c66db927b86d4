"""A slow network on this machine: hosts that are network namespaces, with links of a limited rate"""

import contextlib
import functools
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from d5ray.kits.laboratory.comparisons import processes

PREFIX = "d5ray-"
BURST_KB = 16.0  # that a link sends at once, or what it carries in a millisecond
DEVICE = "eth0"  # of a host
QUEUE = "50ms"  # that a link keeps waiting, before it drops


@final
@dataclass(frozen=True)
class Host:
    """A network namespace, reached from the other hosts at its address."""

    name: str
    address: str

    @property
    def prefix(self) -> list[str]:
        """The words that a command begins with to run on this host."""
        return ["ip", "netns", "exec", self.name]


@contextlib.contextmanager
def limited(hosts: int, megabits: float) -> Iterator[list[Host]]:
    """Hosts on one switch, whose links carry `megabits` (10⁶ bit/s) in each direction at the same time.

    The switch is a namespace too, so nothing of this machine's own network is touched. With the namespaces
    all is gone; those that a killed process has left are removed by the next one.
    """
    _remove_abandoned()
    switch = f"{PREFIX}{os.getpid()}-switch"
    burst = max(BURST_KB, megabits / 8)
    made = [Host(f"{PREFIX}{os.getpid()}-{rank}", f"10.0.0.{rank + 1}") for rank in range(hosts)]
    try:
        _run(f"ip netns add {switch}")
        _run(f"ip -n {switch} link add bridge type bridge")
        _run(f"ip -n {switch} link set bridge up")
        for rank, host in enumerate(made):
            port = f"port{rank}"
            _run(f"ip netns add {host.name}")
            _run(f"ip link add {DEVICE} netns {host.name} type veth peer name {port} netns {switch}")
            _run(f"ip -n {host.name} addr add {host.address}/24 dev {DEVICE}")
            _run(f"ip -n {host.name} link set lo up")
            _run(f"ip -n {host.name} link set {DEVICE} up")
            _run(f"ip -n {switch} link set {port} master bridge up")
            for space, device in ((host.name, DEVICE), (switch, port)):
                limit = f"tbf rate {megabits:g}mbit burst {burst:g}kb latency {QUEUE}"
                _run(f"tc -n {space} qdisc add dev {device} root {limit}")
        yield made
    finally:
        for name in (*(host.name for host in made), switch):
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                _run(f"ip netns del {name}")


def measured(work: Callable[[int], Any], folder: Path, hosts: list[Host], seconds: float) -> list[Any]:
    """work(rank) of a process on each host; see `processes.measured`."""

    def commands(folder: Path, ranks: int) -> list[processes.Command]:
        plain = processes.plain(folder, ranks)
        return [[*host.prefix, *command] for host, command in zip(hosts, plain, strict=True)]

    return processes.measured(work, folder, len(hosts), seconds, commands)


@functools.cache
def missing() -> str:
    """The tools that this machine lacks for such a network; empty if none. Makes one and removes it."""
    if platform.system() != "Linux":
        return "network namespaces need Linux: run it there"
    if os.geteuid() != 0:
        return "network namespaces and traffic shaping need root: run it as root, or in a virtual machine"
    lacking = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if lacking:
        return f"there is no {' and no '.join(lacking)}: install iproute2 (apt-get install iproute2)"
    try:
        with limited(1, 100.0):
            return ""
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip()
        return f"the kernel makes no network namespace with a limited link ({said}): run it elsewhere"


def _remove_abandoned() -> None:
    """Remove the namespaces of processes that are gone."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        name = line.split()[0] if line.split() else ""
        number = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and number.isdigit() and not Path(f"/proc/{number}").exists():
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                _run(f"ip netns del {name}")


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True, text=True, timeout=30)
