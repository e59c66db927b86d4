"""The Python actor API on real Ray actors, against one process in plain PyTorch."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import AgentError, ConfigurationError, D5Error, PlacementError
from d5ray.frameworks.torch import build
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.reader import Run
from d5ray.training.samplers.shards import Shards
from tests.patience import patience

DIGITS = d5.datasets.load_dataset("digits")


def experiment(**changes: Any) -> d5.Experiment:
    """LeNet on digits; agents reserve nothing, so that any number fits."""
    values: dict[str, Any] = {
        "model": "lenet", "dataset": DIGITS, "optimizer": d5.optimizers.SGD(0.05), "agents": 2,
        "batch_size": 24,
        "seed": 3, "cpus_per_agent": 0.25, "evaluate": False,
    }  # fmt: skip
    return d5.Experiment.from_values(**(values | changes))


def flat(parameters: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """All parameters in one vector (n,)."""
    return np.concatenate([array.ravel() for array in parameters.values()])


def one_process(wanted: d5.Experiment, steps: int, momentum: float) -> np.ndarray[Any, Any]:
    """The oracle: plain PyTorch, one process, the union of the agents' samples in every step."""
    assert wanted.agents is not None
    torch.set_num_threads(1)
    module = build.module("lenet", {}, DIGITS.sample_shape, 10, seed=wanted.seed, threads=1)
    optimizer = torch.optim.SGD(module.parameters(), lr=wanted.optimizer.learning_rate, momentum=momentum)
    shards = Shards(len(DIGITS.train), wanted.agents, wanted.batch_size, wanted.train_sampler, wanted.seed)
    draws = [shards.draws(rank) for rank in range(wanted.agents)]
    for _ in range(steps):
        union = np.concatenate([next(draw).indices for draw in draws])
        optimizer.zero_grad()
        scores = module(torch.from_numpy(DIGITS.train.inputs[union]))
        labels = torch.from_numpy(DIGITS.train.labels[union])
        torch.autograd.backward(torch.nn.functional.cross_entropy(scores, labels))
        optimizer.step()
    return np.concatenate([tensor.detach().numpy().ravel() for tensor in module.parameters()])


