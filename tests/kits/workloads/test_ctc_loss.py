"""Claims about CTC: PyTorch's own loss and gradient, the sum over all paths, nats a label, what is refused"""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import DataError
from d5ray.kits.workloads.events.sequence_errors import best_path

RNG = np.random.default_rng(31)
SCORES = RNG.normal(size=(5, 9, 5))  # four classes and the blank, which is the last
LABELS = np.array([[0, 0, 1, -100], [2, -100, -100, -100], [3, 1, 3, 2], [1, 1, 1, -100], [0, 1, -100, -100]])
LOSS = d5.operators.CTCLoss()


def of_pytorch(scores: torch.Tensor, labels: Any) -> torch.Tensor:
    """By `torch.nn.CTCLoss`, of labels in one row; it sums, and we divide by the labels."""
    lengths = torch.tensor((labels >= 0).sum(axis=1))
    flat = torch.tensor(labels[labels >= 0])
    frames = torch.full((len(labels),), scores.shape[1])
    own = torch.nn.CTCLoss(blank=scores.shape[2] - 1, reduction="sum")
    total: torch.Tensor = own(scores.log_softmax(-1).transpose(0, 1), flat, frames, lengths)
    return total / len(flat)


def test_loss_and_gradient_are_pytorchs_in_numpy_too() -> None:
    scores = torch.tensor(SCORES, requires_grad=True)
    expected = of_pytorch(scores, LABELS)
    torch.autograd.backward(expected)
    assert scores.grad is not None
    assert LOSS.numpy(SCORES, LABELS) == pytest.approx(expected.item(), rel=1e-12)
    np.testing.assert_allclose(LOSS.numpy_gradient(SCORES, LABELS), scores.grad.numpy(), atol=1e-14)
    again = torch.tensor(SCORES, requires_grad=True)
    found = LOSS.torch(again, torch.tensor(LABELS))
    torch.autograd.backward(found)
    assert found.item() == pytest.approx(expected.item(), rel=1e-12) and again.grad is not None
    np.testing.assert_allclose(again.grad.numpy(), scores.grad.numpy(), atol=1e-14)


@pytest.mark.parametrize("label", [[0], [0, 1], [1, 1]])
def test_it_is_the_sum_over_all_paths_that_read_as_the_labels(label: list[int]) -> None:
    """Four frames of two classes and the blank: 81 paths, each read by the rule of the decoder."""
    scores = RNG.normal(size=(1, 4, 3))
    shares = np.exp(scores[0]) / np.exp(scores[0]).sum(axis=1, keepdims=True)
    total = sum(
        math.prod(shares[t, k] for t, k in enumerate(path))
        for path in itertools.product(range(3), repeat=4)
        if best_path(np.eye(3)[list(path)]) == label
    )
    expected = -math.log(total) / len(label)
    assert LOSS.numpy(scores, np.array([label])) == pytest.approx(expected, rel=1e-12)


def test_a_batch_computed_in_pieces_is_the_batch() -> None:
    """Nats a label: each piece counts by its labels, so that accumulation and evaluation are exact."""
    parts = [(SCORES[:2], LABELS[:2]), (SCORES[2:], LABELS[2:])]
    counts = [LOSS.counted(labels) for _, labels in parts]
    pieces = [LOSS.numpy(*part) * count for part, count in zip(parts, counts, strict=True)]
    assert sum(pieces) / sum(counts) == pytest.approx(LOSS.numpy(SCORES, LABELS), rel=1e-12)


def test_too_few_frames_for_a_repetition_have_no_path() -> None:
    """Two equal labels need a blank between them: three frames."""
    with pytest.raises(DataError, match="a sample has no label"):
        LOSS.torch(torch.zeros(2, 3, 4), torch.tensor([[1], [-100]]))
    label = np.array([[1, 1]])
    assert LOSS.numpy(np.zeros((1, 2, 3)), label) == math.inf
    assert LOSS.numpy(np.zeros((1, 3, 3)), label) == pytest.approx(3 * math.log(3) / 2)
