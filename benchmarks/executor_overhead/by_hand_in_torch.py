"""LeNet, ResNet-18 and a transformer as a user of PyTorch writes them, and the loop around them"""

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.executor_overhead.measured_network import MeasuredNetwork
from d5ray.errors import ConfigurationError, nearest

Array = np.ndarray[Any, Any]


@final
class TorchByHand:
    """A module with its batch; see `executor_times.Side`."""

    def __init__(self, module: nn.Module, names: list[str], batch: Array, labels: Array) -> None:
        self.module, self._names = module, names
        self._batch, self._labels = batch, labels

    def infer(self) -> Array:
        self.module.eval()
        with torch.inference_mode():
            scores: Array = self.module(torch.from_numpy(self._batch)).numpy()
        return scores

    def train(self) -> float:
        self.module.train()
        for parameter in self.module.parameters():
            parameter.grad = None
        scores = self.module(torch.from_numpy(self._batch)).flatten(0, -2)
        loss = F.cross_entropy(scores, torch.from_numpy(self._labels).flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    def gradients(self) -> list[Array]:
        return [each.grad.numpy() for each in self.module.parameters() if each.grad is not None]

    def laid_out(self, gradients: Mapping[str, Array]) -> list[Array]:
        return [gradients[name] for name in self._names]


def side(of: MeasuredNetwork, values: Mapping[str, Array], batch: Array, labels: Array) -> TorchByHand:
    """The module with these values, whose order is that of its own tensors."""
    if of.network not in MODULES:
        raise ConfigurationError(f"no {of.network!r} is written by hand: {nearest(of.network, MODULES)}")
    module = MODULES[of.network](of)
    own = module.state_dict()
    with torch.no_grad():
        for tensor, value in zip(own.values(), values.values(), strict=True):
            tensor.copy_(torch.from_numpy(value))
    parameters = dict(module.named_parameters())
    names = [theirs for name, theirs in zip(own, values, strict=True) if name in parameters]
    return TorchByHand(module, names, batch, labels)


@final
class LeNet(nn.Module):
    def __init__(self, of: MeasuredNetwork) -> None:
        super().__init__()
        channels, height, width = of.sample_shape
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5, padding=2)
        self.fc1 = nn.Linear(16 * (height // 4) * (width // 4), 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, of.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        scores: Tensor = self.fc3(F.relu(self.fc2(x)))
        return scores


@final
class BasicBlock(nn.Module):
    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample: nn.Module | None = None
        if stride > 1 or channels != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + shortcut)


@final
class ResNet18(nn.Module):
    def __init__(self, of: MeasuredNetwork) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(of.sample_shape[0], 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        blocks, channels = [], 64
        for planes, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [BasicBlock(channels, planes, stride), BasicBlock(planes, planes, 1)]
            channels = planes
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(512, of.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        scores: Tensor = self.fc(F.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1))
        return scores


@final
class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            each.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for each in self.qkv(self.ln1(x)).split(width, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        found: Tensor = x + self.fc2(F.gelu(self.fc1(self.ln2(x))))
        return found


@final
class Transformer(nn.Module):
    def __init__(self, of: MeasuredNetwork) -> None:
        super().__init__()
        width, heads = of.options["width"], of.options["heads"]
        self.tokens = nn.Embedding(of.classes, width)
        self.positions = nn.Embedding(of.sample_shape[0], width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(of.options["depth"])))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, of.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokens(x) + self.positions.weight
        scores: Tensor = self.head(self.ln(self.blocks(x)))
        return scores


MODULES: Final[Mapping[str, Callable[[MeasuredNetwork], nn.Module]]] = {
    "lenet": LeNet, "resnet18": ResNet18, "transformer": Transformer,
}  # fmt: skip