def relative_difference(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """The largest difference, relative to the largest parameter."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.full
def test_agents_reach_the_parameters_of_one_process_on_the_union_of_their_samples() -> None:
    """Batch b on each of 4 agents with allreduce = batch 4 b in one process, after 20 steps, to 1e-5.

    The 15th step is an epoch's last, whose remainder is uneven over the agents.
    """
    wanted = experiment(agents=4, optimizer=d5.optimizers.Momentum(0.05, 0.9))
    with d5.launch(wanted) as group:
        group.train(steps=20, progress=False)
        found = [flat(group.parameters(rank)) for rank in range(4)]
    for parameters in found:
        np.testing.assert_array_equal(parameters, found[0])
    assert relative_difference(found[0], one_process(wanted, 20, momentum=0.9)) < 1e-5


def test_a_killed_agent_is_named_and_the_group_is_over() -> None:
    """SIGKILL of one of three; what was measured is kept."""
    with (
        pytest.raises(AgentError, match=r"TrainingAgent\(rank=2\) died"),
        d5.launch(experiment(agents=3)) as group,
    ):
        group.train(steps=5, progress=False)
        os.kill(group.places[2].pid, signal.SIGKILL)
        group.train(steps=100_000, progress=False)
    assert Run(group.folder).tables()["samples"].num_rows >= 3 * 13 * 5
    with pytest.raises(D5Error, match="has ended"):
        group.train(steps=1, progress=False)


@pytest.mark.full
def test_the_group_is_what_the_api_promises() -> None:
    """Handles, names of actors, parameters by name, wrong numbers, close twice, tables after the close."""
    with d5.launch(experiment(), quiet=True) as group:
        assert len(group.agents) == 2
        assert type(group.agents[0]).__name__ == "ActorHandle"
        for wrong in ({"steps": 0}, {"steps": 1.5}, {"epochs": 0}, {"epochs": "two"}):
            with pytest.raises(ConfigurationError, match="integer of at least 1"):
                group.train(**wrong)
        before = group.parameters()
        outcome = group.train(epochs=1, progress=False)
        assert outcome.step == -(-len(DIGITS.train) // 48)
        after = group.parameters()
        assert before.keys() == after.keys()
        assert all(before[name].shape == after[name].shape for name in before)
        assert any((before[name] != after[name]).any() for name in before)
        for value in after.values():
            value[...] = 0.0  # the caller's own
        assert all((group.parameters()[name] != after[name]).any() for name in after)
    group.close()
    assert group.metrics().num_rows == Run(group.folder).row["rows"]


LOADING = """
import subprocess, threading
import numpy as np
from d5ray.actors.group.loading import load_meanwhile

class Computed:
    def load_dataset(self):
        square = np.ones((400, 400))
        while forks < 20:
            square @ square

forks = 0
loading = threading.Thread(target=load_meanwhile, args=(Computed(),), daemon=True)
loading.start()
while loading.is_alive():
    subprocess.run(["true"], preexec_fn=lambda: None)
    forks += 1
print(forks)
"""


@pytest.mark.full
def test_a_data_set_is_loaded_while_the_process_forks() -> None:
    """Twenty times, as it does when Ray starts: OpenBLAS with threads would wait for ever."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2")
    done = subprocess.run(
        [sys.executable, "-c", LOADING], env=os.environ | threads, capture_output=True, text=True,
        timeout=patience(90),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 20


def test_more_processes_than_the_machine_has_memory_for_are_refused_before_any_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error says what they need, what there is, how many fit, and what to do instead."""
    monkeypatch.setattr("d5ray.actors.cluster.placement.AGENT_BYTES", 1 << 50)
    begin = time.monotonic()
    with pytest.raises(
        PlacementError, match=r"^3 agents are .* 3145728 GiB in all, .*: set agents=1 at most, join .*"
    ):
        d5.launch(experiment(agents=3))
    assert time.monotonic() - begin < patience(30)


@pytest.mark.full
def test_a_relative_path_begins_where_the_program_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents work in the folder in which Ray was started: they save, and go on, in that of the program."""
    with d5.launch(experiment(), quiet=True):
        pass
    monkeypatch.chdir(tmp_path)
    saving = experiment(events=(d5.events.Checkpoint("saved", every_steps=3),))
    with d5.launch(saving, quiet=True) as group:
        group.train(3, progress=False)
    assert (tmp_path / "saved" / "step-00000003").is_dir()
    with d5.launch(experiment(), resume="saved", quiet=True) as group:
        assert group.outcome.step == 3


@pytest.mark.full
def test_every_row_arrives_exactly_once() -> None:
    """Expected against found over two calls of train, with evaluations at the epochs' ends and at the end."""
    wanted = experiment(evaluate=True, monitor_seconds=0)  # whose rows come when they come
    steps_per_epoch = -(-len(DIGITS.train) // 48)
    with d5.launch(wanted) as group:
        group.train(steps=7, progress=False)
        group.train(steps=steps_per_epoch, progress=False)
        folder = group.folder
        while_open = group.metrics().num_rows
    steps, evaluations = 7 + steps_per_epoch, 3
    assert while_open == 2 * (13 * steps + 3 * evaluations)
    run = Run(folder)
    keys = sql(
        run, "select agent, min(seq) lo, max(seq) hi, count(distinct seq) n from samples group by agent"
    )
    assert [row["lo"] for row in keys.to_pylist()] == [0, 0]
    assert [row["hi"] + 1 for row in keys.to_pylist()] == [row["n"] for row in keys.to_pylist()]
    assert run.row["rows"] == while_open == run.tables()["samples"].num_rows
    assert run.row["status"] == "completed"


class NeighborSGD(d5.DistributedOptimizer):
    """x_i ← Σ_j W_ij x_j − η g_i(x_i)   (Lian et al., arXiv:1705.09056); defined here, installed nowhere."""

    invariant = "mean"

    def step(self, batch: d5.Batch) -> None:
        gradient = self.gradient(batch)
        self.communication.neighbor_average(self.x)
        self.apply(gradient)


@pytest.mark.full
def test_an_optimizer_of_the_users_own_runs_on_the_agents_and_does_what_its_formula_says() -> None:
    """D-PSGD on a ring of four: 5 steps equal the same recursion in NumPy over gradients of plain PyTorch."""
    ring = d5.topologies.Ring(4)
    wanted = experiment(distributed=NeighborSGD, topology=ring, agents=None, optimizer=d5.optimizers.SGD(0.1))
    with d5.launch(wanted) as group:
        group.train(steps=5, progress=False)
        found = np.stack([flat(group.parameters(rank)) for rank in range(4)])

    modules = [build.module("lenet", {}, DIGITS.sample_shape, 10, seed=3, threads=1) for _ in range(4)]
    x = np.stack([np.concatenate([p.detach().numpy().ravel() for p in m.parameters()]) for m in modules])
    shards = Shards(len(DIGITS.train), 4, 24, wanted.train_sampler, wanted.seed)
    draws = [shards.draws(rank) for rank in range(4)]
    for _ in range(5):
        gradients = []
        for rank, module in enumerate(modules):
            torch.nn.utils.vector_to_parameters(torch.from_numpy(x[rank]), module.parameters())
            indices = next(draws[rank]).indices
            module.zero_grad()
            scores = module(torch.from_numpy(DIGITS.train.inputs[indices]))
            labels = torch.from_numpy(DIGITS.train.labels[indices])
            torch.autograd.backward(torch.nn.functional.cross_entropy(scores, labels))
            gradients.append(
                np.concatenate([p.grad.numpy().ravel() for p in module.parameters() if p.grad is not None])
            )
        x = (ring.weights() @ x - 0.1 * np.stack(gradients)).astype(np.float32)
    assert relative_difference(found, x) < 1e-5
    assert np.abs(found[0] - found[2]).max() > 1e-4  # the agents do differ


class Broken(d5.DistributedOptimizer):
    """Fails at its third step on one agent."""

    def step(self, batch: d5.Batch) -> None:
        self.gradient(batch)
        if batch.step == 2 and self.communication.rank == 1:
            raise ZeroDivisionError("a mistake of the user's")
        self.communication.barrier()


@pytest.mark.full
def test_an_exception_in_the_users_step_names_agent_step_and_line() -> None:
    """The error of the driver carries the user's traceback; the other agent does not hang."""
    with pytest.raises(AgentError) as caught, d5.launch(experiment(distributed=Broken)) as group:
        group.train(steps=10, progress=False)
    text = str(caught.value)
    assert "TrainingAgent(rank=1) failed at step 2" in text
    assert "a mistake of the user's" in text
    assert "self.communication.rank == 1" in text or "raise ZeroDivisionError" in text
    assert Run(group.folder).row["status"] == "failed"


@pytest.mark.full
def test_agents_that_do_not_wait_are_told_that_one_has_ended_the_run() -> None:
    wanted = experiment(
        distributed=d5.optimizers.ADPSGD(), optimizer=d5.optimizers.Momentum(0.05, 0.9), epochs=2000,
        events=(d5.events.StopAfterSteps(30), d5.events.SaveWrongSamples()), evaluate=True,
    )  # fmt: skip
    with d5.launch(wanted, quiet=True) as group:
        outcome = group.train(progress=False)
        assert (outcome.status, outcome.reason) == ("completed", "30 steps are done")
    assert (group.folder / "wrong_samples.parquet").exists()
    assert Run(group.folder).row["stop_reason"] == "30 steps are done"


def test_what_cannot_be_pickled_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """An optimizer that holds an open file: the error says what to do."""

    class WithFile(d5.DistributedOptimizer):
        def __init__(self) -> None:
            self.file = (tmp_path / "log").open("w")

        def step(self, batch: d5.Batch) -> None:
            self.apply(self.gradient(batch))

    own = WithFile()
    with pytest.raises(ConfigurationError, match="cannot be pickled"):
        d5.launch(experiment(distributed=own))
    own.file.close()
