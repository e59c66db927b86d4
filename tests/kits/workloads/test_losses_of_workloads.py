"""Claims about the losses of detectors and of actors: closed forms, hand-made cases, what is refused"""

import math
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.kits.workloads.losses.default_boxes import DefaultBoxes
from d5ray.kits.workloads.losses.multi_box_loss import matched
from d5ray.kits.workloads.metrics.average_precision import overlap

BOXES = DefaultBoxes(grids=(4, 2), sizes=((0.3,), (0.6, 0.8)), ratios=(1.0, 2.0))


# -- actor and critic --------------------------------------------------------------------------------------


def case(seed: int, dtype: str = "float64") -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((7, 4)).astype(dtype)
    targets = np.stack([rng.integers(0, 3, 7), rng.standard_normal(7), rng.standard_normal(7)], axis=1)
    return scores, targets.astype(dtype)


def test_actor_and_critic_by_their_formula_with_distributions_of_pytorch() -> None:
    scores, targets = case(1)
    loss = d5.operators.ActorCriticLoss(value=0.7, entropy=0.05)
    policy: Any = torch.distributions.Categorical(logits=torch.tensor(scores[:, :3]))
    taken = policy.log_prob(torch.tensor(targets[:, 0]))
    errors = torch.tensor(targets[:, 2] - scores[:, 3]) ** 2
    terms = -torch.tensor(targets[:, 1]) * taken + 0.35 * errors - 0.05 * policy.entropy()
    assert loss.numpy(scores, targets) == pytest.approx(terms.mean().item(), rel=1e-12)


def test_its_gradient_is_pytorchs() -> None:
    scores, targets = case(2)
    loss = d5.operators.ActorCriticLoss(value=0.7, entropy=0.05)
    x = torch.tensor(scores, requires_grad=True)
    found = loss.torch(x, torch.tensor(targets))
    torch.autograd.backward(found)
    assert found.item() == pytest.approx(loss.numpy(scores, targets), rel=1e-12)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), loss.numpy_gradient(scores, targets), rtol=1e-10, atol=1e-14)


# -- boxes -------------------------------------------------------------------------------------------------


def test_default_boxes_stand_on_their_grids() -> None:
    """4 · 4 · 2 and 2 · 2 · 4 boxes; the area is that of the size, the ratio width over height."""
    assert BOXES.centred.shape == (48, 4) and BOXES.per_cell == (2, 4)
    np.testing.assert_allclose(BOXES.centred[0], [0.125, 0.125, 0.3, 0.3], rtol=1e-6)
    np.testing.assert_allclose(BOXES.centred[1], [0.125, 0.125, 0.3 * 2**0.5, 0.3 / 2**0.5], rtol=1e-6)
    np.testing.assert_allclose(BOXES.centred[2, :2], [0.375, 0.125], rtol=1e-6)  # columns before rows
    np.testing.assert_allclose(BOXES.centred[47, :2], [0.75, 0.75], rtol=1e-6)
    np.testing.assert_allclose(BOXES.boxes(np.zeros((1, 48, 4)))[0], BOXES.corners, atol=1e-7)


def targets_of(*boxes: tuple[float, ...], most: int = 3) -> Any:
    found = np.full((1, most, 5), -1.0, np.float32)
    found[0, : len(boxes)] = np.reshape(boxes, (-1, 5))
    return torch.tensor(found)


def test_offsets_lead_back_to_the_true_boxes() -> None:
    """Every positive default box, moved by its offsets, is the true box; the nearest is always positive."""
    true = [
        (1, 0.1, 0.2, 0.45, 0.6),
        (0, 0.5, 0.4, 0.95, 0.9),
        (2, 0.01, 0.9, 0.06, 0.97),
    ]  # the last is tiny
    classes, offsets = matched(BOXES, targets_of(*true), 0.5)
    corners = BOXES.boxes(offsets.numpy())[0]
    overlaps = overlap(BOXES.corners, np.array(true)[:, 1:])
    positive = np.flatnonzero(classes[0].numpy())
    for place in positive:
        own = [row for row in true if row[0] + 1 == classes[0, place]]
        np.testing.assert_allclose(corners[place], own[0][1:], atol=1e-5)
    forced = overlaps.argmax(axis=0)
    expected = set(np.flatnonzero((overlaps >= 0.5).any(axis=1))) | set(forced)
    assert set(positive) == expected and [int(classes[0, f]) for f in forced] == [2, 1, 3]


def perfect(targets: Any, loss: d5.operators.MultiBoxLoss, sure: float = 30.0) -> Any:
    """Scores of a detector that is right about everything."""
    classes, offsets = matched(BOXES, targets, 0.5)
    return torch.cat([offsets, sure * torch.nn.functional.one_hot(classes, 4).float()], dim=2)


def test_a_perfect_detector_has_no_loss_and_a_clueless_one_that_of_guessing() -> None:
    """Guessing among "nothing" and 3 classes: ln 4 for every positive and for three negatives each."""
    loss, targets = d5.operators.MultiBoxLoss(BOXES), targets_of((1, 0.1, 0.2, 0.45, 0.6))
    scores = perfect(targets, loss)
    assert loss.torch(scores, targets).item() < 1e-9
    assert loss.torch(perfect(targets, loss, 0.0), targets).item() == pytest.approx(4 * math.log(4), rel=1e-6)
    moved = scores.clone()
    moved[..., 0] += 2.0  # smooth L1 of 2 is 1.5, at every positive box
    assert loss.torch(moved, targets).item() == pytest.approx(1.5, rel=1e-6)


def test_the_worst_negatives_count_three_to_one_and_the_mean_is_over_images() -> None:
    loss = d5.operators.MultiBoxLoss(BOXES)
    one, none = targets_of((0, 0.3, 0.3, 0.9, 0.9)), targets_of()
    scores = perfect(one, loss)
    positive = int((matched(BOXES, one, 0.5)[0] > 0).sum())
    wrong = (matched(BOXES, one, 0.5)[0][0] == 0).nonzero()[:5, 0]
    for place, sure in zip(wrong, (1.0, 2.0, 3.0, 4.0, 5.0), strict=True):
        scores[0, place, 4:] = torch.tensor([0.0, sure, 0.0, 0.0])
    surprise = [math.log(3 + math.exp(sure)) for sure in (5.0, 4.0, 3.0, 2.0, 1.0)]
    expected = sum(surprise[: 3 * positive]) / positive
    assert loss.torch(scores, one).item() == pytest.approx(expected, rel=1e-5)
    both = torch.cat([one, none])
    empty = perfect(none, loss)
    assert loss.torch(torch.cat([scores, empty]), both).item() == pytest.approx(expected / 2, rel=1e-5)
