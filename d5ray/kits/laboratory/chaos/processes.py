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
from typing import Final, final

import psutil

MARK: Final = "D5RAY_CHAOS"
LOOK_SECONDS: Final = 0.2
END_SECONDS: Final = 10.0  # for what a run started to be gone after it
ACTORS: Final = ("TrainingAgent", "ParameterServer", "MetricsAggregator", "NodeMonitor", "FaultInjector")


@final
@dataclass(frozen=True)
class Ended:
    """The end of a trial's process. code: None where it did not come in time; left: what stayed behind."""

    code: int | None
    out: str
    err: str
    seconds: float
    left: tuple[str, ...]


def ended(arguments: Sequence[str], home: Path, seconds: float, address: str | None) -> Ended:
    """Run `d5ray` with these arguments, for these seconds at most; nothing of it is left afterwards."""
    mark = uuid.uuid4().hex
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "d5ray", *arguments],
            env=os.environ | {MARK: mark, "D5RAY_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        seen = {process.pid}
        try:
            while process.poll() is None and time.monotonic() < begin + seconds:
                seen |= _marked(mark)
                time.sleep(LOOK_SECONDS)
            taken, code = time.monotonic() - begin, process.poll()
            left = () if code is None else _left(process.pid, mark, seen, address)
        finally:
            _end(process, mark)
        for file in (out, err):
            file.seek(0)
        return Ended(code, out.read(), err.read(), taken, left)


def _left(pid: int, mark: str, seen: set[int], address: str | None) -> tuple[str, ...]:
    """What is still there some seconds after the end."""
    bound = time.monotonic() + END_SECONDS
    while (found := _remains(pid, mark, seen, address)) and time.monotonic() < bound:
        time.sleep(LOOK_SECONDS)
    return tuple(found)


def _remains(pid: int, mark: str, seen: set[int], address: str | None) -> list[str]:
    found = [f"process {each} ({_named(each)})" for each in sorted(_marked(mark))]
    found += [f"process {each} ({_named(each)})" for each in _actors_at(address)]
    found += [str(path) for path in Path("/tmp").glob(f"d5ray-{pid}-*")]
    for path in Path("/dev/shm").glob("d5ray-*-*-*"):
        with suppress(ValueError):
            if int(path.name.split("-")[1]) in seen:
                found.append(str(path))
    return found


def _marked(mark: str) -> set[int]:
    """The processes that carry the mark in their environment."""
    found, wanted = set(), f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
    return found


def _actors_at(address: str | None) -> list[int]:
    """The processes of d5ray's actors at a cluster of this machine, which no run of a trial is to leave."""
    found: list[int] = []
    if address is None:
        return found
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "raylet" and any(
            address in word for word in process.info["cmdline"] or ()
        ):
            for child in process.children(recursive=True):
                title = _named(child.pid)
                if title.startswith(tuple(f"ray::{actor}" for actor in ACTORS)):
                    found.append(child.pid)
    return found


def _named(pid: int) -> str:
    with suppress(psutil.Error):
        return " ".join(psutil.Process(pid).cmdline())[:80]
    return "gone"


def _end(process: "subprocess.Popen[bytes]", mark: str) -> None:
    """End the process, first so that it can end what it started, and then all that carries its mark."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=END_SECONDS)
    for pid in _marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()
