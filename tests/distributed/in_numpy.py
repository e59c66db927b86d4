"""Experiments that take milliseconds to simulate: logistic regression in float64 NumPy, on random samples"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, final

import numpy as np
import pyarrow as pa

import d5ray as d5
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.group.group import Group
from d5ray.distributed.parameter_server.client import KINDS
from d5ray.distributed.simulation.world import SimulatedWorld, Simulation
from d5ray.experiment import Experiment
from d5ray.networks.executors.executor import Allocate, Evaluation, Executor
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.networks.executors.gradient_buckets import OnReady
from d5ray.simulated.group import SimulatedGroup
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.samplers.shards import Shards
from tests.agents import Rows

Array = np.ndarray[Any, Any]
CLASSES, FEATURES = 3, 6
SIZE = CLASSES * (FEATURES + 1)  # parameters
IDEAL = d5.simulation.UniformLinks(
    0.0, 1e30
)  # what happens at once happens in the order of the agents' own times
UNEVEN = d5.simulation.LogNormalTime(1e-3, 0.5)


@final
class Logistic(Executor):
    """Scores W a + b of features a, in float64; `total` is the sum of all gradients that it gave."""

    slots = (Slot("W", 0, (CLASSES, FEATURES)), Slot("b", CLASSES * FEATURES, (CLASSES,)))

    def __init__(self, seed: int) -> None:
        self.parameters = np.random.default_rng([seed, 77]).standard_normal(SIZE)
        self.gradients, self.buffers, self.counters = np.zeros(SIZE), np.zeros(0), ()
        self.total = np.zeros(SIZE)

    def inference(self, inputs: Array) -> Array:
        return scores(self.numpy_parameters(), inputs)

    def inference_and_backprop(self, inputs: Array, labels: Array, on_ready: OnReady | None = None) -> float:
        assert on_ready is None
        loss, self.gradients[...] = loss_and_gradient(self.parameters, inputs, labels)
        self.total += self.gradients
        return loss

    def evaluate(self, inputs: Array, labels: Array) -> Evaluation:
        right = self.inference(inputs).argmax(axis=1) == labels
        loss, _ = loss_and_gradient(self.parameters, inputs, labels)
        return Evaluation(loss, float(right.mean()))

    def numpy_parameters(self) -> Array:
        return np.array(self.parameters)

    def named_state(self) -> dict[str, Array]:
        return {}

    def use_buffers(self, allocate: Allocate) -> None:
        pass


def scores(x: Array, inputs: Array) -> Array:
    """(batch, classes) of parameters x (n,) and inputs (batch, 1, 1, features)."""
    W, b = x[: CLASSES * FEATURES].reshape(CLASSES, FEATURES), x[CLASSES * FEATURES :]
    return np.asarray(inputs.reshape(len(inputs), -1).astype(np.float64) @ W.T + b)


def loss_and_gradient(x: Array, inputs: Array, labels: Array) -> tuple[float, Array]:
    """The mean cross-entropy of softmax, and its gradient by x (n,)."""
    found = scores(x, inputs)
    found -= found.max(axis=1, keepdims=True)
    shares = np.exp(found)
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(-np.log(shares[rows, labels]).mean())
    shares[rows, labels] -= 1
    shares /= len(labels)
    features = inputs.reshape(len(inputs), -1).astype(np.float64)
    return loss, np.concatenate([(shares.T @ features).reshape(-1), shares.sum(axis=0)])


def logistic(model: object, model_kwargs: object, *, seed: int, **_: object) -> Executor:
    """An experiment's `executor`."""
    return Logistic(seed)


def samples(count: int, seed: int = 4) -> Split:
    rng = np.random.default_rng([seed, count])
    inputs = rng.standard_normal((count, 1, 1, FEATURES)).astype(np.float32)
    return Split(inputs, rng.integers(0, CLASSES, count))


def dataset(count: int = 96) -> Dataset:
    """Random samples with random labels: gradients stay large, and every agent's are its own."""
    return Dataset(f"random-{count}", samples(count), samples(20), tuple("abc"))


def experiment(rule: d5.DistributedOptimizer, base: d5.Optimizer | None = None, **changes: Any) -> Experiment:
    """Four agents with two samples a step each, twelve steps an epoch, unless said otherwise."""
    values: dict[str, Any] = {
        "model": Logistic, "executor": logistic, "dataset": dataset(),
        "optimizer": base or d5.optimizers.SGD(0.1),
        "distributed": rule, "agents": 4, "batch_size": 2, "seed": 3, "evaluate": False,
    }  # fmt: skip
    return Experiment(**(values | changes))


def gradient_of(wanted: Experiment, rank: int, step: int, x: Array) -> Array:
    """What this agent's step computes at x, times the batch's weight."""
    data = wanted.load_dataset().train
    assert wanted.agents is not None
    shards = Shards(len(data), wanted.agents, wanted.batch_size, wanted.train_sampler, wanted.seed)
    epoch, number = divmod(step, shards.steps_per_epoch)
    draw = list(shards.epoch(epoch, rank))[number]
    _, gradient = loss_and_gradient(x, data.inputs[draw.indices], data.labels[draw.indices])
    return gradient * draw.weight


def start_of(wanted: Experiment) -> Array:
    """x₀ (n,)."""
    return Logistic(wanted.seed).numpy_parameters()


def flat(group: SimulatedGroup, rank: int = 0) -> Array:
    """The parameters of an agent (n,)."""
    return np.concatenate([piece.ravel() for piece in group.parameters(rank).values()])


def schedule(group: SimulatedGroup) -> list[dict[str, Any]]:
    """The pushes and pulls of all agents: the rows of `events` with what stands in their detail."""
    rows = group.tables()["events"].to_pylist()
    return [row | json.loads(row["detail"]) for row in rows if row["name"] in KINDS]


def trained(
    wanted: Experiment,
    network: d5.simulation.Links = IDEAL,
    compute: d5.simulation.ComputeTime = UNEVEN,
    steps: int | None = None,
) -> Array:
    """The parameters of all agents (agents, n) after a simulation of an epoch, or of that many steps."""
    with d5.simulate(wanted, network, compute) as group:
        group.train(steps, progress=False)
        return np.stack([flat(group, rank) for rank in range(len(group.agents))])


@final
class Events(Rows):
    """A sink that keeps events alone."""

    def samples(self, batch: pa.RecordBatch) -> None:
        pass

    def frames(self, batch: pa.RecordBatch) -> None:
        pass


@contextmanager
def simulated_agents(
    wanted: Experiment, network: d5.simulation.Links, compute: d5.simulation.ComputeTime
) -> Iterator[tuple[Simulation, list[TrainingAgent]]]:
    """The agents of a simulation, joined, without a run's folder."""
    simulation = Simulation.of(network, compute, wanted.seed)
    assert wanted.agents is not None
    ranks = range(wanted.agents)
    agents = [
        TrainingAgent(rank, wanted, "run", "node", Events(), SimulatedWorld(simulation, rank))
        for rank in ranks
    ]
    try:
        for agent in agents:
            agent.build(wanted.load_dataset())

        def join(rank: int) -> None:
            group = Group("run", 0, rank, len(agents), timeout_seconds=wanted.timeout_seconds)
            agents[rank].join(group)

        together(simulation, [partial(join, rank) for rank in ranks])
        yield simulation, agents
    finally:
        simulation.clock.close()


def together(simulation: Simulation, calls: list[Any]) -> list[Any]:
    """The calls as tasks on the virtual clock; their results."""
    return simulation.clock.run(
        [simulation.clock.start(call, f"agent {rank}") for rank, call in enumerate(calls)]
    )
