"""Claims about GPUs and Ray: every agent has one of its own, or shares one by choice; over the stand-in"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.actors.cluster.placement import Reservation
from d5ray.errors import ConfigurationError
from d5ray.networks.device import GPUDevice
from tests.conftest import Head, started_head
from tests.gpu.over_stand_in import environment
from tests.patience import patience

no_cupy = pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy itself is there")
PROGRAM = """
import json, os, sys
import numpy as np
import ray
import d5ray as d5

address, home, agents, gpus = sys.argv[1:]
experiment = d5.Experiment(
    model="lenet", dataset="digits", agents=int(agents), seed=1, batch_size=16, executor="cupy",
    optimizer=d5.optimizers.Momentum(0.05, 0.9), cpus_per_agent=0.25, evaluate=False, timeout_seconds=30.0,
    gpus_per_agent=json.loads(gpus),
)
try:
    with d5.launch(experiment, address=address, root=home, quiet=True) as group:
        group.train(steps=4, progress=False)
        visible = lambda self: os.environ["CUDA_VISIBLE_DEVICES"]
        found = {"seen": ray.get([agent.__ray_call__.remote(visible) for agent in group.agents])}
        models = [group.parameters(rank) for rank in range(int(agents))]
        found["parameters"] = [sum(float(np.abs(each).sum()) for each in model.values()) for model in models]
except d5.D5Error as error:
    found = {"error": str(error)}
print(json.dumps(found))
"""


SERVED = """
import json, sys
import numpy as np
import d5ray as d5

address, home, framework = sys.argv[1:]
experiment = d5.Experiment(
    model="lenet", dataset="digits", agents=2, seed=1, batch_size=16, executor=framework,
    distributed=d5.optimizers.ParameterServerSGD(), optimizer=d5.optimizers.Momentum(0.05, 0.9),
    servers=d5.Servers(shards=2, replicas=1), cpus_per_agent=0.25, evaluate=False,
    faults=d5.faults.FaultPolicy("restart"),
)
plan = d5.Faults().kill(server=0, at_seconds=0.5)
with d5.launch(experiment, address=address, root=home, quiet=True, faults=plan) as group:
    assert group.train(epochs=4, progress=False).completed
    names = [row["name"] for row in group.tables()["events"].to_pylist()]
    models = [np.concatenate([each.ravel() for each in group.parameters(rank).values()]) for rank in (0, 1)]
print(json.dumps({"restored": names.count("server_restored"), "models": [x.tolist() for x in models]}))
"""
SEARCHED = """
import json, sys
from ray import tune
import d5ray as d5

address, home, gpus = sys.argv[1:]
recipe = (
    {"model": "lenet", "dataset": "digits", "epochs": 1},
    {"agents": 1, "optimizer": d5.optimizers.SGD(0.1), "cpus_per_agent": 0.25, "executor": "cupy",
     "gpus_per_agent": 1.0},
    [d5.metrics.TestAccuracy() >= 0.0],
)
try:
    d5.tune(recipe, {"gpus_per_agent": [float(gpus)]}, trials=2, seeds=1, address=address, quiet=True)
except d5.D5Error as error:
    print(json.dumps({"error": str(error)}))
"""


@pytest.fixture(scope="module")
def two_gpus() -> Iterator[Head]:
    """A Ray head that has two GPUs, so far as Ray knows."""
    with started_head("--num-gpus=2", env=environment()) as head:
        yield head


def launched(head: Head, home: Path, agents: int, gpus: float | None) -> dict[str, Any]:
    return printed(PROGRAM, head, home, str(agents), json.dumps(gpus))


def printed(program: str, head: Head, home: Path, *arguments: str) -> dict[str, Any]:
    """What a program that trains there prints."""
    words = [sys.executable, "-c", program, head.address, str(home), *arguments]
    done = subprocess.run(
        words,
        env=os.environ | environment() | {"D5RAY_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(90),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@no_cupy
@pytest.mark.full
def test_every_agent_has_a_gpu_of_its_own(two_gpus: Head, tmp_path: Path) -> None:
    """NCCL refuses two ranks on one GPU; they have one model after an exchange by it."""
    found = launched(two_gpus, tmp_path, 2, None)
    assert sorted(found.get("seen", ())) == ["0", "1"], found
    assert found["parameters"][0] == found["parameters"][1] > 0


@no_cupy
@pytest.mark.full
def test_agents_share_gpus_by_choice_alone(two_gpus: Head, tmp_path: Path) -> None:
    """Three agents have no room on two GPUs, and the error says what to do; four have by halves."""
    refused = launched(two_gpus, tmp_path / "refused", 3, None)
    assert (
        "can place 2 agents of 0.25 CPU and 1 GPU each (its nodes have 2 CPUs and 2 GPUs)" in refused["error"]
    )
    assert "gpus_per_agent (with 0.5 two share a GPU)" in refused["error"]
    found = launched(two_gpus, tmp_path / "shared", 4, 0.5)
    assert sorted(found.get("seen", ())) == ["0", "0", "1", "1"], found
    assert len(set(found["parameters"])) == 1


@no_cupy
@pytest.mark.full
def test_servers_die_and_agents_on_gpus_go_on(two_gpus: Head, tmp_path: Path) -> None:
    """With the parameters that NumPy's agents have: pushes go on in another server's memory."""
    found, expected = (printed(SERVED, two_gpus, tmp_path / name, name) for name in ("cupy", "numpy"))
    assert found["restored"] == expected["restored"] == 1
    assert found["models"][0] == found["models"][1]
    np.testing.assert_allclose(found["models"][0], expected["models"][0], rtol=2e-3, atol=1e-4)


@no_cupy
@pytest.mark.full
def test_trials_that_no_node_has_gpus_for_are_refused(two_gpus: Head, tmp_path: Path) -> None:
    """One that takes three of two is refused as a whole, before any starts."""
    refused = printed(SEARCHED, two_gpus, tmp_path / "three", "3")["error"]
    assert "can place 0 agents of 0.25 CPU and 3 GPU each (its nodes have 2 CPUs and 2 GPUs)" in refused


def test_room_is_counted_by_what_is_scarce() -> None:
    room = Reservation(2.0, 0.5)
    assert room.places({"CPU": 8.0, "GPU": 1.0}) == 2 and room.places({"CPU": 8.0}) == 0
    assert (
        str(room) == "2 CPU and 0.5 GPU"
        and room.of([{"CPU": 8.0}, {"GPU": 1.0}]) == "8, 0 CPUs and 0, 1 GPUs"
    )
    assert Reservation(0.5).resources == {"CPU": 0.5} and str(Reservation(0.5)) == "0.5 CPU"


def test_the_device_of_an_experiment_is_that_of_its_executors() -> None:
    """The framework's own, or the one given; and shares of GPUs are those that Ray knows."""
    given: dict[str, Any] = {"model": "lenet", "dataset": "digits", "optimizer": d5.optimizers.SGD(0.1)}
    assert str(d5.Experiment(**given).device) == "cpu"
    assert d5.Experiment(**given, executor="cupy").device == GPUDevice()
    third = d5.Experiment(**given, executor_kwargs={"device": GPUDevice(2)})
    assert str(third.device) == "cuda:2"
    wrong: Any
    for wrong in (-1, 1.5, "one"):
        with pytest.raises(ConfigurationError, match="gpus_per_agent is"):
            d5.Experiment(**given, gpus_per_agent=wrong)
