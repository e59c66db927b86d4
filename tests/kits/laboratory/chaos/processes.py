"""The process of one trial: started in a session of its own, bounded, and what it leaves behind"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.conftest import marked, temporary_folders

LOOK_SECONDS = 0.2
END_SECONDS = 10.0  # for what a run started to be gone after it
ACTORS = ("TrainingAgent", "ParameterServer", "MetricsAggregator", "NodeMonitor", "FaultInjector")


@dataclass(frozen=True)
class Ended:
    """The end of a trial's process. code: None where it did not come in time; left: what stayed behind."""

    code: int | None
    err: str
    seconds: float
    left: tuple[str, ...]

    @property
    def last(self) -> str:
        """The last line of its errors."""
        return self.err.strip().rpartition("\n")[2]


def ended(arguments: Sequence[str], home: Path, seconds: float, address: str | None) -> Ended:
    """Run `d5ray` with these arguments, for these seconds at most; nothing of it is left afterwards."""
    mark, begin = f"D5RAY_CHAOS={uuid.uuid4().hex}", time.monotonic()
    with tempfile.TemporaryFile("w+") as err:  # no pipe, which what it leaves behind would keep open
        process = subprocess.Popen(
            [sys.executable, "-m", "d5ray", *arguments],
            env=os.environ | {"D5RAY_HOME": str(home)} | dict([mark.split("=")]),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True,
        )  # fmt: skip
        seen = {process.pid}
        try:
            while process.poll() is None and time.monotonic() < begin + seconds:
                seen |= marked(mark).keys()
                time.sleep(LOOK_SECONDS)
            taken, code = time.monotonic() - begin, process.poll()
            bound, left = time.monotonic() + END_SECONDS, list[str]()
            while code is not None and (left := _left(process.pid, mark, seen, address)):
                if time.monotonic() > bound:
                    break
                time.sleep(LOOK_SECONDS)
        finally:
            _end(process, mark)
        err.seek(0)
        return Ended(code, err.read(), taken, tuple(left))


def _left(pid: int, mark: str, seen: set[int], address: str | None) -> list[str]:
    """What is still there of the process, of those that carry its mark, and of those seen with it."""
    processes = marked(mark) | _actors_at(address)
    found = [f"process {each} ({command[:80]})" for each, command in processes.items()]
    found += map(str, temporary_folders(pid))
    for path in Path("/dev/shm").glob("d5ray-*-*-*"):
        with suppress(ValueError):
            if int(path.name.split("-")[1]) in seen:
                found.append(str(path))
    return found


def _actors_at(address: str | None) -> dict[int, str]:
    """The processes of d5ray's actors at a cluster of this machine, which no run of a trial is to leave."""
    found: dict[int, str] = {}
    for process in psutil.process_iter(["name", "cmdline"]) if address is not None else ():
        if process.info["name"] == "raylet" and any(
            address in word for word in process.info["cmdline"] or ()
        ):
            for child in process.children(recursive=True):
                with suppress(psutil.Error):
                    title = " ".join(child.cmdline())
                    if title.startswith(tuple(f"ray::{actor}" for actor in ACTORS)):
                        found[child.pid] = title
    return found


def _end(process: "subprocess.Popen[bytes]", mark: str) -> None:
    """End the process, first so that it can end what it started, and then all that carries its mark."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=END_SECONDS)
    for pid in marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()
