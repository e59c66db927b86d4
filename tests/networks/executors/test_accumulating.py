"""Claims about accumulation: pieces give the loss, the gradient and the announcements of the whole batch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from d5ray.frameworks import executor_by_name
from d5ray.networks.executors.accumulating import AccumulatingExecutor
from d5ray.networks.executors.executor import Evaluation, Executor
from d5ray.networks.executors.gradient_buckets import OnReady
from d5ray.operators.loss import Loss
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

Array = np.ndarray[Any, Any]
LOSS = SoftmaxCrossEntropyLoss()
IGNORED = -100


def made(framework: str) -> Executor:
    make = executor_by_name(framework)
    return make("mlp", {"hidden": (7,)}, sample_shape=(1, 4, 4), classes=5, loss=LOSS, seed=1, threads=1)


def numbers(flat: Any) -> Array:
    """A copy of a flat array of any framework in host memory."""
    return np.array(flat.numpy() if hasattr(flat, "numpy") else flat)


def batch(samples: int) -> tuple[Array, Array]:
    generator = np.random.default_rng(samples)
    return generator.standard_normal((samples, 1, 4, 4)).astype(np.float32), generator.integers(0, 5, samples)


class Ignoring(Loss):
    """The mean over all labels but −100."""

    def check(self, output_shape: tuple[int, ...], classes: int) -> None:
        raise NotImplementedError

    def torch(self, scores: Any, labels: Any) -> Any:
        raise NotImplementedError

    def counted(self, labels: Array) -> int:
        return int((labels != IGNORED).sum())


class MeanOfCounted(Executor):
    """The loss is the mean of the inputs whose label counts, and each element of the gradient is it too."""

    def __init__(self) -> None:
        self.parameters, self.gradients = np.zeros(6), np.zeros(6)
        self.buffers, self.counters, self.slots = np.zeros(0), (), ()
        self.sizes: list[int] = []

    def inference(self, inputs: Array) -> Array:
        raise NotImplementedError

    def inference_and_backprop(self, inputs: Any, labels: Array, on_ready: OnReady | None = None) -> float:
        values = inputs["x"] if isinstance(inputs, Mapping) else inputs
        self.sizes.append(len(labels))
        counted = values[labels != IGNORED]
        loss = counted.mean() if len(counted) else np.nan
        self.gradients[...] = loss
        if on_ready is not None:
            on_ready(4, 6)
            on_ready(0, 4)
        return float(loss)

    def evaluate(self, inputs: Array, labels: Array) -> Evaluation:
        raise NotImplementedError


@pytest.mark.parametrize("framework", ["torch", "numpy", pytest.param("tensorflow", marks=pytest.mark.full)])
@pytest.mark.parametrize("samples", [11, 5])
def test_pieces_give_loss_and_gradient_of_the_whole_batch(framework: str, samples: int) -> None:
    """Also where they differ in size, under every framework, with and without announcements."""
    whole, pieces = made(framework), AccumulatingExecutor(made(framework), LOSS, 3, at_most=4)
    inputs, labels = batch(samples)
    expected = whole.inference_and_backprop(inputs, labels)
    gradient = numbers(whole.gradients)
    assert pieces.inference_and_backprop(inputs, labels) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(numbers(pieces.gradients), gradient, rtol=0, atol=1e-7)
    ranges = pieces.buckets(64)
    assert len(ranges) > 1
    seen: dict[tuple[int, int], Array] = {}
    pieces.inference_and_backprop(
        inputs, labels, lambda begin, end: seen.update({(begin, end): numbers(pieces.gradients[begin:end])})
    )
    assert tuple(seen) == ranges
    for (begin, end), part in seen.items():
        np.testing.assert_allclose(part, gradient[begin:end], rtol=0, atol=1e-7)


@pytest.mark.parametrize(("samples", "sizes"), [(12, [4, 4, 4]), (5, [2, 3]), (17, [3, 3, 4, 3, 4])])
def test_a_piece_has_the_batch_size_at_most(samples: int, sizes: list[int]) -> None:
    """A remainder makes fewer pieces, a larger batch more, and none has a single sample that need not."""
    inner = MeanOfCounted()
    AccumulatingExecutor(inner, LOSS, 3, at_most=4).inference_and_backprop(*batch(samples))
    assert inner.sizes == sizes


def test_an_executor_of_before_has_its_buffers_for_one_release() -> None:
    """A class of a user's that sets `untrained`, as the interface said, is warned and trains."""
    executor, mine = MeanOfCounted(), np.zeros(3)
    with pytest.warns(DeprecationWarning, match=r"MeanOfCounted\.untrained is buffers now") as warned:
        executor.untrained = mine
    assert executor.buffers is mine and warned[0].filename == __file__
    with pytest.warns(DeprecationWarning, match=r"MeanOfCounted\.untrained is buffers now"):
        assert executor.untrained is mine


def test_labels_that_the_loss_ignores_do_not_count() -> None:
    """The mean over all labels that count, whatever the pieces have of them, one of which has none."""
    inner = MeanOfCounted()
    executor = AccumulatingExecutor(inner, Ignoring(), 3, at_most=2)
    values = np.array([1.0, 2.0, 5.0, 7.0, 11.0, 13.0])
    labels = np.array([0, IGNORED, 0, 0, IGNORED, IGNORED])
    announced: list[tuple[int, int]] = []
    given: Any = {"x": values}
    loss = executor.inference_and_backprop(given, labels, lambda *ends: announced.append(ends))
    assert loss == pytest.approx((1 + 5 + 7) / 3, rel=1e-15)
    np.testing.assert_allclose(inner.gradients, np.full(6, 13 / 3), rtol=1e-15)
    assert announced == [(4, 6), (0, 4)]
    assert inner.sizes == [2, 2]


def test_where_no_label_counts_the_loss_is_that_of_one_piece() -> None:
    """There is no mean over nothing: what the loss gives for a piece stands, and all is announced once."""
    executor = AccumulatingExecutor(MeanOfCounted(), Ignoring(), 3, at_most=2)
    announced: list[tuple[int, int]] = []
    with np.errstate(all="ignore"):
        loss = executor.inference_and_backprop(
            np.ones(6), np.full(6, IGNORED), lambda *ends: announced.append(ends)
        )
    assert np.isnan(loss)
    assert announced == [(4, 6), (0, 4)]
