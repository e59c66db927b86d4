"""What the step of a distributed optimizer may use: x, gradient (whole or in buckets), apply, rng"""

from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.optimizers import SGD, AllreduceSGD, Momentum
from d5ray.topologies import Complete, Ring
from tests.distributed.quadratic import (
    SIZE,
    QuadraticExecutor,
    batch_of,
    batches_of,
    form,
    noise,
    quadratics,
    train,
)

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(1)
CURVATURE, CENTRE, START = np.diag(RNG.random(SIZE) + 0.5), RNG.random(SIZE), np.arange(float(SIZE))


class InBuckets(d5.DistributedOptimizer):
    """Announces in buckets of at least 20 bytes: of tensors of 1, 3 and 2 numbers, last first, two."""

    def start(self) -> None:
        self.buckets(20)

    def step(self, batch: d5.Batch) -> None: ...


def bound(kind: type[d5.DistributedOptimizer] = AllreduceSGD, base: d5.Optimizer | None = None) -> Any:
    """An optimizer of one agent, whose parameters are a tensor of PyTorch."""
    made = kind()
    made.bind(
        executor=QuadraticExecutor(CURVATURE, CENTRE, START, torch.from_numpy), base=base or SGD(0.1),
        communication=form(Complete(1))[0], rng=np.random.default_rng(0),
    )  # fmt: skip
    return made


def test_x_is_the_buffer_whatever_is_written_to_it() -> None:
    """In place, item-wise, by assignment: the model's own array has the new values, x stays the buffer."""
    optimizer = bound()
    buffer, own = optimizer.x, optimizer._executor._x
    optimizer.x -= 1.0
    assert own.tolist() == [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    optimizer.x = 2 * optimizer.x
    assert own.tolist() == [-2.0, 0.0, 2.0, 4.0, 6.0, 8.0]
    optimizer.x[0] = 7.0
    optimizer.x[1:] = 0.0
    assert own.tolist() == [7.0, 0, 0, 0, 0, 0]
    optimizer.x = torch.ones(SIZE, dtype=torch.float64)
    optimizer.x *= torch.arange(6.0)
    assert own.tolist() == START.tolist() and optimizer.x is buffer is optimizer._executor.parameters
    with pytest.raises(RuntimeError):
        optimizer.x = torch.ones(SIZE + 1, dtype=torch.float64)
    assert own.tolist() == START.tolist()


@pytest.mark.parametrize(("kind", "sizes"), [(AllreduceSGD, [6]), (InBuckets, [4, 2])])
@pytest.mark.parametrize(("samples", "weight"), [(5, 1.0), (5, 0.4), (0, 0.0)])
def test_the_gradient_is_that_of_the_loss_times_the_weight(
    kind: type[d5.DistributedOptimizer], sizes: list[int], samples: int, weight: float
) -> None:
    """Whole or in buckets, announced from last layer to first when final; of no samples it is zero."""
    optimizer, own = bound(kind), noise(1, 1, 5)[0, 0][:samples]
    optimizer.gradient(batch_of(np.ones((3, SIZE))), on_ready=lambda bucket: None)  # of which nothing is left
    shift = own.mean(axis=0) if samples else np.zeros(SIZE)
    expected = weight * (CURVATURE @ (START - CENTRE) + shift)
    announced: list[Array] = []
    batch = batch_of(own, weight=weight)
    gradient = optimizer.gradient(batch, on_ready=lambda bucket: announced.append(bucket.numpy().copy()))
    np.testing.assert_allclose(gradient, expected, rtol=1e-13)
    assert [len(bucket) for bucket in announced] == sizes
    np.testing.assert_array_equal(np.concatenate(announced[::-1]), gradient)
    np.testing.assert_array_equal(optimizer.gradient(batch), gradient)
    away = START - CENTRE
    loss = away @ CURVATURE @ away / 2 + shift @ START if samples else np.nan
    assert optimizer.loss == pytest.approx(loss, rel=1e-13, nan_ok=True)
    assert optimizer.x.tolist() == START.tolist()  # only apply moves


def test_what_the_callee_makes_of_a_bucket_stays() -> None:
    """A bucket is a piece of the gradient's buffer, no copy."""
    gradient = bound(InBuckets).gradient(
        batch_of(np.ones((3, SIZE))), on_ready=lambda bucket: bucket.fill_(float(len(bucket)))
    )
    assert gradient.tolist() == [2.0] * 2 + [4.0] * 4


def test_apply_is_the_base_optimizers_update_with_a_state_for_each_part() -> None:
    """Momentum by hand; cut anywhere, as long as the cuts stay, it does the same to the bit."""
    whole, parts = bound(base=Momentum(0.1, 0.5)), bound(base=Momentum(0.1, 0.5))
    x, velocity = START.copy(), np.zeros(SIZE)
    for gradient in noise(1, 5, 1)[:, 0, 0]:
        whole.apply(torch.tensor(gradient))
        for part in (slice(0, 0), slice(0, 1), slice(1, 4), slice(4, 6)):
            parts.apply(torch.tensor(gradient), part)
        velocity = 0.5 * velocity + gradient
        x -= 0.1 * velocity
    assert parts.x.tolist() == whole.x.tolist()
    np.testing.assert_allclose(whole.x, x, rtol=1e-14)
    whole.apply(torch.ones(SIZE, dtype=torch.float64), slice(2, 3))  # a state of its own, and nothing else
    x[2] -= 0.1
    np.testing.assert_allclose(whole.x, x, rtol=1e-14)
    assert whole.update_ns > 0 and whole.learning_rate == 0.1


class Tuned(d5.DistributedOptimizer):
    """Draws from both generators."""

    def __init__(self, period: int) -> None:
        self.period = period

    def step(self, batch: d5.Batch) -> None:
        self.own, self.everyones = self.rng.random(), self.shared_rng.random()


def test_one_generator_is_each_agents_own_and_one_is_everyones() -> None:
    """The shared one gives the same on all agents, step by step; also where a caller binds none."""
    drawn = train(
        Tuned(1), SGD(0.1), Ring(3), quadratics(3), batches_of(noise(3, 4)),
        watch=lambda optimizer: (getattr(optimizer, "own", 0.0), getattr(optimizer, "everyones", 0.0)),
    )  # fmt: skip
    own, shared = np.array(drawn)[:, 1:].transpose(2, 0, 1)  # each (agents, steps)
    assert len(set(own.flat)) == own.size
    assert len(set(shared.flat)) == shared.shape[1]
    assert (shared == shared[0]).all()
    assert bound().shared_rng.random() == bound().shared_rng.random()


class Unfinished(d5.DistributedOptimizer):
    pass


@pytest.mark.parametrize(
    ("kind", "words"), [(Unfinished, "Unfinished.*write a `step"), (Tuned, "(?s)period.*give an instance")]
)
def test_a_class_that_cannot_be_made_is_refused_by_the_experiment(kind: Any, words: str) -> None:
    """With its name and what to do; an instance is taken as it is."""
    with pytest.raises(ConfigurationError, match=words):
        d5.Experiment(model="mlp", dataset="digits", optimizer=SGD(0.1), distributed=kind)
    given = Tuned(4)
    made = d5.Experiment(model="mlp", dataset="digits", optimizer=SGD(0.1), distributed=given)
    assert made.distributed is given
