"""Ray clusters over hosts with addresses of their own: a node in each namespace, and drivers in the first"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import marked, wait_until
from tests.hosts import REPOSITORY, Host, hosts, ip
from tests.patience import patience

PORT = 6379  # of the head: a namespace has ports of its own
STARTED = "Ray runtime started"  # which `ray start` says
START_SECONDS = 60.0
END_SECONDS = 10.0  # for nodes to end by themselves
TRIALS = 3  # Ray itself waits 30 s for a node, also on a machine that has much else to do
STORE_BYTES = "100000000"
OF_RUNS = re.compile(r"^ray::(?!IDLE|DashboardAgent|RuntimeEnvAgent)|cut_off\.py")  # command lines
NAMED = 'hostname "$0" && exec "$@"'  # a host has a name of its own as well


@dataclass(frozen=True)
class Driver:
    """A program on the first host, which says JSON, a line at a time."""

    process: "subprocess.Popen[str]"

    def said(self) -> dict[str, Any]:
        """Its next line."""
        assert self.process.stdout is not None and self.process.stderr is not None
        while line := self.process.stdout.readline():
            if line.startswith("{"):
                return dict(json.loads(line))
        raise AssertionError(self.process.stderr.read()[-4000:])

    def finished(self, seconds: float = 120.0) -> dict[str, Any]:
        """Its last line, when it has ended well."""
        out, err = self.process.communicate(timeout=patience(seconds))
        lines = [line for line in out.splitlines() if line.startswith("{")]
        assert self.process.returncode == 0 and lines, f"{self.process.returncode}\n{out}\n{err[-4000:]}"
        return dict(json.loads(lines[-1]))


@dataclass
class Cluster:
    """A Ray cluster of hosts, the first of which is its head; nodes have the numbers of their hosts."""

    hosts: list[Host]
    folder: str
    tag: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    raylets: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    drivers: list[Driver] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Where the head answers."""
        return f"{self.hosts[0].address}:{PORT}"

    def start(self, number: int, cpus: int = 1) -> None:
        """A node on this host; returns when the cluster has it."""
        host = self.hosts[number]
        head = ("--head", f"--port={PORT}", "--include-dashboard=false")
        role = head if number == 0 else (f"--address={self.address}",)
        command = [
            str(Path(sys.executable).parent / "ray"), "start", *role, "--block", f"--num-cpus={cpus}",
            f"--node-ip-address={host.address}", f"--object-store-memory={STORE_BYTES}",
            "--disable-usage-stats",
        ]  # fmt: skip
        log = Path(self.folder) / f"node{number}.log"
        for _ in range(TRIALS):
            with log.open("wb") as output:
                self.raylets[number] = self._on(number, command, stdout=output, stderr=output)
            wait_until(lambda: STARTED in log.read_text() or self._over(number), START_SECONDS, log.read_text)
            if not self._over(number):
                return
        raise AssertionError(log.read_text())

    def _over(self, number: int) -> bool:
        """True if the node of a host has ended."""
        return self.raylets[number].poll() is not None

    def drive(self, *arguments: str, inside: Sequence[str] = ()) -> Driver:
        """A Python program on the first host; inside: the command that starts it, if any."""
        process = self._on(
            0,
            [*inside, sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.drivers.append(Driver(process))
        return self.drivers[-1]

    def routes(self, number: int) -> str:
        """Those of a host that lead nowhere."""
        found = subprocess.run(
            ["ip", "-n", self.hosts[number].name, "route"], capture_output=True, text=True, check=True
        ).stdout
        return "".join(line for line in found.splitlines() if line.startswith(("unreachable", "blackhole")))

    def kill(self, number: int, *, unplugged: bool = False) -> None:
        """SIGKILL to all that runs on this host; unplugged: nothing says so to the others."""
        if unplugged:
            self.hosts[number].unplug()
        for pid in marked(self._mark(number)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.raylets.pop(number).wait()

    def left(self) -> list[str]:
        """Actors and programs of runs that still run, where no driver does."""
        found = [said for number in range(len(self.hosts)) for said in marked(self._mark(number)).values()]
        return [said for said in found if OF_RUNS.search(said)]

    def end(self) -> None:
        """End what runs on the hosts, by its ids."""
        for driver in self.drivers:
            driver.process.kill()
            driver.process.communicate()
        for process in self.raylets.values():
            process.send_signal(signal.SIGTERM)
        for process in self.raylets.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=END_SECONDS)
        for number in range(len(self.hosts)):
            for pid in marked(self._mark(number)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self.raylets.values():
            process.wait()

    def _mark(self, number: int) -> str:
        return f"D5RAY_TEST_HOST={self.tag}-{number}"

    def _on(self, number: int, command: list[str], **streams: Any) -> "subprocess.Popen[Any]":
        name, _, value = self._mark(number).partition("=")
        inside = ["ip", "netns", "exec", self.hosts[number].name, "unshare", "--uts", "sh", "-c", NAMED]
        own = {name: value, "PYTHONPATH": str(REPOSITORY), "TMPDIR": self.folder}
        return subprocess.Popen(
            [*inside, f"host{number}", *command],
            env=os.environ | own | {"RAY_AUTH_MODE": "disabled"},
            start_new_session=True,
            **streams,
        )


@contextmanager
def cluster(count: int, nodes: int | None = None) -> Iterator[Cluster]:
    """So many hosts, and a node on each, or on the first `nodes`; skips where namespaces cannot be made."""
    with hosts(count) as there, tempfile.TemporaryDirectory(prefix="d5t-", dir="/tmp") as folder:
        for host in there:  # by which Ray finds out what address it has
            ip("-n", host.name, "route", "add", "default", "via", "10.213.77.254")
        made = Cluster(there, folder)
        try:
            for number in range(count if nodes is None else nodes):
                made.start(number)
            yield made
        finally:
            made.end()
