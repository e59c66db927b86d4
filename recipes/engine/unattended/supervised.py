"""A run in a process of its own that is started again where it or Ray dies, and goes on by `resume="auto"`

A program that is connected to a Ray that has ended cannot use another; so this process does not use Ray.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

import typer

from d5ray.archive.unfinished import unfinished
from d5ray.display.console import err, lines
from d5ray.errors import AgentError, PlacementError, RayLost
from d5ray.experiment import Experiment
from d5ray.failures.exit_codes import AGAIN, INTERRUPTED
from d5ray.metrics.record.store import runs_root

VARIABLE: Final = "D5RAY_SUPERVISED"  # of the process that runs: the one that supervises it, and its failures
MOST_SECONDS: Final = 60.0  # between two starts
MOST_IN_VAIN: Final = 10  # failures between which no later checkpoint is written
END_SECONDS: Final = 20.0  # for the process to end that was interrupted
_PDEATHSIG: Final = 1  # prctl's option: the signal that comes when the parent ends

_failures: int | None = None  # before this process was started; None: nobody supervises it


def begin(experiment: Experiment) -> None:
    """Supervise a process that does what this one was told, and exit as it does; return if this is that."""
    global _failures
    if VARIABLE in os.environ:
        parent, _, failures = os.environ.pop(VARIABLE).partition(" ")
        _failures = int(failures)
        _end_with(int(parent))
        return
    raise typer.Exit(_supervise(experiment))


@contextlib.contextmanager
def telling() -> Iterator[None]:
    """Let the process that supervises this one know that Ray was lost, or did not come back yet."""
    try:
        yield
    except PlacementError as error:
        if _failures is None or not (_failures or isinstance(error, RayLost)):
            raise
        err().print(lines(f"error: {error}", "red"))
        raise typer.Exit(AGAIN) from error


def _supervise(experiment: Experiment) -> int:
    failures = in_vain = furthest = 0
    while True:
        code = _run(failures)
        if code >= 0 and code != AGAIN:
            return code
        failures += 1
        step = unfinished(experiment, runs_root()).step
        in_vain = 1 if step > furthest else in_vain + 1
        furthest = max(step, furthest)
        how = "Ray was lost" if code == AGAIN else f"the run's process was ended by signal {-code}"
        _check(how, experiment.max_failures, failures, in_vain)
        seconds = min(MOST_SECONDS, 2.0 ** (in_vain - 1))
        told = f"{how}: the run is started again in {seconds:g} s (failure {failures})"
        err().print(told, style="yellow")
        time.sleep(seconds)


def _check(how: str, most: int, failures: int, in_vain: int) -> None:
    """Raise `AgentError` where the run is not started again."""
    if 0 <= most < failures:
        raise AgentError(
            f"{how}: the run survives max_failures={most}, and this was failure number {failures}; set more, "
            "or -1 for any number"
        )
    if in_vain > MOST_IN_VAIN:
        raise AgentError(
            f"{how}, as {MOST_IN_VAIN} times before since the last checkpoint: no progress is made; let "
            "Checkpoint(every_steps=…) among its events save earlier, and look at `dmesg`"
        )


def _run(failures: int) -> int:
    """Run the same command in another process; its exit code, negative where a signal ended it."""
    command = [sys.executable, *sys.orig_argv[1:]]
    # Of a group of its own: Ctrl-C comes to this process alone, which hands it on once.
    child = subprocess.Popen(
        command, env=os.environ | {VARIABLE: f"{os.getpid()} {failures}"}, process_group=0
    )
    try:
        code = child.wait()
    except KeyboardInterrupt:
        return _interrupted(child)
    return INTERRUPTED if code in (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP) else code


def _interrupted(child: "subprocess.Popen[bytes]") -> int:
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(END_SECONDS)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        child.kill()
        child.wait()
    return INTERRUPTED


def _end_with(parent: int) -> None:
    """Let this process get SIGTERM when that one ends, also by SIGKILL."""
    with contextlib.suppress(AttributeError, OSError):  # Linux alone has it
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise KeyboardInterrupt
