"""Claims about compressed SGD: its recursion, what its agents agree on, and what it refuses"""

from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.compression import (
    QSGD,
    AllGather,
    Allreduce,
    BFloat16,
    Chain,
    ErrorFeedback,
    Float16,
    Identity,
    OneBit,
    PowerSGD,
    RandomK,
    ScaledSign,
    ScatterReduce,
    SparseAllreduce,
    SplitAllGather,
    TernGrad,
    Threshold,
    TopK,
    UnbiasedRandomK,
)
from d5ray.errors import ConfigurationError
from d5ray.optimizers import SGD, AllreduceSGD, CompressedSGD, Momentum
from d5ray.topologies import Complete
from tests.distributed.quadratic import (
    SIZE,
    QuadraticExecutor,
    batches_of,
    course,
    form,
    noise,
    quadratics,
    train,
)

Array = np.ndarray[Any, Any]
Compression = d5.Compressor | d5.compression.Reduction

CORRECTED: list[Compression] = [
    TopK(2), TopK(1, bucket=3), RandomK(2), Threshold(0.3), OneBit(), ScaledSign(), Float16(), QSGD(bits=8),
    TernGrad(bucket=3), Allreduce(RandomK(2)), SparseAllreduce(TopK(2)),
    SparseAllreduce(RandomK(3), SplitAllGather()), Chain(TopK(3), ScaledSign()), ScatterReduce(OneBit()),
]  # fmt: skip
PLAIN: list[Compression] = [
    Identity(), QSGD(bits=4), QSGD(bits=8), TernGrad(), UnbiasedRandomK(2), Float16(), BFloat16(),
    Allreduce(Identity()), Allreduce(UnbiasedRandomK(3)), SparseAllreduce(UnbiasedRandomK(2)),
    Chain(UnbiasedRandomK(3), QSGD(bits=4)), AllGather(QSGD(bits=2)), ScatterReduce(QSGD(bits=4)),
]  # fmt: skip
BIASED: list[Compression] = [
    TopK(3), RandomK(3), Threshold(0.1), OneBit(), ScaledSign(), PowerSGD(2), Chain(TopK(3), QSGD()),
    Allreduce(RandomK(3)), SparseAllreduce(TopK(3)), AllGather(OneBit()),
]  # fmt: skip


@pytest.mark.parametrize(
    "compression", [Identity(), Allreduce(Identity()), ErrorFeedback(Identity())], ids=repr
)
@pytest.mark.parametrize("agents", [1, 3])
def test_without_loss_it_is_allreduce_sgd(compression: Any, agents: int) -> None:
    given = Momentum(0.1, 0.9), Complete(agents), quadratics(agents, same_start=True)
    batches = batches_of(noise(agents, steps=20))
    expected = course(AllreduceSGD(), *given, batches)
    np.testing.assert_allclose(course(CompressedSGD(compression), *given, batches), expected, rtol=1e-12)


@pytest.mark.parametrize("compression", CORRECTED, ids=repr)
def test_the_corrected_parameters_follow_the_exact_gradient(compression: Compression) -> None:
    """x̃ = x − mean e moves by −η ḡ(x), whatever C drops (arXiv:1901.09847); η stands within C, so that what
    was dropped keeps its own when it changes on the way."""
    problem = quadratics(3, same_start=True)
    samples = noise(3, steps=25)

    def watch(optimizer: CompressedSGD) -> Array:
        optimizer.base = SGD(0.95 * optimizer.learning_rate)
        return np.stack([optimizer.x, optimizer.memory["residual"]])

    rule = CompressedSGD(ErrorFeedback(compression))
    seen = course(rule, SGD(0.2), Complete(3), problem, batches_of(samples), watch)
    x, e = seen[:, :, 0], seen[:, :, 1]  # (steps + 1, agents, SIZE)
    corrected, rate = (x - e).mean(axis=1), 0.2
    for step, own in enumerate(samples):
        gradient, rate = (problem.gradients(x[step]) + own.mean(axis=1)).mean(axis=0), 0.95 * rate
        np.testing.assert_allclose(corrected[step + 1], corrected[step] - rate * gradient, atol=1e-13)
    assert np.abs(e[-1]).max() > 1e-6  # something was dropped


@pytest.mark.parametrize("compression", [*PLAIN, *(ErrorFeedback(one) for one in CORRECTED)], ids=repr)
@pytest.mark.parametrize("agents", [2, 3])
def test_agents_stay_equal_to_the_last_bit(compression: Compression, agents: int) -> None:
    """Although their data, draws and residuals differ; and their loss falls."""
    problem, rule = quadratics(agents, same_start=True), CompressedSGD(compression)
    rule.check(1000)
    batches = batches_of(noise(agents, steps=40))
    x = course(rule, Momentum(0.02, 0.5), Complete(agents), problem, batches)
    for rank in range(1, agents):
        np.testing.assert_array_equal(x[:, rank], x[:, 0])
    before, after = (np.linalg.norm(x[step, 0] - problem.minimum) for step in (0, -1))
    assert after < 0.8 * before


def test_the_shared_draw_differs_from_step_to_step() -> None:
    """Two of the six coordinates move in a step, the same on all agents, and all do in time."""
    rule, batches = CompressedSGD(Allreduce(UnbiasedRandomK(2))), batches_of(noise(3, steps=12))
    x = course(rule, SGD(0.01), Complete(3), quadratics(3, same_start=True), batches)[:, 0]
    moved = np.diff(x, axis=0) != 0
    assert moved.sum(axis=1).tolist() == [2] * 12
    assert moved.any(axis=0).all() and len({tuple(step) for step in moved}) > 3


@pytest.mark.parametrize("compression", BIASED, ids=repr)
def test_what_is_biased_is_refused_without_feedback(compression: Compression) -> None:
    """With the line to write instead, which is accepted."""
    with pytest.raises(ConfigurationError, match=r"is biased.*Write CompressedSGD\(ErrorFeedback\("):
        CompressedSGD(compression)
    CompressedSGD(ErrorFeedback(compression))


def on_another_device() -> None:
    elsewhere = QuadraticExecutor(np.eye(SIZE), np.zeros(SIZE), np.zeros(SIZE))
    elsewhere.parameters = torch.zeros(SIZE, device="meta")
    rng, communication = np.random.default_rng(0), form(Complete(1))[0]
    CompressedSGD(QSGD()).bind(executor=elsewhere, base=SGD(0.1), communication=communication, rng=rng)


@pytest.mark.parametrize(
    ("do", "words"),
    [
        (lambda: CompressedSGD(Chain(UnbiasedRandomK(3), OneBit())), "is biased.*no contraction either"),
        (lambda: CompressedSGD(ErrorFeedback(TopK(30))).check(20), "k is 30 of 20 entries"),
        (
            lambda: train(
                CompressedSGD(ErrorFeedback(PowerSGD(2))), SGD(0.1), Complete(1), quadratics(1), [], repr
            ),
            r"PowerSGD\(rank=2\) makes no tensor of this model smaller",
        ),
        (on_another_device, "the parameters are on meta"),
        (lambda: CompressedSGD("top16"), "the compression is 'top16'"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_refused(do: Any, words: str) -> None:
    """When it is made, when the size is known, or when the shapes are."""
    with pytest.raises(ConfigurationError, match=words):
        do()
