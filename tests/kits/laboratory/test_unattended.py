"""Claims about runs that nobody sits beside: ended by name, and gone on with where something died"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

import d5ray as d5
from d5ray.metrics.record.reader import Run
from tests.conftest import d5ray, wait_until
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
def test_launch_goes_on_from_the_run_before_with_the_numbers_of_one_that_was_never_stopped(
    tmp_path: Path,
) -> None:
    """An error after 35 steps: the next launch does those that are left, and has the same bits in the end."""

    def made() -> d5.Experiment:
        return d5.Experiment(
            "mlp", "digits", d5.optimizers.Momentum(0.05, 0.9), agents=2, batch_size=48, epochs=3, seed=3,
            cpus_per_agent=0.25, evaluate=False, events=d5.events.Checkpoint(every_steps=10),
        )  # fmt: skip

    with d5.simulate(made(), root=tmp_path / "whole") as calm:
        calm.train(progress=False)
        whole = calm.parameters()
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
