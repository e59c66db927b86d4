"""Claims about compressed SGD: its recursion, what its agents agree on, and what it refuses"""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import d5ray
from d5ray.distributed.compression.chain import Chain
from d5ray.distributed.compression.compressor import Compressor
from d5ray.distributed.compression.feedback import ErrorFeedback
from d5ray.distributed.compression.power_sgd import PowerSGD
from d5ray.distributed.compression.precision import BFloat16, Float16, Identity
from d5ray.distributed.compression.random_k import RandomK, UnbiasedRandomK
from d5ray.distributed.compression.reductions import AllGather, Allreduce, Reduction, ScatterReduce
from d5ray.distributed.compression.signs import OneBit, ScaledSign
from d5ray.distributed.compression.sparse_allreduce import SparseAllreduce, SplitAllGather
from d5ray.distributed.compression.stochastic import QSGD, TernGrad
from d5ray.distributed.compression.threshold import Threshold
from d5ray.distributed.compression.top_k import TopK
from d5ray.distributed.optimizers.compressed_sgd import CompressedSGD
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.topology import Complete
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.frameworks.host import host_view
from d5ray.frameworks.torch import from_model
from d5ray.identity.canonical import digest
from d5ray.training.batches.batch import Batch
from d5ray.training.optimizers.gradient_descent import SGD, Momentum
from d5ray.training.optimizers.optimizer import Optimizer
from tests.distributed.quadratic import (
    SIZE,
    QuadraticExecutor,
    batches_of,
    course,
    form,
    noise,
    quadratics,
    train,
    zeros,
)
from tests.together import together

Array = np.ndarray[Any, Any]

CORRECTED: list[Compressor | Reduction] = [
    TopK(2), TopK(1, bucket=3), RandomK(2), Threshold(0.3), OneBit(), ScaledSign(), Float16(), QSGD(bits=8),
    TernGrad(bucket=3), Allreduce(RandomK(2)), SparseAllreduce(TopK(2)),
    SparseAllreduce(RandomK(3), SplitAllGather()), Chain(TopK(3), ScaledSign()), ScatterReduce(OneBit()),
]  # fmt: skip
PLAIN: list[Compressor | Reduction] = [
    Identity(), QSGD(bits=4), QSGD(bits=8), TernGrad(), UnbiasedRandomK(2), Float16(), BFloat16(),
    Allreduce(Identity()), Allreduce(UnbiasedRandomK(3)), SparseAllreduce(UnbiasedRandomK(2)),
    Chain(UnbiasedRandomK(3), QSGD(bits=4)), AllGather(QSGD(bits=2)), ScatterReduce(QSGD(bits=4)),
]  # fmt: skip


# -- the recursion -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "compression", [Identity(), Allreduce(Identity()), ErrorFeedback(Identity())], ids=repr
)
@pytest.mark.parametrize("base", [SGD(0.3), Momentum(0.1, 0.9)], ids=repr)
@pytest.mark.parametrize("agents", [1, 2, 3])
def test_without_loss_it_is_allreduce_sgd(compression: Any, base: Optimizer, agents: int) -> None:
    """For any base optimizer."""
    problem = quadratics(agents, same_start=True)
    batches = batches_of(noise(agents, steps=20))
    expected = course(d5ray.optimizers.AllreduceSGD(), base, Complete(agents), problem, batches)
    found = course(CompressedSGD(compression), base, Complete(agents), problem, batches)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def watch_residual(optimizer: CompressedSGD) -> Array:
    """x and e, (2, SIZE)."""
    return np.stack([optimizer.x, optimizer.memory["residual"]])


@pytest.mark.parametrize("compression", CORRECTED, ids=repr)
def test_the_corrected_parameters_follow_the_exact_gradient(compression: Compressor | Reduction) -> None:
    """x̃ = x − mean e moves by −η ḡ(x), whatever C drops (arXiv:1901.09847)."""
    problem = quadratics(3, same_start=True)
    samples = noise(3, steps=25)
    seen = course(
        CompressedSGD(ErrorFeedback(compression)), SGD(0.1), Complete(3), problem, batches_of(samples),
        watch_residual,
    )  # fmt: skip
    x, e = seen[:, :, 0], seen[:, :, 1]  # (steps + 1, agents, SIZE)
    corrected = (x - e).mean(axis=1)
    for step, own in enumerate(samples):
        gradient = (problem.gradients(x[step]) + own.mean(axis=1)).mean(axis=0)
        np.testing.assert_allclose(corrected[step + 1], corrected[step] - 0.1 * gradient, atol=1e-13)
    assert np.abs(e[-1]).max() > 1e-6  # something was dropped


