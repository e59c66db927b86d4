"""Agents of a mesh go on from a checkpoint as if they had never stopped: every bit of every share"""

import importlib.util
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import d5ray as d5
from d5ray.distributed.checkpoints.checkpoint import Checkpoints
from d5ray.distributed.checkpoints.folder import CheckpointFolder
from d5ray.errors import ConfigurationError, StorageError
from d5ray.frameworks.host import device_name, host_copy, host_view
from d5ray.frameworks.torch import training_network_of
from tests.agents import agents_in_threads
from tests.distributed.checkpoints.test_resume import DATA
from tests.together import together

SAVED, STEPS = 5, 10  # in the second epoch and in the third, of 4 steps where there are two replicas


@cache
def network() -> d5.Network:
    """Something of everything: running statistics, a counter, random draws."""
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(16, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Dropout(0.3), nn.Linear(12, 8),
        nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3),
    )  # fmt: skip
    return training_network_of(module, np.zeros((1, 1, 4, 4), np.float32))


SPLIT: dict[str, Any] = {
    "node_linear_1": d5.networks.ByColumns(),
    "node_linear_2": d5.networks.ByRows(),
}
ADAM, MOMENTUM = d5.optimizers.Adam(0.01), d5.optimizers.Momentum(0.05, 0.9)
CASES: dict[str, dict[str, Any]] = {
    "1F1B": {"mesh": d5.Mesh(2, 2, micro_batches=3), "optimizer": ADAM},
    "GPipe": {"mesh": d5.Mesh(1, 3, schedule=d5.pipelines.GPipe(), recompute=True), "optimizer": MOMENTUM},
    "interleaved": {"mesh": d5.Mesh(1, 2, schedule=d5.pipelines.Interleaved(2))},
    "parts": {"mesh": d5.Mesh(2, parts=2, split=SPLIT, micro_batches=2)},
    "stages and parts": {"mesh": d5.Mesh(2, 2, parts=2, split=SPLIT, micro_batches=2), "optimizer": ADAM},
    "replicas alone": {"mesh": d5.Mesh(3)},
    "gossip": {
        "mesh": d5.Mesh(3, 2, micro_batches=2),
        "distributed": d5.optimizers.DPSGD(), "topology": d5.topologies.Ring(3),
    },
    "error feedback": {
        "mesh": d5.Mesh(2, 2),
        "distributed": d5.optimizers.CompressedSGD(d5.compression.ErrorFeedback(d5.compression.TopK(0.2))),
    },
    "sharded": {"mesh": d5.Mesh(2, 2), "distributed": d5.optimizers.ShardedAllreduceSGD(), "optimizer": ADAM},
    "servers": {
        "mesh": d5.Mesh(2, 2),
        "distributed": d5.optimizers.ParameterServerSGD(), "servers": d5.Servers(shards=2),
    },
}  # fmt: skip


def experiment(**changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": network(), "dataset": DATA, "optimizer": MOMENTUM, "batch_size": 16, "seed": 3,
        "executor": "numpy",
        "timeout_seconds": 30.0, "warmup_steps": 0,
    }  # fmt: skip
    return d5.Experiment.from_values(**(values | changes))


def course(wanted: d5.Experiment, steps: int, resume: Checkpoints | None = None) -> Any:
    """The losses by rank and step, and every bit that the agents have then."""
    with agents_in_threads(wanted, DATA) as (agents, rows):
        if resume is not None:
            together(lambda rank: agents[rank].resume(resume.path, resume.step), len(agents))
        outcomes = together(lambda rank: agents[rank].train(steps), len(agents))
        assert all(outcome.completed for outcome in outcomes), outcomes
        losses = {
            (rank, row["step"]): row["value"]
            for rank, own in enumerate(rows) for row in own.all() if row["metric"] == "loss"
        }  # fmt: skip
        bits = []
        for agent in agents:
            executor, states = agent.executor, agent.connections.optimizer._states
            bits.append([agent.flat_parameters().tobytes(), host(executor.buffers).tobytes()])
            bits[-1] += [host(each).tobytes() for each in executor.counters]
            bits[-1] += [host(each).tobytes() for own in states.values() for each in own.values()]
        return losses, bits


