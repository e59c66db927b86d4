"""Claims about distributed optimizers: what a step may use, D-PSGD and allreduce SGD against NumPy."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d5ray.distributed import backends
from d5ray.distributed.allreduce import AllreduceSGD
from d5ray.distributed.communicator import Communicator, Group
from d5ray.distributed.optimizer import DistributedOptimizer
from d5ray.distributed.topology import Complete, Ring, Topology
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.frameworks.torch import from_model
from d5ray.frameworks.torch.executor import TorchExecutor
from d5ray.frameworks.torch.process_group import Store
from d5ray.operators.loss import Loss
from d5ray.training.batch import Batch
from d5ray.training.optimizers import SGD, Momentum, Optimizer
from tests.together import together

Array = np.ndarray[Any, Any]
SIZE = 6  # parameters
TIMEOUT_SECONDS = 30.0


class HalfSquare(Loss):
    """½ ‖score‖², mean over the batch."""

    name = "HalfSquare"

    def check(self, output_shape: tuple[int, ...], classes: int) -> None: ...

    def numpy(self, scores: Array, labels: Array) -> float:
        return float((scores**2).sum(axis=1).mean() / 2)

    def numpy_gradient(self, scores: Array, labels: Array) -> Array:
        return scores / len(scores)

    def torch(self, scores: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        return (scores**2).sum(dim=1).mean() / 2


class Quadratic(nn.Module):
    """Scores √a (x − c) of samples c (batch, SIZE): the loss has the gradient a (x − mean c), in float64."""

    def __init__(self, curvature: Array) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))
        self.root = torch.tensor(np.sqrt(curvature))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.root * (self.x - inputs.double())
        return scores


class NeighborSGD(DistributedOptimizer):
    """x_i <- sum_j W_ij x_j - lr g_i(x_i)   (Lian et al., arXiv:1705.09056)"""

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        self.communication.neighbor_average(self.x)
        self.apply(gradient)


def executor_of(curvature: Array | None = None, start: Array | None = None) -> TorchExecutor:
    curvature = np.ones(SIZE) if curvature is None else curvature
    made = from_model(
        Quadratic, {"curvature": curvature}, sample_shape=(SIZE,), classes=1, loss=HalfSquare(), seed=0,
        threads=1,
    )  # fmt: skip
    if start is not None:
        made.parameters.copy_(torch.tensor(start))
    return made


def batch_of(samples: Array, weight: float = 1.0) -> Batch:
    labels = np.zeros(len(samples), dtype=np.int64)
    return Batch(samples, labels, weight, step=0, epoch=0, ends_epoch=False)


def alone() -> Communicator:
    return backends.join("auto", Group("solo", 0, 0, 1), Complete(1))


Kind = type[DistributedOptimizer]


def bound(
    kind: Kind = AllreduceSGD, base: Optimizer | None = None, executor: TorchExecutor | None = None
) -> DistributedOptimizer:
    """An optimizer of one agent."""
    made = kind()
    made.bind(
        executor=executor or executor_of(),
        base=base or SGD(0.1),
        communication=alone(),
        rng=np.random.default_rng(0),
    )
    return made


# -- what a step may use -----------------------------------------------------------------------------------


def test_x_is_the_buffer_whatever_is_written_to_it() -> None:
    """In place, item-wise, by assignment: the model's own tensor has the new values, x stays the buffer."""
    executor = executor_of(start=np.arange(6.0))
    optimizer = bound(executor=executor)
    buffer = optimizer.x
    tensor = executor.module.get_parameter("x")

    optimizer.x -= 1.0
    assert tensor.tolist() == [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    optimizer.x = 2 * optimizer.x
    assert tensor.tolist() == [-2.0, 0.0, 2.0, 4.0, 6.0, 8.0]
    optimizer.x[0] = 7.0
    optimizer.x[1:] = 0.0
    assert tensor.tolist() == [7.0, 0, 0, 0, 0, 0]
    optimizer.x = torch.ones(SIZE, dtype=torch.float64)
    optimizer.x *= torch.arange(6.0)
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert optimizer.x is buffer is executor.parameters
    scores = executor.inference(np.zeros((1, SIZE), np.float32))
    np.testing.assert_array_equal(scores[0], np.arange(6.0))


def test_x_of_another_shape_is_refused() -> None:
    """Assigning what does not fit raises and leaves the parameters."""
    optimizer = bound(executor=executor_of(start=np.arange(6.0)))
    with pytest.raises(RuntimeError):
        optimizer.x = torch.ones(SIZE + 1, dtype=torch.float64)
    assert optimizer.x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_gradient_is_that_of_the_loss_times_the_weight() -> None:
    """a (x − mean c), and the loss ½ Σ a (x − c)² / B; a weight multiplies the gradient but not the loss."""
    generator = np.random.default_rng(1)
    curvature, start, samples = (
        generator.random(SIZE) + 0.5,
        generator.random(SIZE),
        generator.random((5, SIZE)),
    )
    optimizer = bound(executor=executor_of(curvature, start))
    expected = curvature * (start - samples.mean(axis=0))
    for weight in (1.0, 0.4):
        np.testing.assert_allclose(
            optimizer.gradient(batch_of(samples, weight)), weight * expected, rtol=1e-13
        )
        assert optimizer.loss == pytest.approx((curvature * (start - samples) ** 2).sum() / 2 / 5, rel=1e-13)
    assert optimizer.x.tolist() == start.tolist()  # only apply moves


def test_the_gradient_of_no_samples_is_zero() -> None:
    """Nothing of the gradient before is left; there is no loss."""
    optimizer = bound()
    assert optimizer.gradient(batch_of(np.ones((3, SIZE)))).abs().max() > 0
    gradient = optimizer.gradient(batch_of(np.zeros((0, SIZE)), weight=0.0))
    assert gradient.tolist() == [0.0] * SIZE
    assert np.isnan(optimizer.loss)


def test_apply_is_the_base_optimizers_update_with_its_state() -> None:
    """Two steps of Momentum: v = g, then v = μ g + g; the time is counted."""
    optimizer = bound(base=Momentum(0.1, 0.5))
    gradient = torch.ones(SIZE, dtype=torch.float64)
    optimizer.apply(gradient)
    optimizer.apply(gradient)
    np.testing.assert_allclose(optimizer.x, -0.1 * (1 + 1.5), rtol=1e-14)
    assert optimizer.update_ns > 0
    assert optimizer.learning_rate == 0.1


def test_start_is_called_once_when_x_is_there() -> None:
    """Buffers are made in `start`."""

    class WithBuffer(DistributedOptimizer):
        starts = 0

        def start(self) -> None:
            self.starts += 1
            self.seen = self.x.clone()

        def step(self, batch: Batch) -> None: ...

    optimizer = bound(WithBuffer, executor=executor_of(start=np.arange(6.0)))
    assert isinstance(optimizer, WithBuffer)
    assert (optimizer.starts, optimizer.seen.tolist()) == (1, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])


