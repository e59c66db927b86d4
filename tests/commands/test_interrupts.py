"""Ctrl-C, signals and kills: the run ends in time, keeps what was measured, and leaves nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from d5ray.metrics.judge.run_series import RunSeries
from d5ray.metrics.record.store import Run
from tests.conftest import Started, marked, started, wait_until
from tests.patience import patience

LONG = ("run", "digits_lenet", "--set", "batch_size=1")  # 719 steps an epoch: still training when we come


def train_for_a_while(command: Started, home: Path, rows: int = 1) -> Run:
    """Wait until the run has rows on disk."""

    def measured() -> bool:
        folders = list((home / "runs").glob("*"))
        return bool(folders) and Run(folders[0]).tables()["samples"].num_rows >= rows

    wait_until(measured, 60, lambda: f"exit code {command.process.poll()}")
    return Run(next((home / "runs").glob("*")))


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupted_run_ends_within_5_seconds_and_keeps_what_was_measured(
    number: signal.Signals, tmp_path: Path
) -> None:
    """Exit code 130: no verdict on a run that did not end; the table is shown; nothing is left."""
    with started(*LONG, env={"D5RAY_HOME": str(tmp_path)}) as command:
        run = train_for_a_while(command, tmp_path)
        begin = time.monotonic()
        if number == signal.SIGINT:
            os.killpg(command.process.pid, number)  # a terminal sends it to all of the group
        else:
            command.process.send_signal(number)
        out, err = command.process.communicate(timeout=patience(30))
        assert time.monotonic() - begin < patience(5)
        assert command.process.returncode == 130, err
        assert "INCONCLUSIVE" in out
        assert "interrupted" in out
        assert "Traceback" not in err
        assert not command.left()
    assert run.row["status"] == "interrupted"
    assert run.row["verdict"] == "INCONCLUSIVE"
    assert run.tables()["samples"].num_rows == run.row["rows"] > 0


@pytest.mark.slow
def test_an_interrupted_series_ends_within_5_seconds_with_its_runs(tmp_path: Path) -> None:
    """Ctrl-C in the first of three seeds: no other begins, and the series is there, undecided."""
    with started(*LONG, "--seeds", "3", env={"D5RAY_HOME": str(tmp_path)}) as command:
        run = train_for_a_while(command, tmp_path)
        begin = time.monotonic()
        os.killpg(command.process.pid, signal.SIGINT)
        out, err = command.process.communicate(timeout=patience(30))
        assert time.monotonic() - begin < patience(5)
        assert command.process.returncode == 130, err
        assert "INCONCLUSIVE" in out
        assert not command.left()
    series = RunSeries(next((tmp_path / "series").glob("*")))
    assert (series.row["status"], series.row["verdict"]) == ("interrupted", "INCONCLUSIVE")
    assert [each.name for each in series.runs] == [run.name]


@pytest.mark.full
@pytest.mark.parametrize(
    "seconds",
    [0.4, 2.0, 4.0, *(pytest.param(each / 10, marks=pytest.mark.slow) for each in range(10, 40, 3))],
)
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
@pytest.mark.parametrize(
    "rule",
    ["AllreduceSGD()", *(pytest.param(rule, marks=pytest.mark.slow) for rule in ("ASGD()", "ADPSGD()"))],
)
def test_a_killed_driver_leaves_nothing_but_the_rows(rule: str, tmp_path: Path) -> None:
    """SIGKILL of the driver: every process, server and folder goes within seconds; the run reads as died."""
    with started(*LONG, "--set", f"distributed={rule}", env={"D5RAY_HOME": str(tmp_path)}) as command:
        run = train_for_a_while(command, tmp_path)
        command.process.kill()
        command.process.wait()
        wait_until(lambda: not command.left(), 10, lambda: str(command.left()))
    assert run.row["status"] == "died"
    assert run.tables()["samples"].num_rows > 0


@pytest.mark.slow
def test_a_killed_agent_ends_the_run_with_its_name_and_keeps_the_rows(tmp_path: Path) -> None:
    """SIGKILL of an agent: exit code 3 within seconds, a complete folder, nothing left."""
    with started(*LONG, env={"D5RAY_HOME": str(tmp_path)}) as command:
        run = train_for_a_while(command, tmp_path)
        before = run.tables()["samples"].num_rows
        processes = [pid for pid, line in marked(command.marker).items() if "TrainingAgent" in line]
        assert processes
        begin = time.monotonic()
        os.kill(processes[-1], signal.SIGKILL)
        _, err = command.process.communicate(timeout=patience(60))
        assert time.monotonic() - begin < patience(20)
        assert command.process.returncode == 3, err
        assert "error: TrainingAgent(rank=" in err
        assert not command.left()
    assert run.row["status"] == "failed"
    assert run.row["ended"] is not None
    assert run.tables()["samples"].num_rows >= before


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
