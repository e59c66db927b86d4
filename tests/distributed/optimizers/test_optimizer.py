"""What the step of a distributed optimizer may use: x, gradient (whole or in buckets), apply, rng"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.optimizers.allreduce import AllreduceSGD
from d5ray.distributed.optimizers.dpsgd import DPSGD
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.topology import Complete, Ring
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.frameworks.torch import from_model
from d5ray.frameworks.torch.executor import TorchExecutor
from d5ray.operators.loss import Loss
from d5ray.training.arrays import copy_of
from d5ray.training.batches.batch import Batch
from d5ray.training.optimizers.gradient_descent import SGD, Momentum
from d5ray.training.optimizers.optimizer import Optimizer
from tests.distributed.quadratic import batches_of, course, noise, quadratics, train

Array = np.ndarray[Any, Any]
SIZE = 6  # parameters


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
    assert abs(optimizer.gradient(batch_of(np.ones((3, SIZE))))).max() > 0
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
            self.seen = copy_of(self.x)

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


def test_the_readmes_example_is_dpsgd() -> None:
    """The dozen lines of a user do what the class of that name does, to the bit."""
    problem, batches = quadratics(4), batches_of(noise(4, 10))
    ours = course(NeighborSGD(), Momentum(0.05, 0.9), Ring(4), problem, batches)
    theirs = course(DPSGD(), Momentum(0.05, 0.9), Ring(4), problem, batches)
    np.testing.assert_array_equal(ours, theirs)


# -- bucket by bucket, part by part ------------------------------------------------------------------------


class TwoLayers(nn.Module):
    """Tensors of 12, 3, 6 and 2 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).double()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layers(inputs.double())
        return scores


class InBuckets(DistributedOptimizer):
    """Announces in buckets of at least 40 bytes."""

    def start(self) -> None:
        self.buckets(40)

    def step(self, batch: Batch) -> None: ...


def two_layers() -> TorchExecutor:
    return from_model(TwoLayers, {}, sample_shape=(4,), classes=2, loss=HalfSquare(), seed=0, threads=1)


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_buckets_are_announced_weighted_and_in_order(weight: float) -> None:
    """Each when it has its final value, from the last layer to the first; together they are the gradient."""
    batch = batch_of(np.random.default_rng(2).standard_normal((5, 4)), weight)
    whole = bound(executor=two_layers()).gradient(batch)
    announced: list[Array] = []
    optimizer = bound(InBuckets, executor=two_layers())
    gradient = optimizer.gradient(batch, on_ready=lambda bucket: announced.append(bucket.numpy().copy()))
    assert [len(bucket) for bucket in announced] == [8, 15]
    np.testing.assert_array_equal(np.concatenate(announced[::-1]), whole)
    np.testing.assert_array_equal(gradient, whole)


def test_an_agent_without_samples_announces_the_same_buckets_of_zeros() -> None:
    """In the same order, so that its peers' exchanges find theirs; and there is no loss."""
    optimizer = bound(InBuckets, executor=two_layers())
    optimizer.gradient(batch_of(np.ones((3, 4))), on_ready=lambda bucket: None)
    announced: list[Array] = []
    optimizer.gradient(
        batch_of(np.zeros((0, 4)), weight=0.0),
        on_ready=lambda bucket: announced.append(bucket.numpy().copy()),
    )
    assert [bucket.tolist() for bucket in announced] == [[0.0] * 8, [0.0] * 15]
    assert np.isnan(optimizer.loss)


def test_what_the_callee_makes_of_a_bucket_stays() -> None:
    """A bucket is a piece of the gradient's buffer, no copy."""
    optimizer = bound(InBuckets, executor=two_layers())

    def fill(bucket: Any) -> None:
        bucket[...] = float(len(bucket))

    gradient = optimizer.gradient(batch_of(np.ones((3, 4))), on_ready=fill)
    assert gradient.tolist() == [15.0] * 15 + [8.0] * 8


def test_without_buckets_the_whole_gradient_is_announced() -> None:
    """Once, with samples and without."""
    optimizer = bound(executor=two_layers())
    sizes: list[int] = []
    for samples in (3, 0):
        batch = batch_of(np.ones((samples, 4)), weight=float(samples > 0))
        optimizer.gradient(batch, on_ready=lambda bucket: sizes.append(len(bucket)))
    assert sizes == [23, 23]


def test_a_part_is_updated_alone_with_a_state_of_its_own() -> None:
    """Momentum on x[1:3] twice, then on x[4:6] once; the rest stays, and so does the gradient."""
    optimizer = bound(base=Momentum(0.1, 0.5))
    gradient = torch.arange(6.0, dtype=torch.float64)
    for _ in range(2):
        optimizer.apply(gradient, slice(1, 3))
    optimizer.apply(gradient, slice(4, 6))
    np.testing.assert_allclose(optimizer.x, [0, -0.25, -0.5, 0, -0.4, -0.5], rtol=1e-14)
    assert gradient.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_parts_together_are_the_whole() -> None:
    """Cut anywhere, as long as the cuts stay: an element-wise rule does the same to the bit."""
    generator = np.random.default_rng(4)
    whole, parts = bound(base=Momentum(0.1, 0.5)), bound(base=Momentum(0.1, 0.5))
    for _ in range(5):
        gradient = torch.tensor(generator.standard_normal(SIZE))
        whole.apply(gradient)
        for part in (slice(0, 0), slice(0, 1), slice(1, 4), slice(4, 6)):
            parts.apply(gradient, part)
    assert parts.x.tolist() == whole.x.tolist()


# -- randomness --------------------------------------------------------------------------------------------


class Drawing(DistributedOptimizer):
    """Draws from both generators."""

    def step(self, batch: Batch) -> None:
        self.own, self.everyones = self.rng.random(), self.shared_rng.random()


def test_one_generator_is_each_agents_own_and_one_is_everyones() -> None:
    """The shared one gives the same on all agents, step by step."""
    drawn = train(
        Drawing(), SGD(0.1), Ring(3), quadratics(3), batches_of(noise(3, 4)),
        watch=lambda optimizer: (getattr(optimizer, "own", 0.0), getattr(optimizer, "everyones", 0.0)),
    )  # fmt: skip
    own, shared = np.array(drawn)[:, 1:].transpose(2, 0, 1)  # each (agents, steps)
    assert len(set(own.flat)) == own.size
    assert len(set(shared.flat)) == shared.shape[1]
    assert (shared == shared[0]).all()


def test_without_a_shared_generator_every_agent_gets_the_same_one() -> None:
    """Callers that bind without one are not left with different ones."""
    first, second = bound(), bound()
    assert first.shared_rng.random() == second.shared_rng.random()
