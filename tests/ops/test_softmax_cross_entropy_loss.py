"""The cross-entropies of NumPy and PyTorch, with labels that are ignored and without, beside PyTorch's own"""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import d5ray as d5
from d5ray.errors import ConfigurationError

LOSS, MASKED = d5.operators.SoftmaxCrossEntropyLoss(), d5.operators.MaskedCrossEntropyLoss()
shapes = st.tuples(st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("loss", [LOSS, MASKED], ids=["all count", "some are ignored"])
@given(shapes, st.sampled_from([(), (1,), (4,)]))
def test_loss_and_gradient_are_those_of_pytorch(
    loss: Any, shape: tuple[int, int, int], positions: tuple[int, ...]
) -> None:
    """In float64 to the last bits, also of sequences: scores (batch, T, classes) with labels (batch, T).

    Where all is ignored, loss and gradient are zero, and no NaN.
    """
    batch, classes, seed = shape
    generator = np.random.default_rng(seed)
    scores = 3 * generator.standard_normal((batch, *positions, classes))
    labels = generator.integers(0, classes, (batch, *positions))
    if loss is MASKED:
        labels[generator.random(labels.shape) < 0.4] = -100
    tensors = [torch.tensor(scores, requires_grad=True) for _ in range(2)]
    own = loss.torch(tensors[0], torch.tensor(labels))
    expected = F.cross_entropy(tensors[1].flatten(0, -2), torch.tensor(labels).flatten())
    if (labels == -100).all():
        expected = 0 * tensors[1].sum()
    for each in (own, expected):
        each.backward()
    assert own.shape == ()
    assert own.item() == pytest.approx(expected.item(), rel=1e-12, abs=1e-14)
    assert loss.numpy(scores, labels) == pytest.approx(expected.item(), rel=1e-12, abs=1e-14)
    of_torch, wanted = (np.asarray(each.grad) for each in tensors)
    for found in (loss.numpy_gradient(scores, labels), of_torch):
        np.testing.assert_allclose(found, wanted, atol=1e-15)


@pytest.mark.parametrize(("scores", "labels"), [((4, 5, 3), (4,)), ((4, 3), (4, 5)), ((4, 5, 3), (4, 3))])
def test_scores_that_are_not_one_row_a_label_are_refused(
    scores: tuple[int, ...], labels: tuple[int, ...]
) -> None:
    """With both shapes, in NumPy and PyTorch alike: nothing is broadcast."""
    given_scores, given_labels = np.zeros(scores), np.zeros(labels, np.int64)
    for call, own in (
        (LOSS.numpy, (given_scores, given_labels)),
        (LOSS.numpy_gradient, (given_scores, given_labels)),
        (LOSS.torch, (torch.tensor(given_scores), torch.tensor(given_labels))),
    ):
        with pytest.raises(ConfigurationError) as caught:
            call(*own)
        assert f"output has the shape {scores} for labels of shape {labels}" in str(caught.value)


def test_known_values() -> None:
    """Equal scores give log of the number of classes; a sure right answer 0, a sure wrong one the margin."""
    assert LOSS.numpy(np.zeros((3, 10)), np.array([0, 4, 9])) == pytest.approx(np.log(10), rel=1e-15)
    assert LOSS.numpy(np.array([[1000.0, 0.0]]), np.array([0])) == 0.0
    assert LOSS.numpy(np.array([[1000.0, 0.0]]), np.array([1])) == 1000.0  # and nothing overflows
    np.testing.assert_array_equal(
        LOSS.numpy_gradient(np.array([[1000.0, 0.0]]), np.array([1])), [[1.0, -1.0]]
    )


@pytest.mark.parametrize(
    ("shape", "shown"),
    [((2, 9), "(batch, 9)"), ((2,), "(batch)"), ((2, 10, 1), "(batch, 10, 1)"), ((2, 11), "(batch, 11)")],
)
def test_an_output_that_does_not_fit_is_refused(shape: tuple[int, ...], shown: str) -> None:
    """The error names the shape found, the one needed, and what to change."""
    with pytest.raises(ConfigurationError) as caught:
        LOSS.check(shape, 10)
    for words in (
        f"the shape {shown}",
        "10 classes needs (batch, 10)",
        "last layer give 10 scores per label",
    ):
        assert words in str(caught.value)


@pytest.mark.parametrize("batch", [7, 40])
def test_an_evaluation_counts_the_labels_that_count(batch: int) -> None:
    """Of samples whose label is ignored every other time: as the data set without them, in any pieces."""
    generator = np.random.default_rng(28)
    x, y = generator.random((40, 6), np.float32), generator.integers(0, 3, 40)
    some = np.where(np.arange(40) % 3 == 0, -100, y)
    kept = some != -100
    make = d5.Experiment("mlp", d5.from_arrays(x, y), d5.optimizers.SGD(0.1)).make_executor
    executor = make("mlp", {}, sample_shape=(6,), classes=3, loss=MASKED, seed=1, threads=1)
    pieces = [(x[at : at + batch], some[at : at + batch]) for at in range(0, 40, batch)]
    found, expected = executor.evaluate_pieces(pieces), executor.evaluate(x[kept], y[kept])
    assert found.accuracy == pytest.approx(expected.accuracy) and found.loss == pytest.approx(expected.loss)


def test_a_loss_that_ignores_nothing_is_refused_with_such_labels() -> None:
    dataset = d5.from_arrays(np.ones((40, 6)), [0, -100, 1, 2] * 10)
    with pytest.raises(ConfigurationError, match=r"labels of -100 in train, .*MaskedCrossEntropyLoss"):
        d5.Experiment("mlp", dataset, d5.optimizers.SGD(0.1))
    experiment = d5.Experiment("mlp", dataset, d5.optimizers.SGD(0.1), loss=MASKED, agents=2, batch_size=10)
    with d5.simulate(experiment) as group:
        group.train()
    with pytest.raises(ConfigurationError, match=r"ignored is 0\.5"):
        d5.operators.MaskedCrossEntropyLoss(0.5)  # type: ignore[arg-type]