def test_repr_shows_the_hyperparameters_alone() -> None:
    """Neither what the agent binds nor what a step leaves, but what was given to `__init__`."""

    class Tuned(DistributedOptimizer):
        def __init__(self, period: int, slack: float = 0.5) -> None:
            self.period = period
            self.slack = slack

        def step(self, batch: Batch) -> None:
            self.apply(self.gradient(batch))

    tuned = Tuned(3)
    assert repr(tuned) == "Tuned(period=3, slack=0.5)"
    tuned.bind(executor=executor_of(), base=SGD(0.1), communication=alone(), rng=np.random.default_rng(0))
    tuned.step(batch_of(np.ones((2, SIZE))))
    assert repr(tuned) == "Tuned(period=3, slack=0.5)"
    assert repr(AllreduceSGD()) == "AllreduceSGD()"


def test_a_subclass_without_a_step_is_refused_by_the_experiment() -> None:
    """With its name, and what to write."""

    class Unfinished(DistributedOptimizer):
        pass

    with pytest.raises(ConfigurationError) as caught:
        Experiment(model="mlp", dataset="digits", optimizer=SGD(0.1), distributed=Unfinished)
    for words in ("distributed=Unfinished cannot be made", "step", "write a `step(self, batch)`"):
        assert words in str(caught.value)