def test_what_was_dropped_keeps_its_own_learning_rate() -> None:
    """η stands within C: when it changes on the way, x − mean e is still x₀ − Σ η_t ḡ_t."""
    problem = quadratics(2, same_start=True)
    rates = [0.2, 0.2, 0.05, 0.05, 0.01]
    batches = batches_of(zeros(2, len(rates)))
    group = form(Complete(2))

    def agent(rank: int) -> Array:
        rule = CompressedSGD(ErrorFeedback(TopK(1)))
        rule.bind(
            executor=QuadraticExecutor(problem.curvatures[rank], problem.centres[rank], problem.start[rank]),
            base=SGD(1.0),
            communication=group[rank],
            rng=np.random.default_rng(rank),
        )
        seen = [watch_residual(rule)]
        for rate, step in zip(rates, batches, strict=True):
            rule.base = SGD(rate)
            rule.step(step[rank])
            seen.append(watch_residual(rule))
        return np.array(seen)

    x, e = np.array(together(agent, 2)).transpose(2, 1, 0, 3)  # (steps + 1, agents, SIZE) each
    gradients = np.array([problem.gradients(now).mean(axis=0) for now in x[:-1]])
    expected = x[0, 0] - (np.array(rates)[:, None] * gradients).sum(axis=0)
    np.testing.assert_allclose((x - e)[-1].mean(axis=0), expected, atol=1e-14)


# -- what the agents agree on ------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [*PLAIN, *(ErrorFeedback(one) for one in CORRECTED)], ids=repr)
@pytest.mark.parametrize("agents", [2, 3])
def test_agents_stay_equal_to_the_last_bit(compression: Compressor | Reduction, agents: int) -> None:
    """Although their data, draws and residuals differ; and their loss falls."""
    problem = quadratics(agents, same_start=True)
    x = course(
        CompressedSGD(compression), Momentum(0.02, 0.5), Complete(agents), problem,
        batches_of(noise(agents, steps=40)),
    )  # fmt: skip
    for rank in range(1, agents):
        np.testing.assert_array_equal(x[:, rank], x[:, 0])
    before, after = (np.linalg.norm(x[step, 0] - problem.minimum) for step in (0, -1))
    assert after < 0.8 * before


def test_the_shared_draw_differs_from_step_to_step() -> None:
    """Two of the six coordinates move in a step, the same on all agents, and all do in time."""
    problem = quadratics(3, same_start=True)
    rule = CompressedSGD(Allreduce(UnbiasedRandomK(2)))
    x = course(rule, SGD(0.01), Complete(3), problem, batches_of(noise(3, steps=12)))[:, 0]
    moved = np.diff(x, axis=0) != 0
    assert moved.sum(axis=1).tolist() == [2] * 12
    assert moved.any(axis=0).all() and len({tuple(step) for step in moved}) > 3


class Uncorrected(DistributedOptimizer):
    """x ← x − mean C(η g), with a biased C."""

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = compressor

    def step(self, batch: Batch) -> None:
        gradient = host_view(self.gradient(batch))
        gradient *= self.learning_rate
        message = self.compressor.compress(gradient, self.rng)
        messages = self.communication.all_gather_messages(message)
        self.x -= np.mean([self.compressor.decompress(m, SIZE, gradient.dtype) for m in messages], axis=0)


@pytest.mark.parametrize("compressor", [TopK(1), ScaledSign(), OneBit()], ids=repr)
def test_error_feedback_reaches_the_minimum_that_the_compressor_alone_misses(compressor: Compressor) -> None:
    """Full gradients that differ on three agents: without feedback they settle where the C(g_i) cancel."""
    problem = quadratics(3, same_start=True)
    batches = batches_of(zeros(3, steps=250))
    distance = [
        np.linalg.norm(x[-50:, 0].mean(axis=0) - problem.minimum)
        for x in (
            course(CompressedSGD(ErrorFeedback(compressor)), SGD(0.05), Complete(3), problem, batches),
            course(Uncorrected(compressor), SGD(0.05), Complete(3), problem, batches),
        )
    ]
    assert distance[0] < 0.02 < 0.1 < distance[1]


@pytest.mark.parametrize(
    "compression",
    [
        QSGD(bits=4),
        ErrorFeedback(TopK(1)),
        ErrorFeedback(SparseAllreduce(TopK(1))),
        Allreduce(UnbiasedRandomK(1)),
    ],
    ids=repr,
)
def test_an_agent_that_diverged_is_seen_by_all(compression: Compressor | Reduction) -> None:
    """NaN in one agent's gradient is NaN in everyone's parameters after that step."""
    problem = quadratics(3, same_start=True)
    samples = noise(3, steps=2)
    samples[1, 2, 0, 4] = np.nan
    x = course(CompressedSGD(compression), SGD(0.1), Complete(3), problem, batches_of(samples))
    assert np.isfinite(x[1]).all() and np.isnan(x[2]).any(axis=1).all()


# -- PyTorch -----------------------------------------------------------------------------------------------