def host(value: Any) -> Any:
    """The numbers of an array on a device, of one in host memory, or of a plain number."""
    if device_name(value) != "cpu":
        return host_copy(value)
    return host_view(value) if hasattr(value, "data_ptr") else np.asarray(value)


@pytest.mark.parametrize("framework", ["numpy", *(["cupy"] if importlib.util.find_spec("cupy") else [])])
@pytest.mark.parametrize("name", CASES)
def test_a_mesh_goes_on_bit_for_bit(name: str, framework: str, tmp_path: Path) -> None:
    """Parameters, state of both optimizers, running statistics, masks of Dropout, the order of the data."""
    if framework == "cupy" and name == "error feedback":
        pytest.skip("compressors compute in host memory")
    wanted = experiment(**CASES[name], executor=framework)
    event = d5.events.Checkpoint(tmp_path, every_steps=SAVED, keep=0)
    losses, expected = course(replace(wanted, events=(event,)), STEPS)
    rest, found = course(wanted, STEPS - SAVED, Checkpoints(str(tmp_path), SAVED))
    assert rest == {at: loss for at, loss in losses.items() if at[1] >= SAVED}
    assert found == expected
    assert len({own[0] for own in found}) >= wanted.mesh.stages  # type: ignore[union-attr]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with a checkpoint of two replicas in two stages."""
    event = d5.events.Checkpoint(tmp_path, every_steps=2)
    course(experiment(mesh=d5.Mesh(2, 2), evaluate=False, events=(event,)), 2)
    return tmp_path


def test_the_manifest_knows_every_share(saved: Path, tmp_path: Path) -> None:
    """The tensors of a replica's files are those of the whole network, each once; of agents with whole
    networks it names the tensors, and nothing of shares."""
    manifest = CheckpointFolder(str(saved)).manifest(2)
    assert sorted(manifest["files"]) == [f"agent-{rank}.safetensors" for rank in range(4)]
    whole = {name: value.shape for name, value in network().parameters.items()}
    for replica in range(2):
        files = [manifest["files"][f"agent-{2 * replica + stage}.safetensors"] for stage in range(2)]
        listed = [(name, tuple(shape)) for file in files for name, _, shape in file["tensors"]]
        assert dict(listed) == whole and len(listed) == len(whole)
    event = d5.events.Checkpoint(tmp_path / "whole", every_steps=2)
    course(experiment(agents=2, evaluate=False, events=(event,)), 2)
    manifest = CheckpointFolder(str(tmp_path / "whole")).manifest(2)
    assert manifest["format"] == 2 and manifest["agents"] == 2
    assert [name for name, _, _ in manifest["tensors"]] == list(whole)
    assert all(file.keys() == {"bytes", "crc32"} for file in manifest["files"].values())


def test_another_mesh_is_refused_with_the_one_that_fits(saved: Path) -> None:
    """And a checkpoint that lacks a share: all agents say so, or lose who does."""
    found = Checkpoints(str(saved), 2)
    found.check(experiment(mesh=d5.Mesh(2, 2), epochs=9).describe())
    for mesh in (d5.Mesh(2, 3), d5.Mesh(1, 4)):
        with pytest.raises(
            ConfigurationError, match=r"by a mesh with .*stages=2.*, here are a mesh with .*="
        ):
            found.check(experiment(mesh=mesh).describe())
    manifest = saved / "step-00000002" / "checkpoint.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"agents": 2}))
    with pytest.raises(ConfigurationError, match="was written by 2 agents, when others had died"):
        course(experiment(mesh=d5.Mesh(2, 2)), 1, found)
    file = saved / "step-00000002" / "agent-3.safetensors"
    file.write_bytes(file.read_bytes()[:-5])
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"agents": 4}))
    with pytest.raises(StorageError, match=r"agent-3\.safetensors is damaged"):
        course(experiment(mesh=d5.Mesh(2, 2)), 1, found)
