"""Claims about comparing training steps: every contender trains the same and is recorded alike."""

import signal
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from benchmarks.overhead_lenet import recipe as overhead_lenet
from benchmarks.step_lenet import recipe as step_lenet
from benchmarks.torch_loops import HandWrittenLoop, TorchTask
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.jobs.agent_rates import whole_batches
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.reader import list_runs
from d5ray.training.datasets.catalogue import load_dataset
from tests.agents import agents_in_threads
from tests.conftest import d5ray, marked, started, wait_until
from tests.kits.laboratory.comparing import job_of
from tests.patience import patience

# -- what both sides do ------------------------------------------------------------------------------------


def flat(parameters: dict[str, Any]) -> Any:
    return np.concatenate([values.ravel() for values in parameters.values()]).astype(np.float64)


def distance(a: Any, b: Any) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def test_one_agent_and_the_hand_written_loop_end_with_equal_parameters() -> None:
    """After twenty steps from the same parameters, which have gone somewhere."""
    job = job_of(overhead_lenet, seed=3)
    data = whole_batches(load_dataset("digits"), 128)
    loop = HandWrittenLoop(TorchTask("lenet", data, 64, 0.05, 0.9, job.train_sampler, seed=3, threads=1))
    with agents_in_threads(job.experiment(data, 1, "socket"), data) as ((agent,), _):
        begin = flat(agent.parameters())
        assert distance(loop.parameters(), begin) == 0
        agent.train(20)
        ours = flat(agent.parameters())
    marks = loop.train(20).marks
    assert len(marks) == 21 and (np.diff(marks) > 0).all()
    assert distance(ours, begin) > 0.01
    assert distance(ours, loop.parameters()) < 1e-5


def test_every_step_of_an_epoch_is_a_whole_batch_of_different_samples() -> None:
    """1,408 of the 1,438 samples: 22 batches of 64, each sample once; a larger batch is refused."""
    data = whole_batches(load_dataset("digits"), 128)
    assert (data.train.inputs == load_dataset("digits").train.inputs[:1408]).all()
    sampler = d5.samplers.ShuffleSampler()
    loop = HandWrittenLoop(TorchTask("lenet", data, 64, 0.05, 0.9, sampler, seed=3, threads=1))
    batches = list(islice(loop.batches, 22))
    assert {len(labels) for _, labels in batches} == {64}
    seen = np.concatenate([inputs.numpy().reshape(64, -1) for inputs, _ in batches])
    assert (np.sort(seen, axis=0) == np.sort(data.train.inputs.reshape(1408, -1), axis=0)).all()
    with pytest.raises(ConfigurationError, match="choose a smaller batch_size"):
        whole_batches(load_dataset("digits"), 1439)


def test_an_epoch_is_whole_batches_for_every_number_of_processes() -> None:
    """One, two and four processes with 64 samples each: 1,280 of the 1,438 samples, which is 5 · 4 · 64."""
    assert len(job_of(step_lenet).data.train) == 1280
    with pytest.raises(ConfigurationError, match="one step of all agents takes 1600"):
        _ = job_of(step_lenet, batch_size=400).data


@pytest.mark.slow
def test_every_contender_trains_the_same_and_is_recorded_alike(own_home: Path) -> None:
    """As many processes, equally many samples in the same order: the same losses up to rounding."""
    short = ("--set", "warmup_steps=5", "--set", "steps=20", "--set", "pairs=1")
    done = d5ray("run", "benchmarks/step_lenet", *short, "--json", seconds=280)
    assert done.code == 2, done
    (run,) = list_runs(own_home / "runs")
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
    (run,) = list_runs(own_home / "runs")
    assert (run.row["status"], run.tables()["samples"].num_rows > 0) == ("interrupted", True)
