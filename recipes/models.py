"""Networks of recipes that the catalogue has not: a detector, actor and critic, a factorization machine"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn


class SingleShotDetector(nn.Module):
    """Convolutions that halve an image (3, S, S) until each grid of the boxes (Liu et al., 1512.02325)

    Gives (batch, A, 5 + classes), see `DefaultBoxes`. grids: of the boxes, each half of the one before, the
    first one S / 8. per_cell: boxes of a cell of each. width: channels of the first layer.
    """

    def __init__(self, classes: int, grids: Sequence[int], per_cell: Sequence[int], width: int = 16) -> None:
        super().__init__()
        self.numbers = 5 + classes
        channels = [3, width, 2 * width, 4 * width]
        self.trunk = nn.Sequential(*(_halved(a, b) for a, b in pairwise(channels)))
        last = channels[-1]
        self.further = nn.ModuleList([nn.Identity(), *(_halved(last, last) for _ in range(len(grids) - 1))])
        self.heads = nn.ModuleList(nn.Conv2d(last, boxes * self.numbers, 3, padding=1) for boxes in per_cell)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features, found = self.trunk(images), []
        for further, head in zip(self.further, self.heads, strict=True):
            features = further(features)
            cells = head(features).permute(0, 2, 3, 1)  # (batch, rows, columns, boxes of a cell · numbers)
            found.append(cells.reshape(len(images), -1, self.numbers))
        return torch.cat(found, dim=1)


class ActorCritic(nn.Module):
    """Two multilayer perceptrons: scores of the actions, and the state's value; (batch, actions + 1)."""

    def __init__(self, observations: int, actions: int, hidden: int = 64) -> None:
        super().__init__()
        self.actor, self.critic = (
            _perceptron(observations, hidden, actions),
            _perceptron(observations, hidden, 1),
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.actor(observations), self.critic(observations)], dim=1)


class FactorizationMachine(nn.Module):
    """z = b + Σ_i w_i + Σ_{i<j} ⟨v_i, v_j⟩ over the rows i of a sample; gives the scores (0, z) of no and yes

    (Rendle, doi 10.1109/ICDM.2010.127.) One embedding holds w and v of a row side by side: 1 + `factors`.
    """

    def __init__(self, buckets: int, factors: int = 7) -> None:
        super().__init__()
        self.rows = nn.Embedding(buckets, 1 + factors)
        self.bias = nn.Parameter(torch.zeros(1))
        with torch.no_grad():
            self.rows.weight.normal_(0.0, 0.05)
            self.rows.weight[:, 0] = 0.0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found = self.rows(rows)  # (batch, fields, 1 + factors)
        weights, factors = found[..., 0], found[..., 1:]
        pairs = (factors.sum(dim=1) ** 2 - (factors**2).sum(dim=1)).sum(dim=1) / 2
        score = self.bias + weights.sum(dim=1) + pairs
        return torch.stack([torch.zeros_like(score), score], dim=1)


def _halved(inputs: int, outputs: int) -> nn.Sequential:
    """(inputs, S, S) to (outputs, S/2, S/2)."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


def _perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    last = nn.Linear(hidden, outputs)
    with torch.no_grad():
        last.weight.mul_(0.1)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), last)
