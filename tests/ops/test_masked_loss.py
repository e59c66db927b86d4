"""Claims about labels that are ignored: loss, gradient and accuracy are of the others, as PyTorch's own"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import d5ray as d5
from d5ray.errors import ConfigurationError

RNG = np.random.default_rng(28)
SCORES = RNG.normal(size=(4, 5, 3))
LABELS = np.where(RNG.random((4, 5)) < 0.4, -100, RNG.integers(0, 3, (4, 5)))
MASKED = d5.operators.MaskedCrossEntropyLoss()


def test_loss_and_gradient_are_those_of_pytorch() -> None:
    scores = torch.from_numpy(SCORES).requires_grad_()
    labels = torch.from_numpy(LABELS)
    expected = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)
    expected.backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert MASKED.numpy(SCORES, LABELS) == pytest.approx(expected.item(), rel=1e-12)
    np.testing.assert_allclose(MASKED.numpy_gradient(SCORES, LABELS), scores.grad.numpy(), atol=1e-15)
    found = MASKED.torch(torch.from_numpy(SCORES), labels)
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)


def test_nothing_counts_where_all_is_ignored() -> None:
    """Zero, and no NaN, in a batch of padding alone."""
    nothing = np.full((4, 5), -100)
    assert (
        MASKED.numpy(SCORES, nothing) == 0 == MASKED.torch(*map(torch.from_numpy, (SCORES, nothing))).item()
    )
    assert not MASKED.numpy_gradient(SCORES, nothing).any()


@pytest.mark.parametrize("batch", [7, 40])
def test_an_evaluation_counts_the_labels_that_count(batch: int) -> None:
    """Of samples whose label is ignored every other time: as the data set without them, in any pieces."""
    x, y = RNG.random((40, 6), np.float32), RNG.integers(0, 3, 40)
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
