"""Runs that nobody sits beside: left to themselves, ended by name, and started again where something dies"""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import d5ray as d5
from d5ray.metrics.record.store import Run
from tests.commands.test_interrupts import LONG, train_for_a_while
from tests.conftest import Head, d5ray, marked, started, wait_until
from tests.patience import patience

SAVING = """
import d5ray as d5
FIXED = {"model": "mlp", "dataset": "digits", "epochs": 2}
MUTABLE = {
    "agents": 2, "optimizer": d5.optimizers.SGD(0.01), "distributed": d5.optimizers.AllreduceSGD, "seed": 1,
    "batch_size": 1, "cpus_per_agent": 0.5, "events": [d5.events.Checkpoint(every_steps=50)],
}
METRICS = [d5.metrics.TestAccuracy() >= 0.0]
"""
BREAKS = SAVING.replace('"model": "mlp"', '"model": lambda: 1 / 0')


def home_of(folder: Path) -> dict[str, str]:
    return {"D5RAY_HOME": str(folder)}


@pytest.mark.full
def test_a_run_that_is_detached_goes_on_until_it_is_stopped(tmp_path: Path) -> None:
    """The command is back while the run trains; the log lies in the run's folder; nothing is left."""
    done = d5ray(*LONG, "--detach", "--json", env=home_of(tmp_path), seconds=200)
    assert done.code == 0, done.err
    run = Run(tmp_path / "runs" / done.json["run"])
    assert run.row["status"] == "running"
    assert done.json["log"] == str(run.folder / "log.txt")
    wait_until(lambda: run.tables()["samples"].num_rows > 0, 60)
    stopped = d5ray("stop", "last", "--json", env=home_of(tmp_path))
    assert (stopped.code, stopped.json) == (0, {"run": run.name, "status": "interrupted"})
    assert run.row["status"] == "interrupted" and run.row["rows"] == run.tables()["samples"].num_rows
    wait_until(lambda: not marked(done.marker), 20, lambda: str(marked(done.marker)))
    assert run.name in (run.folder / "log.txt").read_text()
    again = d5ray("stop", run.name, env=home_of(tmp_path))
    assert again.code == 3 and "is interrupted: there is nothing to stop" in again.err


