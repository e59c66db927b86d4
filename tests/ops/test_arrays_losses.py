"""The losses backwards, against PyTorch, and with labels that do not fit"""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from d5ray.errors import ConfigurationError, DataError
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss
from tests.ops.gradients import Array, backward, check, check_against_torch, context, forward, normal, on_host

SHAPES = [(4, 3), (2, 3, 4), (2, 3, 2, 2)]
REDUCTIONS = ["mean", "sum", "none"]


def loss_inputs(shape: tuple[int, ...], weighted: bool, ignored: int | None) -> list[Array]:
    """Scores, labels, some of them the ignored one, and weights."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, shape[1], (shape[0], *shape[2:]))
    if ignored is not None:
        labels.flat[:2] = ignored
    weights = [generator.random(shape[1]) + 0.5] if weighted else []
    return [*normal(shape), labels, *weights]


@pytest.mark.parametrize("ignored", [None, 1, -100])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_loss_of_labels(
    shape: tuple[int, ...], reduction: str, weighted: bool, ignored: int | None, xp: Any
) -> None:
    """Weighted, with ignored labels, reduced or not, as PyTorch has them; weights have no gradient."""
    inputs = loss_inputs(shape, weighted, ignored)
    attributes: dict[str, Any] = {"reduction": reduction}
    options: dict[str, Any] = {"reduction": reduction}
    if ignored is not None:
        attributes["ignore_index"] = options["ignore_index"] = ignored
    for kind, outputs, function in (
        ("SoftmaxCrossEntropyLoss", 2, functional.cross_entropy),
        ("NegativeLogLikelihoodLoss", 1, functional.nll_loss),
    ):
        place = context(kind, inputs, attributes, outputs)
        check(xp, place, inputs, without=(2,))

        def loss(
            scores: torch.Tensor, labels: torch.Tensor, *weights: torch.Tensor, f: Any = function
        ) -> Any:
            given = {"weight": weights[0].detach()} if weights else {}
            return f(scores, labels, **given, **options), functional.log_softmax(scores, dim=1)

        check_against_torch(place, inputs, loss, without=(2,))


def test_the_loss_of_training_is_the_same() -> None:
    """`d5ray.ops.losses.softmax_cross_entropy_loss` has the classes at the end."""
    scores, labels = loss_inputs((5, 4, 3), weighted=False, ignored=None)
    loss, last = SoftmaxCrossEntropyLoss(), scores.swapaxes(1, 2)
    place = context("SoftmaxCrossEntropyLoss", [scores, labels])
    assert forward(np, place, [scores, labels])[0] == pytest.approx(loss.numpy(last, labels), rel=1e-12)
    found = backward(np, place, [scores, labels], [np.ones(())])[0]
    assert found is not None
    np.testing.assert_allclose(found.swapaxes(1, 2), loss.numpy_gradient(last, labels), rtol=1e-10)


def test_large_scores_do_not_overflow(xp: Any) -> None:
    """exp of a thousand is no number of float32, the loss is 0 all the same."""
    inputs = [np.array([[1000.0, 0.0], [0.0, 1000.0]], dtype=np.float32), np.array([0, 1])]
    (loss,) = forward(xp, context("SoftmaxCrossEntropyLoss", inputs), inputs)[:1]
    assert on_host(loss) == 0 and loss.dtype == np.float32


def test_mean_squared_error(xp: Any) -> None:
    """A mean over all elements, with a gradient for both."""
    inputs = normal((3, 4), (3, 4))
    place = context("MeanSquaredError", inputs)
    check(xp, place, inputs)
    check_against_torch(place, inputs, functional.mse_loss)


def test_half_precision_is_computed_wide(xp: Any) -> None:
    """The mean of many float16 numbers, whose sum float16 could not hold."""
    inputs = [np.full(100_000, 2, dtype=np.float16), np.zeros(100_000, dtype=np.float16)]
    (loss,) = forward(xp, context("MeanSquaredError", inputs), inputs)
    assert on_host(loss) == 4 and loss.dtype == np.float16


@pytest.mark.parametrize("label", [3, -1])
def test_a_label_outside_the_classes_is_an_error(label: int) -> None:
    """It says which labels there are, and which there may be."""
    inputs = [np.zeros((2, 3)), np.array([0, label])]
    with pytest.raises(DataError, match=r"for 3 classes: they must lie in 0\.\.2"):
        forward(np, context("NegativeLogLikelihoodLoss", inputs), inputs)


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "message"),
    [
        ("SoftmaxCrossEntropyLoss", ((2, 3), (3,)), {}, r"scores of \(2, 3\) for labels of \(3,\)"),
        (
            "NegativeLogLikelihoodLoss",
            ((2, 3), (2,)),
            {"reduction": "max"},
            "'max': it must be mean, sum or none",
        ),
        ("MeanSquaredError", ((2, 3), (3,)), {}, "both need one shape"),
    ],
)
def test_what_does_not_fit_is_named(
    kind: str, shapes: tuple[tuple[int, ...], ...], attributes: dict[str, Any], message: str
) -> None:
    """With the node, what was found, and what is needed."""
    inputs = [np.zeros(shapes[0]), np.zeros(shapes[1], dtype=np.int64)]
    with pytest.raises(ConfigurationError, match=f"{kind} .*{message}"):
        forward(np, context(kind, inputs, attributes), inputs)