def test_a_subclass_that_needs_arguments_is_given_as_an_instance() -> None:
    """The class alone is refused with the missing argument's name; the instance is taken."""

    class Tuned(DistributedOptimizer):
        def __init__(self, period: int) -> None:
            self.period = period

        def step(self, batch: Batch) -> None: ...

    with pytest.raises(ConfigurationError, match=r"(?s)period.*give an instance where it takes arguments"):
        Experiment(model="mlp", dataset="digits", optimizer=SGD(0.1), distributed=Tuned)
    given = Tuned(4)
    made = Experiment(model="mlp", dataset="digits", optimizer=SGD(0.1), distributed=given)
    assert made.distributed is given


# -- against NumPy ---------------------------------------------------------------------------------------


Run = Callable[..., Array]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Train agents in threads over gloo; returns the parameters (steps + 1, agents, SIZE) of all of them."""
    store = Store("127.0.0.1", TIMEOUT_SECONDS)
    groups: dict[Topology, list[Communicator]] = {}

    def communicators(topology: Topology) -> list[Communicator]:
        if topology not in groups:

            def join(rank: int) -> Communicator:
                group = Group(
                    repr(topology), 0, rank, topology.agents, store.address, timeout_seconds=TIMEOUT_SECONDS
                )
                return backends.join("auto", group, topology)

            groups[topology] = together(join, topology.agents)
        return groups[topology]

    def call(
        kind: Kind,
        base: Optimizer,
        topology: Topology,
        curvatures: Array,  # (agents, SIZE)
        start: Array,  # (agents, SIZE)
        batches: list[list[Batch]],  # for each step, those of the agents
    ) -> Array:
        group = communicators(topology)
        executors = [executor_of(*pair) for pair in zip(curvatures, start, strict=True)]

        def agent(rank: int) -> list[Array]:
            optimizer = kind()
            optimizer.bind(
                executor=executors[rank],
                base=base,
                communication=group[rank],
                rng=np.random.default_rng(rank),
            )
            course = [executors[rank].numpy_parameters()]
            for step in batches:
                optimizer.step(step[rank])
                course.append(executors[rank].numpy_parameters())
            return course

        return np.array(together(agent, topology.agents)).transpose(1, 0, 2)

    yield call
    for group in groups.values():
        for communicator in group:
            communicator.close()


def different_data(agents: int, steps: int) -> tuple[Array, Array, Array]:
    """Curvatures (agents, SIZE), start (agents, SIZE), samples (steps, agents, 3, SIZE)."""
    generator = np.random.default_rng(11)
    curvature = generator.uniform(0.2, 2.0, (agents, SIZE))
    return (
        curvature,
        generator.standard_normal((agents, SIZE)),
        generator.standard_normal((steps, agents, 3, SIZE)),
    )


@pytest.mark.parametrize("topology", [Ring(4), Complete(3)], ids=repr)
def test_dpsgd_is_its_matrix_recursion(run: Run, topology: Topology) -> None:
    """X ← W X − η G(X) with G_i = a_i (x_i − mean c_i), step by step, on every agent; float64."""
    curvatures, start, samples = different_data(topology.agents, steps=30)
    course = run(
        NeighborSGD, SGD(0.1), topology, curvatures, start,
        [[batch_of(own) for own in step] for step in samples],
    )  # fmt: skip
    expected = start
    for number, step in enumerate(samples):
        gradients = curvatures * (expected - step.mean(axis=1))
        expected = topology.weights() @ expected - 0.1 * gradients
        np.testing.assert_allclose(course[number + 1], expected, rtol=0, atol=1e-13)
    assert np.ptp(course[-1], axis=0).min() > 1e-3  # the agents' data differ, and so do the agents


def test_the_mean_of_parameters_follows_the_mean_gradient(run: Run) -> None:
    """x̄⁺ = x̄ − η ḡ for a doubly stochastic W, with the gradients at each agent's own parameters."""
    curvatures, start, samples = different_data(4, steps=30)
    course = run(
        NeighborSGD, SGD(0.1), Ring(4), curvatures, start,
        [[batch_of(own) for own in step] for step in samples],
    )  # fmt: skip
    for before, after, step in zip(course, course[1:], samples, strict=False):
        gradients = curvatures * (before - step.mean(axis=1))
        expected = before.mean(axis=0) - 0.1 * gradients.mean(axis=0)
        np.testing.assert_allclose(after.mean(axis=0), expected, rtol=0, atol=1e-14)