@pytest.mark.full
def test_a_run_that_cannot_begin_says_so_when_it_is_detached(tmp_path: Path) -> None:
    """Its model divides by zero: one error, exit code 3, no run, no log, no process."""
    file = tmp_path / "breaks.py"
    file.write_text(BREAKS)
    done = d5ray("run", str(file), "--detach", env=home_of(tmp_path / "home"), seconds=200)
    assert done.code == 3
    (line,) = done.err.splitlines()
    assert line.startswith("error: the run did not begin (exit code 3)") and "ZeroDivisionError" in line
    assert not list((tmp_path / "home").glob("runs/*")) and not list((tmp_path / "home").glob("detached/*"))
    assert not done.left()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("stop", "nothing"), "There is no run 'nothing'"),
        (("stop", "nothing", "--address", "127.0.0.1:1"), "no Ray answers at 127.0.0.1:1"),
        (("run", "digits_lenet", "--detach", "--set", "agents=0"), "agents is 0"),
        (("run", "digits_lenet", "--resume", "auto", "--seeds", "2"), "--seeds and --resume exclude"),
        (("run", "digits_lenet", "--detach", "--address", "127.0.0.1:1"), "no Ray answers at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_detached_or_stopped_is_refused(
    words: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    """One line, exit code 3, nothing begins."""
    done = d5ray(*words, env=home_of(tmp_path))
    assert done.code == 3 and text in done.err and len(done.err.splitlines()) == 1, done
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.full
@pytest.mark.parametrize("victim", ["gcs_server", "driver"])
def test_a_run_goes_on_by_itself_where_ray_or_its_process_dies(victim: str, tmp_path: Path) -> None:
    """SIGKILL after a checkpoint: another process goes on from there, and comes to the verdict."""
    file = tmp_path / "saving.py"
    file.write_text(SAVING)
    with started("run", str(file), "--resume", "auto", env=home_of(tmp_path / "home")) as command:
        saved = tmp_path / "home" / "runs"
        wait_until(lambda: bool(list(saved.glob("*/checkpoints/step-*/checkpoint.json"))), 100)
        (child,) = psutil.Process(command.process.pid).children()
        if victim == "gcs_server":
            (child,) = [each for each in child.children() if each.name() == victim]
        child.kill()
        _, err = command.process.communicate(timeout=patience(200))
        assert command.process.returncode == 0, err
        assert "the run is started again in 1 s (failure 1)" in err
        assert not command.left()
    first, second = (Run(folder) for folder in sorted(saved.glob("*")))
    assert first.row["status"] == ("failed" if victim == "gcs_server" else "died")
    assert second.row["status"] == "completed" and second.row["steps"] == 2 * 719
    events = second.tables()["events"].to_pylist()
    (continues,) = [json.loads(each["detail"]) for each in events if each["name"] == "continues"]
    assert continues["run"] == first.name and f"/{first.name}/checkpoints/step-" in continues["checkpoint"]
    steps = second.tables()["samples"].to_pandas().query("metric == 'loss' and rank == 0").step
    assert steps.min() == int(continues["checkpoint"].rpartition("-")[2]) > 0
    checked = d5ray("check", second.name, env=home_of(tmp_path / "home"))
    assert checked.code == 0, checked.out


@pytest.mark.full
def test_a_run_is_a_job_of_the_cluster_when_it_is_detached_there(head: Head, tmp_path: Path) -> None:
    """It is there under the name that was told, trains, and ends as interrupted when it is stopped."""
    options = ("--address", head.address)
    begin = time.monotonic()
    done = d5ray(*LONG, "--detach", *options, "--json", env=home_of(tmp_path))
    assert done.code == 0, done.err
    job = done.json["job"]
    assert time.monotonic() - begin < patience(30) and done.json["run"] is None

    def trains() -> bool:
        found = list((tmp_path / "runs").glob("*"))
        return bool(found) and Run(found[0]).tables()["samples"].num_rows > 0

    wait_until(trains, 90)
    stopped = d5ray("stop", job, *options, "--json", env=home_of(tmp_path))
    assert (stopped.code, stopped.json) == (0, {"run": job, "status": "STOPPED"}), stopped
    run = Run(next((tmp_path / "runs").glob("*")))
    wait_until(lambda: run.row["status"] != "running", 20)
    assert run.row["status"] == "interrupted"
    gone = d5ray("stop", "no-such-job", *options, env=home_of(tmp_path))
    assert gone.code == 3 and "has no job 'no-such-job'" in gone.err


@pytest.mark.full
def test_sigterm_to_the_process_group_of_a_run_ends_it_as_ctrl_c_does(tmp_path: Path) -> None:
    """Its Ray has a group of its own, and ends with it: 130, interrupted, nothing left."""
    with started(*LONG, env=home_of(tmp_path)) as command:
        run = train_for_a_while(command, tmp_path)
        begin = time.monotonic()
        os.killpg(command.process.pid, signal.SIGTERM)
        _, err = command.process.communicate(timeout=patience(60))
        assert time.monotonic() - begin < patience(5)
        assert command.process.returncode == 130, err
        assert not command.left()
    assert (run.row["status"], run.row["verdict"]) == ("interrupted", "INCONCLUSIVE")
    assert run.tables()["samples"].num_rows == run.row["rows"] > 0


@pytest.mark.full
def test_launch_goes_on_from_the_run_before_with_the_numbers_of_one_that_was_never_stopped(
    tmp_path: Path,
) -> None:
    """An error after 35 steps: the next launch does those that are left, and has the same bits in the end."""

    def made() -> d5.Experiment:
        return d5.Experiment(
            "mlp", "digits", d5.optimizers.Momentum(0.05, 0.9), agents=2, batch_size=48, epochs=3, seed=3,
            cpus_per_agent=0.25, evaluate=False, events=d5.events.Checkpoint(every_steps=10),
        )  # fmt: skip

    with d5.launch(made(), root=tmp_path / "whole", quiet=True, resume="auto") as group:
        group.train(progress=False)
        whole = group.parameters()
    with (
        pytest.raises(RuntimeError, match="as planned"),
        d5.launch(made(), root=tmp_path / "broken", quiet=True) as group,
    ):
        group.train(35, progress=False)
        raise RuntimeError("as planned")
    with d5.launch(made(), root=tmp_path / "broken", quiet=True, resume="auto") as group:
        begun = group.outcome.step
        end = group.train(progress=False).step
        again = group.parameters()
    d5.shutdown()
    assert (begun, end) == (35, 3 * group.built.steps_per_epoch)
    for name, value in whole.items():
        assert np.array_equal(value, again[name])
