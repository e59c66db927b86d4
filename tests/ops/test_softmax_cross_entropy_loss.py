"""SoftmaxCrossEntropyLoss: PyTorch against NumPy, gradients against central differences and autograd."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

LOSS = SoftmaxCrossEntropyLoss()
shapes = st.tuples(st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**32 - 1))


def drawn(
    batch: int, classes: int, seed: int, scale: float = 3.0
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    generator = np.random.default_rng(seed)
    return scale * generator.standard_normal((batch, classes)), generator.integers(0, classes, batch)


@given(shapes)
def test_pytorch_agrees_with_numpy(shape: tuple[int, int, int]) -> None:
    """In float64 the two losses agree to the last bits, and so do autograd and the NumPy gradient."""
    scores, labels = drawn(*shape)
    tensor = torch.tensor(scores, requires_grad=True)
    loss = LOSS.torch(tensor, torch.tensor(labels))
    assert loss.shape == ()
    assert loss.item() == pytest.approx(LOSS.numpy(scores, labels), rel=1e-12, abs=1e-14)
    loss.backward()  # type: ignore[no-untyped-call]
    assert tensor.grad is not None
    np.testing.assert_allclose(LOSS.numpy_gradient(scores, labels), tensor.grad.numpy(), atol=1e-15)


@given(shapes, st.integers(1, 4))
def test_sequences_are_the_mean_over_all_their_labels(shape: tuple[int, int, int], length: int) -> None:
    """Scores (batch, T, classes) with labels (batch, T) are batch · T samples, in loss and gradients."""
    batch, classes, seed = shape
    flat_scores, flat_labels = drawn(batch * length, classes, seed)
    scores, labels = flat_scores.reshape(batch, length, classes), flat_labels.reshape(batch, length)
    assert LOSS.numpy(scores, labels) == pytest.approx(LOSS.numpy(flat_scores, flat_labels), rel=1e-14)
    gradient = LOSS.numpy_gradient(flat_scores, flat_labels).reshape(scores.shape)
    np.testing.assert_allclose(LOSS.numpy_gradient(scores, labels), gradient, rtol=1e-14)
    tensor = torch.tensor(scores, requires_grad=True)
    loss = LOSS.torch(tensor, torch.tensor(labels))
    assert loss.shape == () and loss.item() == pytest.approx(LOSS.numpy(scores, labels), rel=1e-12, abs=1e-14)
    loss.backward()  # type: ignore[no-untyped-call]
    assert tensor.grad is not None
    np.testing.assert_allclose(gradient, tensor.grad.numpy(), atol=1e-15)


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


@given(shapes)
def test_the_loss_is_its_definition(shape: tuple[int, int, int]) -> None:
    """−(1/B) Σ log( exp s_l / Σ exp s ), written out."""
    scores, labels = drawn(*shape)
    terms = [
        -np.log(np.exp(row[label]) / np.exp(row).sum()) for row, label in zip(scores, labels, strict=True)
    ]
    assert LOSS.numpy(scores, labels) == pytest.approx(np.mean(terms), rel=1e-12, abs=1e-13)


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
