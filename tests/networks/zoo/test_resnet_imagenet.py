"""Claims about residual networks for ImageNet: published counts, table 1's shapes, and blocks written out."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch import from_model
from d5ray.frameworks.torch.build import chain
from d5ray.networks.layers.layers import Conv, Layer, Layers, Linear, Residual, chain_shape
from d5ray.networks.zoo.catalogue import network
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

IMAGENET = (3, 224, 224)
# Blocks of each stage (table 1 of arXiv:1512.03385), and the parameters of torchvision's networks.
PUBLISHED = {
    "resnet18": ((2, 2, 2, 2), 11_689_512),
    "resnet34": ((3, 4, 6, 3), 21_797_672),
    "resnet50": ((3, 4, 6, 3), 25_557_032),
    "resnet101": ((3, 4, 23, 3), 44_549_160),
    "resnet152": ((3, 8, 36, 3), 60_192_808),
}


def weighted(layers: Layers) -> int:
    """Layers with weights along the longest path, without projections, which is how He et al. count."""
    return sum(
        weighted(layer.body) if isinstance(layer, Residual) else isinstance(layer, (Conv, Linear))
        for layer in layers
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_it_has_the_published_number_of_parameters(name: str) -> None:
    """With 1,000 classes, to the last one; built without memory, on PyTorch's device `meta`."""
    with torch.device("meta"):
        module = chain(network(name, IMAGENET, 1000), IMAGENET)
    assert sum(tensor.numel() for tensor in module.parameters()) == PUBLISHED[name][1]


@pytest.mark.parametrize("name", PUBLISHED)
def test_its_stages_are_those_of_table_1(name: str) -> None:
    """56, 28, 14 and 7 pixels behind a stem of 112; the depth is in the name."""
    layers, blocks = network(name, IMAGENET, 1000), PUBLISHED[name][0]
    wide = 1 if name in ("resnet18", "resnet34") else 4
    assert weighted(layers) == int(name.removeprefix("resnet"))
    assert chain_shape(layers[:1], IMAGENET) == (64, 112, 112)
    assert chain_shape(layers[:4], IMAGENET) == (64, 56, 56)
    shapes = [
        chain_shape(layers[: i + 1], IMAGENET)
        for i, layer in enumerate(layers)
        if isinstance(layer, Residual)
    ]
    assert shapes == [
        (64 * wide * 2**stage, 56 // 2**stage, 56 // 2**stage)
        for stage, count in enumerate(blocks)
        for _ in range(count)
    ]
    assert chain_shape(layers, IMAGENET) == (1000,)


class Bottleneck(nn.Module):
    """Figure 5 of the paper, on the right; the stride is in the 3 × 3 convolution."""

    def __init__(self, inputs: int, channels: int, stride: int, projects: bool) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [
                nn.Conv2d(inputs, channels, 1, bias=False), nn.BatchNorm2d(channels),
                nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False), nn.BatchNorm2d(channels),
                nn.Conv2d(channels, 4 * channels, 1, bias=False), nn.BatchNorm2d(4 * channels),
            ]
        )  # fmt: skip
        self.beside = nn.Sequential()
        if projects:
            self.beside = nn.Sequential(
                nn.Conv2d(inputs, 4 * channels, 1, stride, bias=False), nn.BatchNorm2d(4 * channels)
            )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs
        for place, part in enumerate(self.convs):
            hidden = part(hidden)
            if place in (1, 3):
                hidden = functional.relu(hidden)
        return functional.relu(hidden + self.beside(inputs))


class ByHand(nn.Module):
    """ResNet-50, narrow."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 7, 2, padding=3, bias=False), nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList()
        before = width
        for stage, count in enumerate((3, 4, 6, 3)):
            for place in range(count):
                stride = 2 if stage and place == 0 else 1
                self.blocks.append(Bottleneck(before, width * 2**stage, stride, place == 0))
                before = 4 * width * 2**stage
        self.linear = nn.Linear(before, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.norm(self.stem(inputs)))
        hidden = functional.max_pool2d(hidden, 3, 2, padding=1)
        for block in self.blocks:
            hidden = block(hidden)
        scores: torch.Tensor = self.linear(hidden.mean(dim=(2, 3)))
        return scores


def test_resnet50_is_the_network_written_out() -> None:
    """The same seed gives the same parameters; loss, gradients and scores agree."""
    shape = (3, 64, 64)
    executor = from_model(
        "resnet50", {"width": 4}, sample_shape=shape, classes=10, loss=SoftmaxCrossEntropyLoss(), seed=7,
        threads=1,
    )  # fmt: skip
    torch.manual_seed(7)
    expected = ByHand(4, 10)
    for found, tensor in zip(executor.module.parameters(), expected.parameters(), strict=True):
        assert torch.equal(found, tensor)
    generator = np.random.default_rng(2)
    inputs = generator.standard_normal((4, *shape)).astype(np.float32)
    labels = generator.integers(0, 10, 4)
    loss = functional.cross_entropy(expected(torch.from_numpy(inputs)), torch.from_numpy(labels))
    loss.backward()  # type: ignore[no-untyped-call]
    assert executor.inference_and_backprop(inputs, labels) == pytest.approx(loss.item(), rel=1e-4)
    for slot, tensor in zip(executor.slots, expected.parameters(), strict=True):
        gradient = executor.gradients[slot.offset : slot.offset + slot.size].reshape(slot.shape)
        assert tensor.grad is not None
        scale = float(tensor.grad.abs().max())
        np.testing.assert_allclose(gradient, tensor.grad, rtol=1e-2, atol=1e-3 * scale)
    scores = expected.eval()(torch.from_numpy(inputs)).detach().numpy()
    np.testing.assert_allclose(executor.inference(inputs), scores, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", PUBLISHED)
def test_other_samples_are_refused(name: str) -> None:
    """What is no image."""
    layer: Layer = network(name, IMAGENET, 10)[0]
    with pytest.raises(ConfigurationError, match="needs samples of shape"):
        network(name, (64,), 10)
    assert layer == Conv(64, 7, 3, 2, bias=False)
