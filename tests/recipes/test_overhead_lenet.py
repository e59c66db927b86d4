"""d5ray against plain PyTorch: both sides do the same work, and the recipe measures them as it says."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.overhead_lenet import recipe as overhead_lenet
from benchmarks.step_times import StepTimes
from benchmarks.torch_loops import HandWrittenLoop, Task
from benchmarks.trainers import Agents, DataParallel, HandWritten
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.errors import ConfigurationError
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.store import Run, list_runs
from d5ray.recipes.engine.recipe import Recipe
from d5ray.recipes.jobs.whole_batches import whole_batches
from d5ray.training.datasets import Dataset, load_dataset
from d5ray.training.optimizers.gradient_descent import SGD, Momentum
from tests.conftest import d5ray, marked, started
from tests.patience import patience

Vector = np.ndarray[Any, Any]
STEPS = 20
JOB = StepTimes(
    comparisons=((Agents(1), HandWritten()), (Agents(2, "socket"), DataParallel(2))),
    model="lenet",
    dataset="digits",
    optimizer=Momentum(0.05, 0.9),
    batch_size=64,
    seed=3,
)


class Nowhere:
    """Takes an agent's rows and drops them."""

    def samples(self, batch: Any) -> None: ...

    def frames(self, batch: Any) -> None:
        pass

    def events(self, batch: Any) -> None: ...

    def file(self, name: str, data: bytes) -> None: ...

    def drain(self) -> None: ...


@pytest.fixture(scope="module")
def data() -> Dataset:
    return whole_batches(load_dataset("digits"), 128)


def task(data: Dataset) -> Task:
    return Task("lenet", data, 64, 0.05, 0.9, JOB.train_sampler, seed=3, threads=1)


def agents_parameters(data: Dataset, agents: int, steps: int) -> list[Vector]:
    """The flat parameters of d5ray's agents after `steps` steps, in threads of this process."""
    experiment = JOB.experiment(data, agents, "socket")
    made = [TrainingAgent(rank, experiment, "run", "node", Nowhere()) for rank in range(agents)]
    for agent in made:
        agent.build(data)
    rendezvous = Rendezvous()
    groups = [Group("run", 0, rank, agents, rendezvous.address) for rank in range(agents)]

    def live(agent: TrainingAgent, group: Group) -> Vector:
        agent.join(group)
        outcome = agent.train(steps) if steps else None
        assert outcome is None or outcome.completed, outcome
        named = agent.parameters()
        agent.leave()
        return np.concatenate([values.ravel() for values in named.values()])

    with closing(rendezvous), ThreadPoolExecutor(agents) as threads:
        return list(threads.map(live, made, groups))


def distance(a: Vector, b: Vector) -> float:
    """‖a − b‖ / ‖b‖ in float64."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    return float(np.linalg.norm(x - y) / np.linalg.norm(y))


def test_one_agent_and_the_hand_written_loop_end_with_equal_parameters(data: Dataset) -> None:
    (begin,) = agents_parameters(data, 1, 0)
    (ours,) = agents_parameters(data, 1, STEPS)
    loop = HandWrittenLoop(task(data))
    assert distance(loop.parameters(), begin) == 0
    trained = loop.train(STEPS)
    assert len(trained.marks) == STEPS + 1 and (np.diff(trained.marks) > 0).all()
    assert distance(ours, begin) > 0.01  # they have gone somewhere
    assert distance(ours, loop.parameters()) < 1e-5


MEMBER = """
import sys
import numpy as np
from benchmarks.torch_loops import DistributedDataParallelLoop, Task
from d5ray.recipes.jobs.whole_batches import whole_batches
from d5ray.training.datasets import load_dataset
from d5ray.training.samplers import ShuffleSampler

rank, port, steps, path = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
data = whole_batches(load_dataset("digits"), 128)
loop = DistributedDataParallelLoop(Task("lenet", data, 64, 0.05, 0.9, ShuffleSampler(), 3, 1), rank, 2)
if rank == 0:
    port = loop.host_store()
    print(port, flush=True)