def linear_agents(rule: DistributedOptimizer) -> Array:
    """Three steps of two agents that train a linear layer (10, 12) on a sample each; its parameters."""
    group = form(Complete(2))
    rng = np.random.default_rng(9)
    inputs, labels = rng.standard_normal((3, 2, 1, 12)).astype(np.float32), rng.integers(0, 10, (3, 2, 1))

    executors = [
        from_model(
            nn.Linear, {"in_features": 12, "out_features": 10},
            sample_shape=(12,), classes=10, loss=d5ray.operators.SoftmaxCrossEntropyLoss(), seed=1, threads=1,
        )
        for _ in range(2)
    ]  # fmt: skip

    def agent(rank: int) -> Array:
        own = copy.copy(rule)
        own.bind(
            executor=executors[rank],
            base=SGD(0.5),
            communication=group[rank],
            rng=np.random.default_rng(rank),
        )
        for step in range(3):
            own.step(Batch(inputs[step, rank], labels[step, rank], 1.0, step, epoch=0, ends_epoch=False))
        return executors[rank].numpy_parameters()

    first, second = together(agent, 2)
    np.testing.assert_array_equal(first, second)
    return first


def test_power_sgd_of_a_linear_layer_is_allreduce_sgd() -> None:
    """Two samples' gradients are of rank two: PowerSGD(2) loses nothing, PowerSGD(1) does; float32."""
    exact = linear_agents(d5ray.optimizers.AllreduceSGD())
    found = linear_agents(CompressedSGD(ErrorFeedback(PowerSGD(2))))
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-6)
    assert np.abs(linear_agents(CompressedSGD(ErrorFeedback(PowerSGD(1)))) - exact).max() > 1e-3


# -- as a part of an experiment ----------------------------------------------------------------------------


def test_an_experiment_describes_its_compression() -> None:
    """In its text and in its hash, which is the same for equal ones."""
    rule = CompressedSGD(ErrorFeedback(TopK(16, bucket=512)))
    assert repr(rule) == "CompressedSGD(compression=ErrorFeedback(compression=TopK(k=16, bucket=512)))"
    assert digest(rule) == digest(CompressedSGD(ErrorFeedback(TopK(16, bucket=512))))
    assert digest(rule) != digest(CompressedSGD(ErrorFeedback(TopK(16, bucket=256))))
    made = [
        Experiment(model="mlp", dataset="digits", optimizer=SGD(0.1), distributed=CompressedSGD(one))
        for one in (QSGD(bits=4), QSGD(bits=4), QSGD(bits=8), ErrorFeedback(QSGD(bits=8)))
    ]
    assert made[0].hash == made[1].hash and len({one.hash for one in made}) == 3


@pytest.mark.parametrize("compression", PLAIN, ids=repr)
def test_what_is_right_on_average_or_merely_rounded_needs_no_feedback(compression: Any) -> None:
    """Unbiased compressors, 16-bit numbers, and the reductions of both."""
    CompressedSGD(compression).check(1000)


BIASED: list[Compressor | Reduction] = [
    TopK(3), RandomK(3), Threshold(0.1), OneBit(), ScaledSign(), PowerSGD(2), Chain(TopK(3), QSGD()),
    Allreduce(RandomK(3)), SparseAllreduce(TopK(3)), AllGather(OneBit()),
]  # fmt: skip


@pytest.mark.parametrize("compression", BIASED, ids=repr)
def test_what_is_biased_is_refused_without_feedback(compression: Compressor | Reduction) -> None:
    """With the line to write instead, which is accepted where the compressor contracts."""
    with pytest.raises(ConfigurationError) as caught:
        CompressedSGD(compression)
    advice = f"Write CompressedSGD(ErrorFeedback({compression!r}))"
    assert "is biased: what it drops would be lost for good. " + advice in str(caught.value)
    CompressedSGD(ErrorFeedback(compression))


def test_feedback_is_not_advised_where_it_is_no_help() -> None:
    """The sparsifier's factor n/k makes a residual grow, and the quantizer is biased."""
    with pytest.raises(ConfigurationError, match=r"is biased.*It is no contraction either, so that error"):
        CompressedSGD(Chain(UnbiasedRandomK(3), OneBit()))


def test_what_does_not_fit_the_model_is_refused_before_it_starts() -> None:
    """`check` knows the size; PowerSGD needs the shapes, and says so when it is bound."""
    with pytest.raises(ConfigurationError, match="k is 30 of 20 entries: keep 20 at most"):
        CompressedSGD(ErrorFeedback(TopK(30))).check(20)
    with pytest.raises(ConfigurationError, match=r"PowerSGD\(rank=2\) makes no tensor of this model smaller"):
        train(
            CompressedSGD(ErrorFeedback(PowerSGD(2))), SGD(0.1), Complete(1), quadratics(1), [],
            lambda optimizer: None,
        )  # fmt: skip
    elsewhere = QuadraticExecutor(np.eye(SIZE), np.zeros(SIZE), np.zeros(SIZE))
    elsewhere.parameters = torch.zeros(SIZE, device="meta")
    with pytest.raises(ConfigurationError, match="in host memory, the parameters are on meta: train on CPUD"):
        CompressedSGD(QSGD()).bind(
            executor=elsewhere,
            base=SGD(0.1),
            communication=form(Complete(1))[0],
            rng=np.random.default_rng(0),
        )
    with pytest.raises(ConfigurationError, match="the compression is 'top16'"):
        CompressedSGD("top16")  # type: ignore[arg-type]
