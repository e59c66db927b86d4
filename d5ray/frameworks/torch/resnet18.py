"""ResNet-18 as a user of PyTorch writes it: what update rules are timed on"""

from typing import Any, final

from torch import Tensor, nn
from torch.nn.functional import relu


@final
class ResNet18(nn.Module):
    """Table 1 of He, Zhang, Ren, Sun (arXiv:1512.03385), with 1 × 1 shortcuts; (batch, 3, H, W)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        stem = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        layers: list[Any] = [stem, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)]
        channels = 64
        for wider, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [Block(channels, wider, stride), Block(wider, wider, 1)]
            channels = wider
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))

    def forward(self, inputs: Tensor) -> Any:
        return self.layers(inputs)


@final
class Block(nn.Module):
    """Two convolutions of 3 × 3 beside a shortcut."""

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, wider, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(wider, wider, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(wider), nn.BatchNorm2d(wider)])
        self.shortcut: nn.Module = nn.Identity()
        if channels != wider:
            convolution = nn.Conv2d(channels, wider, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(wider))

    def forward(self, inputs: Tensor) -> Any:
        inner = relu(self.norms[0](self.first(inputs)))
        return relu(self.norms[1](self.second(inner)) + self.shortcut(inputs))
