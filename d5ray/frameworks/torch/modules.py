"""The layers that PyTorch has no module for: joins of two chains, axes, positions, attention, sequences"""

from typing import final

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

DEVIATION = 0.02  # of the vectors of tokens and positions at the start, as in GPT-2


def embedding(tokens: int, width: int) -> nn.Embedding:
    """A vector for each token."""
    made = nn.Embedding(tokens, width)
    nn.init.normal_(made.weight, std=DEVIATION)
    return made


@final
class Sum(nn.Module):
    """A module of two chains: body(x) + shortcut(x)."""

    def __init__(self, body: nn.Sequential, shortcut: nn.Sequential) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The sum body(x) + shortcut(x)."""
        outputs: torch.Tensor = self.body(inputs) + self.shortcut(inputs)
        return outputs


@final
class PositionTable(nn.Module):
    """x + p for x (batch, length, width), with a vector p for each of that many positions."""

    def __init__(self, positions: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(positions, width))
        nn.init.normal_(self.weight, std=DEVIATION)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """x + p, (batch, length, width)."""
        return inputs + self.weight[: inputs.shape[1]]


@final
class CausalAttention(nn.Module):
    """Attention of every position to those up to its own, (batch, length, width) to the same shape."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.into = nn.Linear(width, 3 * width)  # queries, keys and values, each head by head
        self.out = nn.Linear(width, width)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The attention's outputs, (batch, length, width)."""
        batch, length, width = inputs.shape
        three = self.into(inputs).view(batch, length, 3, self.heads, width // self.heads)
        queries, keys, values = three.permute(2, 0, 3, 1, 4)  # each (batch, heads, length, width / heads)
        found = scaled_dot_product_attention(queries, keys, values, is_causal=True)
        mixed: torch.Tensor = self.out(found.transpose(1, 2).reshape(batch, length, width))
        return mixed


@final
class ConcatenatedSkip(nn.Module):
    """x, and after its channels those of body(x)."""

    def __init__(self, body: nn.Sequential) -> None:
        super().__init__()
        self.body = body

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The channels of x and those of body(x) after them."""
        return torch.cat((inputs, self.body(inputs)), dim=1)


@final
class Permuted(nn.Module):
    """x with its axes in this order."""

    def __init__(self, axes: tuple[int, ...]) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """x with its axes in the new order."""
        return inputs.permute(self.axes)


@final
class RowByRow(nn.Module):
    """(batch, channels, height, width) as sequences of rows (batch, height, channels × width)."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The rows of images, (batch, height, channels × width)."""
        return inputs.transpose(1, 2).flatten(2)


@final
class LSTMLayer(nn.Module):
    """(batch, length, width) to what one layer of LSTM says at every position (batch, length, features)."""

    def __init__(self, width: int, features: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, features, batch_first=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The layer's outputs at every position, (batch, length, features)."""
        outputs: torch.Tensor = self.lstm(inputs)[0]
        return outputs


@final
class LastPosition(nn.Module):
    """(batch, length, width) to the last of them (batch, width)."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The vectors at the last position, (batch, width)."""
        return inputs[:, -1]
