"""Starts a group of processes outside Ray, gives what each of them measured, and ends them in any case"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import d5ray
from d5ray.errors import AgentError
from d5ray.kits.laboratory.comparisons.member import MPI, WORK, result_of

LAST_LINES = 12  # of what a member that failed has written
END_SECONDS = 2.0  # for a process to end by itself
CHECK_SECONDS = 0.02

Command = list[str]


def plain(folder: Path, ranks: int) -> list[Command]:
    """A command for each rank."""
    return [[*_program(folder), str(rank)] for rank in range(ranks)]


def by_mpirun(folder: Path, ranks: int, options: Sequence[str] = ()) -> list[Command]:
    """One command that starts all ranks. options: of mpirun."""
    options = [*options, "-n", str(ranks)]
    if ranks > (os.cpu_count() or 1):
        options.append("--oversubscribe")
    if os.geteuid() == 0:
        options.append("--allow-run-as-root")
    return [["mpirun", *options, *_program(folder), MPI]]


def measured(
    work: Callable[[int], Any],
    folder: Path,
    ranks: int,
    seconds: float,
    commands: Callable[[Path, int], Sequence[Command]] = plain,
) -> list[Any]:
    """work(rank) of every rank, in fresh processes with one thread each for numerical libraries.

    Raises `AgentError` with what a process wrote if it fails, or if one is not done within `seconds`.
    """
    with starting() as start:
        started = start(work, folder, commands(folder, ranks))
        _wait(started, folder, seconds)
    return [pickle.loads(result_of(folder, rank).read_bytes()) for rank in range(ranks)]


@contextlib.contextmanager
def starting() -> Iterator[Callable[[Any, Path, Sequence[Command]], "list[subprocess.Popen[bytes]]"]]:
    """Gives start(work, folder, commands), which starts fresh processes; all end with the context."""
    started: list[subprocess.Popen[bytes]] = []

    def start(work: Any, folder: Path, commands: Sequence[Command]) -> "list[subprocess.Popen[bytes]]":
        (folder / WORK).write_bytes(pickle.dumps(work))
        for number, command in enumerate(commands):
            with (folder / f"{number}.log").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.PIPE,
                        stdout=log,
                        stderr=log,
                        env=_environment(),
                        start_new_session=True,  # Ctrl-C is for the driver, which ends them
                    )
                )
        return started[-len(commands) :]

    try:
        yield start
    finally:
        _end(started)


def _program(folder: Path) -> Command:
    return [sys.executable, "-m", "d5ray.kits.laboratory.comparisons.member", str(folder)]


def _environment() -> dict[str, str]:
    """The environment of a process that is measured: this code, and one thread for numerical libraries."""
    assert d5ray.__file__ is not None
    here = str(Path(d5ray.__file__).parent.parent)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(paths)}


def _wait(started: "list[subprocess.Popen[bytes]]", folder: Path, seconds: float) -> None:
    """Return when all have ended well; raise as soon as one has not."""
    deadline = time.monotonic() + seconds
    while True:
        codes = [process.poll() for process in started]
        for number, code in enumerate(codes):
            if code:
                raise AgentError(f"a measured process ended with code {code}:\n{tail(folder, number)}")
        if all(code == 0 for code in codes):
            return
        if time.monotonic() > deadline:
            late = codes.index(None)
            raise AgentError(
                f"a measured process was not done within {seconds:g} s; it wrote:\n{tail(folder, late)}"
            )
        time.sleep(CHECK_SECONDS)


def awaited(file: Path, seconds: float, otherwise: str) -> str:
    """The text of a file that another process writes, and names when it is whole; else `AgentError`."""
    deadline = time.monotonic() + seconds
    while not file.exists():
        if time.monotonic() > deadline:
            raise AgentError(f"{otherwise} within {seconds:g} s")
        time.sleep(CHECK_SECONDS)
    return file.read_text()


def tail(folder: Path, number: int = 0) -> str:
    """What the process that the command of this number started has written last."""
    lines = (folder / f"{number}.log").read_text(errors="replace").splitlines()
    return "\n".join(lines[-LAST_LINES:])


def _end(started: "list[subprocess.Popen[bytes]]") -> None:
    """Ask those that still run to end, and kill what does not, with what they have started."""
    for process in started:
        if process.poll() is None:
            process.terminate()
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
