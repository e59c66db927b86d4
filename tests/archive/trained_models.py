"""A model with all that a trained model may lack outside: statistics, dropout, tied and frozen weights"""

import torch
from torch import nn


class Awkward(nn.Module):
    """BatchNorm, Dropout, two layers with one weight, one that is not trained, and a buffer of its own."""

    scale: torch.Tensor

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.first, self.second = nn.Linear(256, width), nn.Linear(width, width)
        self.third, self.fixed = nn.Linear(width, width), nn.Linear(width, width)
        self.third.weight = self.second.weight
        self.fixed.requires_grad_(False)
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(width, 10)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores (batch, 10) of images (batch, 1, 8, 8)."""
        found = torch.relu(self.first(torch.relu(self.norm(self.conv(images))).flatten(1)))
        for layer in (self.second, self.third, self.fixed):
            found = found + self.scale * torch.relu(layer(found))
        scores: torch.Tensor = self.head(self.drop(found))
        return scores
