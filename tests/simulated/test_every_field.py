"""Every field of `Experiment`: agents with real communicators beside simulated ones, or refused by name"""

from dataclasses import fields
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.training.batches.epochs import Epochs
from tests.agents import agents_in_threads
from tests.together import together

RULES, SCHEDULES, GRAPHS = d5.optimizers, d5.schedules, d5.topologies
DIGITS = d5.datasets.load_dataset("digits")
MEASURED = ("loss", "test_loss", "test_accuracy", "global_batch", "learning_rate")
PLAIN: dict[str, Any] = {
    "model": "mlp", "dataset": DIGITS, "optimizer": RULES.Momentum(0.05, 0.9), "agents": 3, "batch_size": 50,
    "epochs": 2, "seed": 3, "communicator": "shared_memory", "timeout_seconds": 40.0,
}  # fmt: skip
SERVED = {"distributed": RULES.ParameterServerSGD()}
CASES: dict[str, list[dict[str, Any]]] = {  # by field, what it is beside `PLAIN`
    "model": [
        {"model": torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))},
        {"model": "lenet"},
    ],
    "dataset": [{"dataset": "digits"}],
    "optimizer": [
        {"optimizer": RULES.Adam(0.01)},
        {"optimizer": RULES.Scheduled(RULES.SGD(0.1), learning_rate=SCHEDULES.Piecewise(0.1, {1: 0.01}))},
    ],
    "distributed": [
        {"distributed": RULES.LocalSGD(7)},
        {"distributed": RULES.DPSGD(), "topology": GRAPHS.Ring(3)},
    ],
    "topology": [{"distributed": RULES.DPSGD(), "topology": GRAPHS.Custom(networkx.path_graph(3))}],
    "agents": [{"agents": 1}, {"agents": 4}],
    "mesh": [{"mesh": d5.Mesh(3, stages=2), "agents": None}],
    "batch_size": [{"batch_size": SCHEDULES.Piecewise(20, {1: 60})}],
    "epochs": [{"epochs": 3}],
    "seed": [{"seed": 8}],
    "model_kwargs": [{"model_kwargs": {"hidden": (20,)}}],
    "loss": [{"loss": torch.nn.CrossEntropyLoss(label_smoothing=0.1)}],
    "executor": [{"executor": "numpy"}],
    "executor_kwargs": [{"executor_kwargs": {"device": "cpu"}}],
    "precision": [{"precision": name} for name in ("float64", "bfloat16")],
    "accumulate": [{"accumulate": 2}],
    "recompute": [{"recompute": True}],
    "dataset_kwargs": [{"dataset": "digits", "dataset_kwargs": {"test_fraction": 0.3}}],
    "train_sampler": [
        {"train_sampler": d5.samplers.OrderedSampler()},
        {"train_sampler": d5.samplers.ChoiceSampler()},
    ],
    "transformations": [{"transformations": (d5.transformations.RandomFlip(),)}],
    "prefetch": [{"prefetch": 0}],
    "servers": [SERVED | {"servers": d5.Servers(shards=2)}],
    "communicator": [{"communicator": "socket", "agents": 2}],  # of three, sockets add others first
    "encryption": [{"encryption": False}],
    "threads": [{"threads": 2}],
    "cpus_per_agent": [{"cpus_per_agent": 2.0}],
    "gpus_per_agent": [{"gpus_per_agent": 0}],
    "timeout_seconds": [{"timeout_seconds": 60.0}],
    "stuck_seconds": [{"stuck_seconds": 0.0}],
    "heartbeat_seconds": [{"heartbeat_seconds": 1.0}],
    "slow": [{"slow": (d5.faults.Slowdown(agent=1, factor=1.5),)}],
    "events": [{"events": (d5.events.StopAfterSteps(5),)}, {"events": (d5.events.StopAtAccuracy(0.5),)}],
    "evaluate": [{"evaluate": False}],
    "evaluate_test": [{"evaluate_test": True}],
    "warmup_steps": [{"warmup_steps": 0}],
    "monitor_seconds": [{"monitor_seconds": 0}],
    "mirror_seconds": [{"mirror_seconds": 0}],
    "save_model": [{"save_model": "mean"}],
    "save_model_bytes": [{"save_model_bytes": 10}],
    "name": [{"name": "another"}],
}
OF_THE_DRIVER = {  # on Ray and simulated: tests/actors/group/test_faults.py, test_replacing.py, and beside it
    "on_failure", "min_agents", "max_failures", "keep_batch", "scale_rate", "orphans", "late",
}  # fmt: skip
COMPILED = {"compile"}  # the same executor in both; it takes minutes
REFUSED = {"mesh"}

Rows = dict[tuple[int, int, str], float]  # what was measured, by rank, step and metric


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of runs for each test."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path / "home"))


def measured(rows: list[dict[str, Any]]) -> Rows:
    return {(r["rank"], r["step"], r["metric"]): r["value"] for r in rows if r["metric"] in MEASURED}


def with_communicators(wanted: d5.Experiment) -> tuple[list[Any], Rows]:
    """Parameters by rank and what was measured, of agents in threads, as they are in processes."""
    with agents_in_threads(wanted, wanted.load_dataset()) as (agents, sinks):
        epochs: Epochs = agents[0].epochs()
        outcomes = together(lambda rank: agents[rank].train(epochs.begin(wanted.epochs)), len(agents))
        assert all(outcome.completed for outcome in outcomes), outcomes
        return [agent.flat_parameters() for agent in agents], measured([r for s in sinks for r in s.all()])


def simulated(wanted: d5.Experiment) -> tuple[list[Any], Rows]:
    with d5.simulate(wanted) as group:
        assert group.train(progress=False).completed
        return [agent.flat_parameters() for agent in group.agents], measured(group.metrics().to_pylist())


def test_every_field_has_a_case() -> None:
    """A field that comes is tried in both worlds."""
    assert {field.name for field in fields(d5.Experiment)} == CASES.keys() | OF_THE_DRIVER | COMPILED


@pytest.mark.parametrize(
    "values", [pytest.param(each, id=f"{name} {n}") for name in CASES for n, each in enumerate(CASES[name])]
)
def test_the_simulation_is_the_real_run(values: dict[str, Any]) -> None:
    """The same parameters on every agent, losses, evaluations and batches, to the last bit."""
    wanted = d5.Experiment(**(PLAIN | values))
    if values.keys() & REFUSED:
        with pytest.raises(ConfigurationError, match=r"mesh|Mesh"):
            d5.simulate(wanted)
        return
    (real, real_rows), (found, rows) = with_communicators(wanted), simulated(wanted)
    assert all(np.array_equal(a, b) for a, b in zip(real, found, strict=True))
    assert {key: str(value) for key, value in real_rows.items()} == {
        key: str(value) for key, value in rows.items()
    }
    assert any(metric == "loss" for *_, metric in rows)