loop.join(port)
loop.train(steps)
np.save(path, loop.parameters())
loop.close()
"""


@pytest.mark.slow
def test_two_agents_and_distributed_data_parallel_end_with_equal_parameters(
    data: Dataset, tmp_path: Path
) -> None:
    """The two ranks see different samples; so does nobody who leaves out the exchange end up there."""
    files = [tmp_path / f"{rank}.npy" for rank in range(2)]

    def member(rank: int, port: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", MEMBER, str(rank), port, str(STEPS), str(files[rank])]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    with member(0, "0") as first:
        assert first.stdout is not None
        with member(1, first.stdout.readline().strip()) as second:
            ours = agents_parameters(data, 2, STEPS)
            assert (first.wait(patience(60)), second.wait(patience(60))) == (0, 0)
    theirs = [np.load(file) for file in files]
    assert distance(ours[0], ours[1]) == 0
    assert distance(theirs[0], theirs[1]) == 0
    assert distance(ours[0], theirs[0]) < 1e-5
    (alone,) = agents_parameters(data, 1, STEPS)
    assert distance(ours[0], alone) > 1e-3


def test_every_step_of_an_epoch_is_a_whole_batch_of_different_samples(data: Dataset) -> None:
    """1,408 of the 1,438 samples: 22 batches of 64, each sample once."""
    assert len(data.train) == 1408
    assert (data.train.inputs == load_dataset("digits").train.inputs[:1408]).all()
    batches = list(islice(HandWrittenLoop(task(data)).batches, 22))
    assert {len(labels) for _, labels in batches} == {64}
    seen = np.concatenate([inputs.numpy().reshape(64, -1) for inputs, _ in batches])
    given = data.train.inputs.reshape(1408, -1)
    assert (np.sort(seen, axis=0) == np.sort(given, axis=0)).all()


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="choose a smaller batch_size"):
        whole_batches(load_dataset("digits"), 1439)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"optimizer": SGD(0.1)}, "Momentum"),
        ({"pairs": 0}, "pairs"),
        ({"steps": 0}, "steps"),
        ({"batch_size": 0}, "batch_size"),
        ({"model": "lanet"}, "lenet"),
        ({"dataset": "digitz"}, "digits"),
        ({"dataset": 3}, "dataset"),
        ({"threads": 0}, "threads"),
    ],
)
def test_a_wrong_value_is_said_before_anything_starts(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        replace(JOB, **change)


def test_the_recipe_makes_its_job_and_refuses_what_is_fixed() -> None:
    parts = (overhead_lenet.FIXED, overhead_lenet.MUTABLE, overhead_lenet.METRICS)
    recipe = Recipe.of(*parts, name="overhead_lenet", overrides={"pairs": 6})
    job = recipe.made()
    assert isinstance(job, StepTimes)
    assert (job.pairs, job.optimizer, job.name) == (6, Momentum(0.05, 0.9), "overhead_lenet")
    with pytest.raises(ConfigurationError, match="FIXED"):
        Recipe.of(*parts, name="overhead_lenet", overrides={"model": "mlp"})


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A D5RAY_HOME with nothing in it."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    yield tmp_path / "runs"


SHORT = ("--set", "warmup_steps=5", "--set", "steps=20")


@pytest.mark.slow
def test_one_pair_gives_every_row_of_every_side_and_no_verdict(own_home: Path) -> None:
    """One run, with the steps of seven processes; without an interval nothing is decided: exit code 2."""
    done = d5ray("run", "benchmarks/overhead_lenet", *SHORT, "--set", "pairs=1", "--json", seconds=250)
    assert (done.code, done.json["verdict"]) == (2, "INCONCLUSIVE"), done
    assert [row["n"] for row in done.json["criteria"]] == [1, 1, 1, 1, 1]
    assert all(row["value"] > 0 for row in done.json["criteria"])
    (run,) = list_runs(own_home)
    assert {path.suffix for path in run.folder.iterdir()} == {".parquet"}
    rows = sql(
        run, "select scope, phase, count(*) n from samples where metric = 'step_time' group by all"
    ).to_pylist()
    found = {(row["scope"], row["phase"]): row["n"] for row in rows}
    ranks = {"d5ray[1]": 1, "d5ray with events[1]": 1, "pytorch[1]": 1, "d5ray socket[2]": 2, "ddp[2]": 2}
    assert found == {(name, "train"): 20 * n for name, n in ranks.items()} | {
        (name, "warmup"): 5 * n for name, n in ranks.items()
    }
    evaluated = sql(run, "select scope, rank, value from samples where metric = 'test_accuracy'")
    assert sorted(evaluated["scope"].to_pylist()) == sorted(
        name for name, n in ranks.items() for _ in range(n)
    )
    assert all(0.05 < accuracy <= 1 for accuracy in evaluated["value"].to_pylist())
    recorded = sql(run, "select distinct scope from samples where metric = 'record_time'")
    assert sorted(recorded["scope"].to_pylist()) == ["d5ray socket[2]", "d5ray with events[1]", "d5ray[1]"]
    assert not done.left()


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition holds within the time."""
    deadline = time.monotonic() + patience(seconds)
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@pytest.mark.slow
@pytest.mark.parametrize("later", [0.0, 3.0])  # s after the first rows: in the midst of one turn or another
def test_an_interrupt_ends_it_within_seconds_and_keeps_what_was_measured(
    own_home: Path, later: float
) -> None:
    def rows() -> int:
        runs = list_runs(own_home)
        return int(runs[0].tables()["samples"].num_rows) if runs else 0

    with started("run", "benchmarks/overhead_lenet", *SHORT, "--set", "pairs=50") as command:
        assert eventually(lambda: rows() > 0, 60)
        time.sleep(later)
        command.process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        out, err = command.process.communicate(timeout=patience(60))
        assert time.monotonic() - begin < patience(5), err
        assert command.process.returncode == 130, err
        assert "INCONCLUSIVE" in out
        assert "Traceback" not in err
        assert eventually(lambda: marked(command.marker) == {}, 5), marked(command.marker)
    (run,) = list_runs(own_home)
    assert (run.row["status"], run.row["verdict"]) == ("interrupted", "INCONCLUSIVE")
    assert Run(run.folder).tables()["samples"].num_rows > 0
    assert {path.suffix for path in run.folder.iterdir()} == {".parquet"}
