"""A run that goes on without the terminal: as a process of its own, or as a job of a Ray cluster"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import psutil
import pyarrow as pa

from d5ray.errors import AgentError, D5Error
from d5ray.metrics.record.artifacts import LOG
from d5ray.metrics.record.folders import home, make_folder
from d5ray.metrics.record.store import Run, runs_root
from d5ray.recipes.engine import library

OPTION: Final = "--detach"
START_SECONDS: Final = 300.0  # for a run to begin, or to say why it does not
LOOK_SECONDS: Final = 0.1
LAST_LINES: Final = 5  # of the log, where no run began


@final
@dataclass(frozen=True)
class Detached:
    """A run that was left to itself. run: its name, empty where that of the job is known alone."""

    run: str
    log: Path | None = None
    job: str = ""
    address: str = ""  # of the job's cluster

    @property
    def row(self) -> dict[str, str | None]:
        """The names, as data."""
        log = None if self.log is None else str(self.log)
        return {"run": self.run or None, "job": self.job or None, "address": self.address or None, "log": log}

    @property
    def told(self) -> list[str]:
        """Lines for people: how to look at the run, and how to end it."""
        if self.job:
            at = f"--address {self.address}"
            return [f"ray job logs {self.job} {at}", f"d5ray stop {self.job} {at}"]
        return [f"d5ray show {self.run}", f"d5ray stop {self.run}", f"tail -f {self.log}"]


def in_background() -> Detached:
    """Run this process's command without `--detach` in a session of its own; returns when the run has begun.

    Its output goes to `log.txt` in the run's folder. Raises `AgentError` where it ends before.
    """
    words = [word for word in sys.orig_argv[1:] if word != OPTION]
    folder = home() / "detached"
    make_folder(folder)
    log = folder / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.txt"
    before = set(_folders())
    with log.open("xb") as output:
        log.chmod(0o600)
        process = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        run = _begun(process, before)
    except KeyboardInterrupt:
        process.terminate()
        raise
    if run is None:
        raise AgentError(_why(process, log))
    return Detached(run.name, _moved(log, run / LOG))


def _begun(process: "subprocess.Popen[bytes]", before: Collection[Path]) -> Path | None:
    """The folder of the run that a process, or one of its children, has begun; None if it does not."""
    end = time.monotonic() + START_SECONDS
    pids = {process.pid}
    while True:
        ended = process.poll() is not None
        pids |= _descendants(process.pid)
        for found in set(_folders()).difference(before):
            if _driver_of(found) in pids:
                return found
        if ended or time.monotonic() > end:
            return None
        time.sleep(LOOK_SECONDS)


def as_job(name: str, recipe: str, file: Path, options: Sequence[str], address: str) -> Detached:
    """Submit `d5ray run` with these options as a job of the cluster at this address.

    file: the recipe's; the job takes it along, or its package, unless it ships with d5ray.
    """
    from d5ray.actors.session import jobs  # noqa: PLC0415 - imports Ray

    with tempfile.TemporaryDirectory(prefix="d5ray-job-") as taken:
        what = recipe if recipe in library.shipped() else _take(file.resolve(), Path(taken))
        job = jobs.submit(address, ["-m", "d5ray", "run", what, *options], name, taken)
    return Detached("", job=job, address=address)


def _take(file: Path, folder: Path) -> str:
    """Copy a recipe's file, or its whole package; what `d5ray run` is to be given in that folder."""
    if not (file.parent / "__init__.py").is_file():
        shutil.copy(file, folder)
        return file.name
    top = file.parent
    while (top.parent / "__init__.py").is_file():
        top = top.parent
    shutil.copytree(top, folder / top.name, ignore=shutil.ignore_patterns("__pycache__"))
    return f"{file.parent.relative_to(top.parent)}/"


def _folders() -> list[Path]:
    try:
        return [folder for folder in runs_root().iterdir() if folder.is_dir()]
    except FileNotFoundError:
        return []


def _descendants(pid: int) -> set[int]:
    with suppress(psutil.Error):
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    return set()


def _driver_of(folder: Path) -> int | None:
    with suppress(D5Error, OSError, pa.ArrowException):
        found: int | None = Run(folder).row["driver_pid"]
        return found
    return None


def _moved(log: Path, place: Path) -> Path:
    """The log, in the run's folder if that is of the same file system: who writes into it goes on."""
    try:
        return log.rename(place)
    except OSError:
        return log


def _why(process: "subprocess.Popen[bytes]", log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    said = " / ".join(lines[-LAST_LINES:]).removeprefix("error: ")
    if process.poll() is None:
        return (
            f"no run has begun within {START_SECONDS:g} s: process {process.pid} goes on, its output is in "
            f"{log}: {said}"
        )
    log.unlink(missing_ok=True)
    return f"the run did not begin (exit code {process.returncode}): {said}"
