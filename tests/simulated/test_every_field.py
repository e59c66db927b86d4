"""Every field of `Experiment`: agents with real communicators beside simulated ones, or refused by name"""

from typing import Any

import networkx
import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.identity.fields import fields_of
from d5ray.training.batches.epochs import Epochs
from tests.agents import agents_in_threads
from tests.beside_kits import cases_of
from tests.together import together

RULES, SCHEDULES, GRAPHS = d5.optimizers, d5.schedules, d5.topologies
DIGITS = d5.datasets.load_dataset("digits")
MEASURED = ("loss", "test_loss", "test_accuracy", "global_batch", "learning_rate")
PLAIN: dict[str, Any] = {
    "model": "mlp", "dataset": DIGITS, "optimizer": RULES.Momentum(0.05, 0.9), "agents": 3, "batch_size": 50,
    "epochs": 2, "seed": 3, "communicator": "shared_memory", "timeout_seconds": 40.0,
}  # fmt: skip
SERVED = {"distributed": RULES.ParameterServerSGD()}
VALUES: dict[str, tuple[Any, ...]] = {  # by field, what it is beside `PLAIN`
    "model": (torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)), "lenet"),
    "dataset": ("digits",), "distributed": (RULES.LocalSGD(7),), "agents": (1, 4), "epochs": (3,),
    "seed": (8,),
    "optimizer": (
        RULES.Adam(0.01), RULES.Scheduled(RULES.SGD(0.1), learning_rate=SCHEDULES.Piecewise(0.1, {1: 0.01}))
    ),
    "batch_size": (SCHEDULES.Piecewise(20, {1: 60}),), "model_kwargs": ({"hidden": (20,)},),
    "loss": (torch.nn.CrossEntropyLoss(label_smoothing=0.1),), "executor": ("numpy",),
    "executor_kwargs": ({"device": "cpu"},), "precision": ("float64", "bfloat16"), "accumulate": (2,),
    "recompute": (True,), "train_sampler": (d5.samplers.OrderedSampler(), d5.samplers.ChoiceSampler()),
    "transformations": ((d5.transformations.RandomFlip(),),), "prefetch": (0,), "encryption": (False,),
    "threads": (2,), "cpus_per_agent": (2.0,), "gpus_per_agent": (0,), "timeout_seconds": (60.0,),
    "stuck_seconds": (0.0,), "heartbeat_seconds": (1.0,),
    "slow": ((d5.faults.Slowdown(agent=1, factor=1.5),),),
    "events": ((d5.events.StopAfterSteps(5),), (d5.events.StopAtAccuracy(0.5),)), "evaluate": (False,),
    "evaluate_test": (True,), "warmup_steps": (0,), "monitor_seconds": (0,), "mirror_seconds": (0,),
    "save_model": ("mean",), "save_model_bytes": (10,), "name": ("another",),
}  # fmt: skip
DPSGD = {"distributed": RULES.DPSGD(), "topology": GRAPHS.Ring(3)}
CASES: dict[str, list[dict[str, Any]]] = {
    **{name: [{name: value} for value in values] for name, values in VALUES.items()},
    "topology": [DPSGD, DPSGD | {"topology": GRAPHS.Custom(networkx.path_graph(3))}],
    "mesh": cases_of("parallel", lambda: [{"mesh": d5.Mesh(3, stages=2), "agents": None}]),
    "dataset_kwargs": [{"dataset": "digits", "dataset_kwargs": {"test_fraction": 0.3}}],
    "servers": [SERVED | {"servers": d5.Servers(shards=2)}],
    "communicator": [{"communicator": "socket", "agents": 2}],  # of three, sockets add others first
}
OF_THE_DRIVER = {  # on Ray and simulated: tests/actors/group/test_faults.py, test_replacing.py, and beside it
    "on_failure", "min_agents", "max_failures", "keep_batch", "scale_rate", "orphans", "late",
}  # fmt: skip
COMPILED = {"compile"}  # the same executor in both; it takes minutes
REFUSED = {"mesh"}

Rows = dict[tuple[int, int, str], float]  # what was measured, by rank, step and metric


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
    assert {field.name for field in fields_of(d5.Experiment)} == CASES.keys() | OF_THE_DRIVER | COMPILED


@pytest.mark.parametrize(
    "values", [pytest.param(each, id=f"{name} {n}") for name in CASES for n, each in enumerate(CASES[name])]
)
def test_the_simulation_is_the_real_run(values: dict[str, Any]) -> None:
    """The same parameters on every agent, losses, evaluations and batches, to the last bit."""
    wanted = d5.Experiment.from_values(**(PLAIN | values))
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
