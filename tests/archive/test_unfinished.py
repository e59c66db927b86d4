"""Claims about which run is gone on with by itself: the last of the same experiment that did not end well"""

import os
import platform
from pathlib import Path
from typing import Any

import pytest

import d5ray as d5
from d5ray.archive.unfinished import GoingOn, unfinished
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.store import RunWriter
from d5ray.training.batches.epochs import Epochs

NO_FAULTS = d5.Faults()
PLANNED = Epochs.even(20)  # steps of an epoch, of which there are two
GONE = 2**22 + 1  # no process has this number


def made(path: Path | None = None, seed: int = 1, **changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": "mlp", "dataset": "digits", "optimizer": d5.optimizers.SGD(0.1), "agents": 2,
        "batch_size": 64, "epochs": 2, "seed": seed, "evaluate": False,
        "events": d5.events.Checkpoint(path, every_steps=10, keep=0),
    }  # fmt: skip
    return d5.Experiment.from_values(**(values | changes))


def left(experiment: d5.Experiment, root: Path, steps: int, faults: d5.Faults = NO_FAULTS, **row: Any) -> Run:
    """The folder of a run as a real one leaves it that did so many steps; row: what it says of itself."""
    with d5.simulate(experiment, root=root, faults=faults) as group:
        group.train(steps)
    says = {"ray_address": "127.0.0.1:1", "status": "running", "driver_pid": GONE, "host": platform.node()}
    RunWriter(root, group.run_id).update_run(**(says | row))
    return Run(group.folder)


@pytest.mark.parametrize("status", ["running", "failed", "interrupted"])
def test_the_last_unfinished_run_is_gone_on_with_from_its_last_checkpoint(
    status: str, tmp_path: Path
) -> None:
    """Its driver is gone, or said why it ended; 25 steps were done, it saved every ten and at the end."""
    run = left(made(), tmp_path, 25, status=status)
    left(made(seed=2), tmp_path, 25)  # of another experiment
    found = unfinished(made(), tmp_path)
    assert (found.run, found.step) == (run.name, 25)
    assert [each.step for each in found.checkpoints] == [25, 20, 10]
    assert found.checkpoints[0].path == str(run.folder / "checkpoints")


@pytest.mark.parametrize(
    "says",
    [
        {"driver_pid": os.getpid()},
        {"status": "completed"},
        {"status": "nan_loss"},
        {"host": "elsewhere"},  # where nobody sees its driver, and it has just written
        {"ray_address": None},  # simulated
    ],
)
def test_a_run_that_goes_on_or_has_ended_well_is_left_alone(says: dict[str, Any], tmp_path: Path) -> None:
    """Its driver lives, or may live, or there is nothing to go on with."""
    run = left(made(), tmp_path, 25, **says)
    if says.get("host"):
        (run.folder / "samples.arrows").touch()
    assert unfinished(made(), tmp_path) == GoingOn()


def test_a_completed_run_hides_those_before_it(tmp_path: Path) -> None:
    """An older one that died is not gone on with, since the experiment was done after it."""
    left(made(), tmp_path, 25)
    left(made(), tmp_path, 40, status="completed")
    assert unfinished(made(), tmp_path) == GoingOn()


def test_a_run_that_died_before_its_first_checkpoint_leaves_those_of_the_run_before(tmp_path: Path) -> None:
    """Two died one after the other; the second had saved nothing."""
    first = left(made(), tmp_path, 25)
    second = left(made(events=()), tmp_path, 5)
    found = unfinished(made(), tmp_path)
    assert (found.run, found.step) == (second.name, 25)
    assert found.checkpoints[0].path == str(first.folder / "checkpoints")


def test_checkpoints_of_other_runs_in_a_shared_folder_are_not_taken(tmp_path: Path) -> None:
    """The folder has those of a completed run with more steps, and of one that died."""
    shared = tmp_path / "shared"
    left(made(shared), tmp_path, 40, status="completed")
    left(made(shared), tmp_path, 25)
    assert [each.step for each in unfinished(made(shared), tmp_path).checkpoints] == [25, 20, 10]


def test_the_checkpoint_of_the_last_step_is_passed_over_and_it_is_said(
    tmp_path: Path,
) -> None:
    """A run that died as it closed: the last epoch is done again, or all where there is no other one."""
    run = left(made(), tmp_path, 40)
    found = unfinished(made(), tmp_path)
    chosen = found.chosen(made(), PLANNED)
    assert chosen is not None and chosen.step == 30
    assert found.told(chosen) == f"goes on from step 30 of {run.name}, which did not come to its end"
    only = GoingOn(found.checkpoints[:1], run.name)
    assert only.chosen(made(), PLANNED) is None and "begun anew" in only.told(None)
    assert GoingOn(found.checkpoints).chosen(made(), PLANNED) == found.checkpoints[0]  # the user named it


def test_checkpoints_that_fewer_agents_have_written_are_passed_over(tmp_path: Path) -> None:
    """One of two died before step 15: the one of step 10 is the last that both have written."""
    wanted = made(on_failure="continue")
    left(wanted, tmp_path, 35, faults=d5.Faults().kill(agent=1, at_step=15))
    found = unfinished(wanted, tmp_path)
    assert [each.step for each in found.checkpoints] == [35, 30, 20, 10]
    chosen = found.chosen(wanted, PLANNED)
    assert chosen is not None and chosen.step == 10