def test_dpsgd_goes_to_the_neighbourhood_of_the_common_minimum(run: Run) -> None:
    """Full gradients, equal curvature, η = 0.02: x̄ → mean c, and consensus within O(η)."""
    generator = np.random.default_rng(3)
    centres, start = generator.standard_normal((4, 1, SIZE)), 10 * generator.standard_normal((4, SIZE))
    steps = [[batch_of(own) for own in centres]] * 600
    course = run(NeighborSGD, SGD(0.02), Ring(4), np.ones((4, SIZE)), start, steps)
    np.testing.assert_allclose(course[-1].mean(axis=0), centres.mean(axis=(0, 1)), atol=1e-4)
    distance = np.abs(course[-1] - course[-1].mean(axis=0)).max()
    assert 1e-4 < distance < 0.02 * 3 * np.abs(centres).max()


@pytest.mark.parametrize("base", [SGD(0.3), Momentum(0.1, 0.9)], ids=repr)
@pytest.mark.parametrize(
    ("agents", "shares"),
    [
        (1, [[4], [3], [1]]),
        (2, [[4, 4], [4, 4], [3, 2]]),
        (3, [[4, 4, 4], [4, 4, 4], [2, 2, 1]]),
        (3, [[4, 4, 4], [1, 1, 0], [4, 4, 4], [1, 0, 0]]),
    ],
)
def test_allreduce_sgd_is_one_process_on_the_union(
    run: Run, agents: int, shares: list[list[int]], base: Optimizer
) -> None:
    """Uneven and empty shares, weighted as `Draw` says: x follows the mean over all samples of the step."""
    generator = np.random.default_rng(5)
    curvature = generator.uniform(0.2, 2.0, SIZE)
    start = generator.standard_normal(SIZE)
    steps, unions = [], []
    for counts in shares:
        union = generator.standard_normal((sum(counts), SIZE))
        pieces = np.split(union, np.cumsum(counts)[:-1])
        steps.append([batch_of(piece, len(piece) * agents / len(union)) for piece in pieces])
        unions.append(union)
    course = run(
        AllreduceSGD,
        base,
        Complete(agents),
        np.tile(curvature, (agents, 1)),
        np.tile(start, (agents, 1)),
        steps,
    )
    momentum = base.momentum if isinstance(base, Momentum) else 0.0
    x, velocity = start.copy(), np.zeros(SIZE)
    for number, union in enumerate(unions):
        velocity = momentum * velocity + curvature * (x - union.mean(axis=0))
        x = x - base.learning_rate * velocity
        for rank in range(agents):
            np.testing.assert_allclose(course[number + 1][rank], x, rtol=0, atol=1e-13)
            np.testing.assert_array_equal(course[number + 1][rank], course[number + 1][0])
