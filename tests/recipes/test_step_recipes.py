"""Claims about comparing training steps: every contender trains the same and is recorded alike."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.step_lenet import recipe as step_lenet
from benchmarks.step_resnet8 import recipe as step_resnet8
from benchmarks.step_times import StepTimes
from d5ray.errors import ConfigurationError
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.store import list_runs
from d5ray.recipes.engine.recipe import Recipe
from tests.conftest import d5ray, marked, started, wait_until
from tests.patience import patience


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A D5RAY_HOME with nothing in it."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    yield tmp_path / "runs"


def test_the_recipes_differ_in_the_network_alone() -> None:
    """And in how many steps it takes to time them."""
    assert step_lenet.FIXED | {"model": "resnet8"} == step_resnet8.FIXED
    assert [str(c) for c in step_lenet.METRICS] == [str(c) for c in step_resnet8.METRICS]


def test_an_epoch_is_whole_batches_for_every_number_of_processes() -> None:
    """One, two and four processes with 64 samples each: 1,280 of the 1,438 samples, which is 5 · 4 · 64."""
    parts = (step_lenet.FIXED, step_lenet.MUTABLE, step_lenet.METRICS)
    job = Recipe.of(*parts, name="x").made()
    assert isinstance(job, StepTimes)
    assert len(job.data.train) == 1280
    too_large = Recipe.of(*parts, name="x", overrides={"batch_size": 400}).made()
    with pytest.raises(ConfigurationError, match="one step of all agents takes 1600"):
        _ = too_large.data


@pytest.mark.slow
def test_every_contender_trains_the_same_and_is_recorded_alike(own_home: Path) -> None:
    """As many processes, equally many samples in the same order: the same losses up to rounding."""
    short = ("--set", "warmup_steps=5", "--set", "steps=20", "--set", "pairs=1")
    done = d5ray("run", "benchmarks/step_lenet", *short, "--json", seconds=280)
    assert done.code == 2, done
    (run,) = list_runs(own_home)
    rows = sql(
        run,
        "select scope, rank, metric, count(*) n, last(value order by step) final from samples "
        "where metric in ('step_time', 'samples_per_second', 'loss', 'test_accuracy') group by all",
    ).to_pylist()
    found = {(row["scope"], row["rank"], row["metric"]): (row["n"], row["final"]) for row in rows}
    for processes in (2, 4):
        for rank in range(processes):
            losses, accuracies = [], []
            for word in ("d5ray", "ddp", "ray.train"):
                name = f"{word}[{processes}]"
                assert found[name, rank, "step_time"][0] == found[name, rank, "samples_per_second"][0] == 25
                losses.append(found[name, rank, "loss"][1])
                accuracies.append(found[name, rank, "test_accuracy"][1])
            assert losses == pytest.approx([losses[0]] * 3, rel=1e-4)
            assert accuracies == pytest.approx([accuracies[0]] * 3, abs=0.01)
    assert not done.left()


@pytest.mark.slow
def test_an_interrupt_in_the_midst_of_ray_train_ends_it_within_seconds(own_home: Path) -> None:
    """Ray Train takes Ctrl-C for itself where it runs; the recipe still ends with what it has."""
    with started("run", "benchmarks/step_lenet", "--set", "steps=3000", "--set", "pairs=2") as command:
        wait_until(lambda: any("RayTrainWorker" in line for line in marked(command.marker).values()), 200)
        command.process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        out, err = command.process.communicate(timeout=patience(60))
        assert time.monotonic() - begin < patience(10), err
        assert (command.process.returncode, "INCONCLUSIVE" in out, "Traceback" in err) == (2, True, False), (
            err
        )
        wait_until(lambda: marked(command.marker) == {}, 5)
    (run,) = list_runs(own_home)
    assert (run.row["status"], run.tables()["samples"].num_rows > 0) == ("interrupted", True)
