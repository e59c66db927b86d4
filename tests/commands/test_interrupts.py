"""Ctrl-C, signals and kills: the run ends in time, keeps what was measured, and leaves nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from d5ray.metrics.record.reader import Run
from tests.conftest import Started, d5ray, started, wait_until
from tests.patience import patience

LONG = ("run", "digits_lenet", "--set", "batch_size=1")  # 719 steps an epoch: still training when we come


def train_for_a_while(command: Started, home: Path, rows: int = 1) -> Run:
    """Wait until the run has rows on disk."""

    def measured() -> bool:
        folders = list((home / "runs").glob("*"))
        return bool(folders) and Run(folders[0]).tables()["samples"].num_rows >= rows

    wait_until(measured, 60, lambda: f"exit code {command.process.poll()}")
    return Run(next((home / "runs").glob("*")))


@pytest.mark.parametrize(
    "how", ["Ctrl-C", *(pytest.param(h, marks=pytest.mark.full) for h in ("SIGTERM", "stop"))]
)
def test_an_interrupted_run_ends_within_5_seconds_and_keeps_what_was_measured(
    how: str, tmp_path: Path
) -> None:
    """Exit code 130: no verdict on a run that did not end; the table is shown; nothing is left."""
    with started(*LONG, env={"D5RAY_HOME": str(tmp_path)}) as command:
        run = train_for_a_while(command, tmp_path)
        begin = time.monotonic()
        if how == "stop":
            stopped = d5ray("stop", "last", "--json", env={"D5RAY_HOME": str(tmp_path)})
            assert (stopped.code, stopped.json) == (0, {"run": run.name, "status": "interrupted"})
        else:  # to all of the group, as a terminal does; its Ray has a group of its own
            os.killpg(command.process.pid, signal.SIGINT if how == "Ctrl-C" else signal.SIGTERM)
        out, err = command.process.communicate(timeout=patience(30))
        assert how == "stop" or time.monotonic() - begin < patience(5)
        assert command.process.returncode == 130, err
        assert "INCONCLUSIVE" in out and "interrupted" in out
        assert "Traceback" not in err
        assert not command.left()
    assert (run.row["status"], run.row["verdict"]) == ("interrupted", "INCONCLUSIVE")
    assert run.tables()["samples"].num_rows == run.row["rows"] > 0
    if how == "stop":
        again = d5ray("stop", run.name, env={"D5RAY_HOME": str(tmp_path)})
        assert again.code == 3 and "is interrupted: there is nothing to stop" in again.err


@pytest.mark.full
@pytest.mark.parametrize("seconds", [0.4, 2.0, 4.0])
def test_ctrl_c_while_it_starts_ends_within_5_seconds_without_a_run(seconds: float, tmp_path: Path) -> None:
    """Interrupted before the first step: exit code 130 (or Python's own, while it starts), no folder."""
    with started(*LONG, env={"D5RAY_HOME": str(tmp_path)}) as command:
        time.sleep(seconds)
        begin = time.monotonic()
        os.killpg(command.process.pid, signal.SIGINT)
        _, err = command.process.communicate(timeout=patience(30))
        assert time.monotonic() - begin < patience(5)
        assert command.process.returncode in (130, -signal.SIGINT), err
        wait_until(lambda: not command.left(), 5, lambda: str(command.left()))
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.full
def test_a_killed_driver_leaves_nothing_but_the_rows(tmp_path: Path) -> None:
    """SIGKILL of the driver: every process, server and folder goes within seconds; the run reads as died."""
    with started(*LONG, "--set", "distributed=ASGD()", env={"D5RAY_HOME": str(tmp_path)}) as command:
        run = train_for_a_while(command, tmp_path)
        command.process.kill()
        command.process.wait()
        wait_until(lambda: not command.left(), 10, lambda: str(command.left()))
    assert run.row["status"] == "died"
    assert run.tables()["samples"].num_rows > 0


@pytest.mark.slow
def test_a_loss_that_becomes_nan_fails_with_the_step_named(tmp_path: Path) -> None:
    """A learning rate of a million: exit code 1, verdict FAIL, the step and the agent named."""
    with started(
        "run", "digits_lenet", "--set", "optimizer_args=(1e6, 0.9)", env={"D5RAY_HOME": str(tmp_path)}
    ) as command:
        out, err = command.process.communicate(timeout=patience(60))
        assert command.process.returncode == 1, err
        assert not command.left()
    run = Run(next((tmp_path / "runs").glob("*")))
    losses = run.tables()["samples"].to_pandas().query("metric == 'loss'")
    first = int(losses[~losses.value.abs().lt(float("inf"))].step.min())
    assert f"at step {first}" in out
    assert run.row["status"] == "nan_loss"
    assert run.row["verdict"] == "FAIL"
    assert run.tables()["events"].num_rows >= 1


LOST = """
import signal, time
from d5ray.failures.interrupts import repeat_lost_interrupts
class Interrupted:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)  # Python says that it ignores this, and goes on
repeat_lost_interrupts()
signal.signal(signal.SIGINT, signal.default_int_handler)
Interrupted()
time.sleep(60)
"""


def test_ctrl_c_that_python_loses_comes_again() -> None:
    """An interrupt within a destructor ends the program nevertheless."""
    done = subprocess.run([sys.executable, "-c", LOST], timeout=patience(20), stderr=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGINT
