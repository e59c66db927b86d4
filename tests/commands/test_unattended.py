"""Claims about runs that nobody sits beside: ended by name, and gone on with where something died"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import d5ray as d5
from d5ray.metrics.record.store import Run
from tests.commands.test_interrupts import LONG, train_for_a_while
from tests.conftest import d5ray, started, wait_until
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
LOOP = 'until "$0" -m d5ray run "$1" --resume auto; do [ $? -lt 3 ] && break; sleep 1; done'


def home_of(folder: Path) -> dict[str, str]:
    return {"D5RAY_HOME": str(folder)}


@pytest.mark.full
def test_a_run_is_stopped_by_its_name(tmp_path: Path) -> None:
    """What was measured is kept, nothing is left; a run that has ended is not stopped again."""
    with started(*LONG, env=home_of(tmp_path)) as command:
        run = train_for_a_while(command, tmp_path)
        stopped = d5ray("stop", "last", "--json", env=home_of(tmp_path))
        assert (stopped.code, stopped.json) == (0, {"run": run.name, "status": "interrupted"})
        assert command.process.wait(patience(60)) == 130
        assert not command.left()
    assert run.row["status"] == "interrupted" and run.row["rows"] == run.tables()["samples"].num_rows
    again = d5ray("stop", run.name, env=home_of(tmp_path))
    assert again.code == 3 and "is interrupted: there is nothing to stop" in again.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("stop", "nothing"), "There is no run 'nothing'"),
        (("run", "digits_lenet", "--resume", "auto", "--seeds", "2"), "--seeds and --resume exclude"),
    ],
)
def test_what_cannot_be_stopped_or_gone_on_with_is_refused(
    words: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    """One line, exit code 3, nothing begins."""
    done = d5ray(*words, env=home_of(tmp_path))
    assert done.code == 3 and text in done.err and len(done.err.splitlines()) == 1, done
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.full
@pytest.mark.parametrize("victim", ["gcs_server", "driver"])
def test_a_loop_of_a_shell_goes_on_where_ray_or_the_driver_dies(victim: str, tmp_path: Path) -> None:
    """SIGKILL after a checkpoint: the next `--resume auto` goes on from there, and comes to the verdict."""
    file = tmp_path / "saving.py"
    file.write_text(SAVING)
    loop = subprocess.Popen(
        ["bash", "-c", LOOP, sys.executable, str(file)],
        env=os.environ | home_of(tmp_path / "home"), start_new_session=True,
    )  # fmt: skip
    try:
        saved = tmp_path / "home" / "runs"
        wait_until(lambda: bool(list(saved.glob("*/checkpoints/step-*/checkpoint.json"))), 100)
        (driver,) = psutil.Process(loop.pid).children()
        named = {"driver": driver} | {each.name(): each for each in driver.children()}
        named[victim].kill()
        assert loop.wait(patience(200)) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(loop.pid, signal.SIGKILL)
        loop.wait()
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
