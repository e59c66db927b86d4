"""Claims about residual networks for small images, against that of He et al. written out by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch import from_model
from d5ray.frameworks.torch.build import chain
from d5ray.frameworks.torch.executor import TorchExecutor
from d5ray.networks.layers.layers import BatchNorm, Conv, Layer, Linear, Residual, chain_shape
from d5ray.networks.zoo.catalogue import network
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

Shape = tuple[int, int, int]
BLOCKS = {"resnet8": 1, "resnet20": 3}  # in each of the three stages: n
DEEP = {"resnet32": 5, "resnet44": 7, "resnet56": 9, "resnet110": 18}
ALL = BLOCKS | DEEP
DIGITS, MNIST, CIFAR = (1, 8, 8), (1, 28, 28), (3, 32, 32)


class Block(nn.Module):
    """The basic block of arXiv:1512.03385, figure 2, with option B where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.projects = inputs != outputs
        if self.projects:
            self.conv3 = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.bn3 = nn.BatchNorm2d(outputs)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.bn1(self.conv1(inputs)))
        hidden = self.bn2(self.conv2(hidden))
        return functional.relu(hidden + (self.bn3(self.conv3(inputs)) if self.projects else inputs))


class ByHand(nn.Module):
    """Section 4.2: a convolution, stages of 16, 32 and 64 channels, the mean of the image, a linear layer."""

    def __init__(self, channels: int, blocks: int, width: int = 16) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.stages = nn.ModuleList()
        before = width
        for stage in range(3):
            for block in range(blocks):
                after = width * 2**stage
                self.stages.append(Block(before, after, 2 if stage > 0 and block == 0 else 1))
                before = after
        self.linear = nn.Linear(4 * width, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.bn(self.conv(inputs)))
        for block in self.stages:
            hidden = block(hidden)
        scores: torch.Tensor = self.linear(hidden.mean(dim=(2, 3)))
        return scores


def made(name: str, shape: Shape, /, **options: Any) -> TorchExecutor:
    return from_model(
        name, options, sample_shape=shape, classes=10, loss=SoftmaxCrossEntropyLoss(), seed=7, threads=1
    )


def by_hand(name: str, shape: Shape, width: int = 16) -> ByHand:
    torch.manual_seed(7)
    return ByHand(shape[0], BLOCKS[name], width)


@pytest.mark.parametrize("shape", [DIGITS, MNIST, CIFAR], ids=str)
@pytest.mark.parametrize("name", BLOCKS)
def test_it_is_the_network_written_out(name: str, shape: Shape) -> None:
    """The same seed gives the same parameters; loss, gradients, statistics and scores agree."""
    executor, expected = made(name, shape), by_hand(name, shape)
    for found, tensor in zip(executor.module.parameters(), expected.parameters(), strict=True):
        assert torch.equal(found, tensor)
    generator = np.random.default_rng(2)
    inputs = generator.standard_normal((6, *shape)).astype(np.float32)
    labels = generator.integers(0, 10, 6)
    loss = functional.cross_entropy(expected(torch.from_numpy(inputs)), torch.from_numpy(labels))
    loss.backward()  # type: ignore[no-untyped-call]
    assert executor.inference_and_backprop(inputs, labels) == pytest.approx(loss.item(), rel=1e-5)
    for slot, tensor in zip(executor.slots, expected.parameters(), strict=True):
        gradient = executor.gradients[slot.offset : slot.offset + slot.size].reshape(slot.shape)
        assert tensor.grad is not None and tensor.grad.abs().max() > 1e-4
        np.testing.assert_allclose(gradient, tensor.grad, rtol=1e-3, atol=1e-5)
    for state, buffer in zip(executor.module.buffers(), expected.buffers(), strict=True):
        np.testing.assert_allclose(state, buffer, rtol=1e-4, atol=1e-6)
    scores = expected.eval()(torch.from_numpy(inputs)).detach().numpy()
    assert scores.shape == (6, 10)
    np.testing.assert_allclose(executor.inference(inputs), scores, rtol=1e-3, atol=1e-5)


def count(channels: int, blocks: int, width: int, classes: int) -> int:
    """Convolutions k²·in·out, normalizations 2·channels, the linear layer inputs·outputs + outputs.

    One stage of `a` channels: its blocks have 2 convolutions a → a and 2 normalizations, but for the first
    convolution of the second and third stage, a/2 → a, which brings a projection and its normalization.
    """
    total = 9 * channels * width + 2 * width  # the first layer
    for a in (width, 2 * width, 4 * width):
        total += blocks * (2 * 9 * a * a + 2 * 2 * a)
    for a in (2 * width, 4 * width):
        total += 9 * (a // 2) * a - 9 * a * a + (a // 2) * a + 2 * a
    return total + 4 * width * classes + classes


@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("shape", [DIGITS, MNIST, CIFAR], ids=str)
@pytest.mark.parametrize("name", BLOCKS)
def test_it_has_the_parameters_of_the_closed_form(name: str, shape: Shape, width: int) -> None:
    """And as state two numbers per normalized channel and one counter per normalization."""
    executor = made(name, shape, width=width)
    blocks = BLOCKS[name]
    assert executor.parameters.shape == (count(shape[0], blocks, width, 10),)
    normalized = width + blocks * 2 * 7 * width + 6 * width  # first layer, bodies, projections: channels
    assert executor.untrained.shape == (2 * normalized,)
    assert len(executor.counters) == 1 + 6 * blocks + 2


def test_the_parameters_are_as_many_as_in_the_paper() -> None:
    """0.27 million for 20 layers, to 1.7 million for 110 (table 6 of arXiv:1512.03385); 78 thousand for 8."""
    paper = {"resnet20": 0.27, "resnet32": 0.46, "resnet44": 0.66, "resnet56": 0.85, "resnet110": 1.7}
    for name, millions in paper.items():
        digits = 1 if millions > 1 else 2
        assert round((count(3, ALL[name], 16, 10) - 2_752) / 1e6, digits) == millions  # it has no projections
    assert count(3, 1, 16, 10) == 78_042 and count(3, 3, 16, 10) == 272_474


@pytest.mark.parametrize("name", DEEP)
def test_a_deep_one_has_the_parameters_of_the_closed_form(name: str) -> None:
    """Built without memory, on PyTorch's device `meta`."""
    with torch.device("meta"):
        module = chain(network(name, CIFAR, 10), CIFAR)
    assert sum(tensor.numel() for tensor in module.parameters()) == count(3, DEEP[name], 16, 10)


def weighted(layers: tuple[Layer, ...]) -> int:
    """Layers with weights along the longest path, which is how He et al. count."""
    depth = 0
    for layer in layers:
        if isinstance(layer, Residual):
            depth += max(weighted(layer.body), weighted(layer.shortcut))
        depth += isinstance(layer, (Conv, Linear))
    return depth


@pytest.mark.parametrize("name", ALL)
def test_its_depth_is_in_its_name(name: str) -> None:
    """6n + 2 layers; the image is halved twice, its channels doubled twice."""
    layers = network(name, CIFAR, 10)
    assert weighted(layers) == 6 * ALL[name] + 2 == int(name.removeprefix("resnet"))
    shapes = [
        chain_shape(layers[: i + 1], CIFAR) for i, layer in enumerate(layers) if isinstance(layer, Residual)
    ]
    stages = [(16, 32, 32), (32, 16, 16), (64, 8, 8)]
    assert shapes == [shape for shape in stages for _ in range(ALL[name])]
    assert layers[1] == BatchNorm()


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 5), (1, 7, 2)], ids=str)
@pytest.mark.parametrize("name", BLOCKS)
def test_it_takes_images_of_every_size(name: str, shape: Shape) -> None:
    """Down to one pixel, since its convolutions are padded."""
    scores = made(name, shape, width=2).inference(np.ones((3, *shape), np.float32))
    assert scores.shape == (3, 10) and np.isfinite(scores).all()


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ((64,), {}, "needs samples of shape (channels, height, width), found (64,)"),
        ((8, 8), {}, "choose a model without convolutions, such as 'mlp'"),
        ((1, 0, 8), {}, "the samples are too small"),
        (DIGITS, {"width": 0}, "channels of Conv(channels=0, "),
        (DIGITS, {"width": 2.5}, "must be an integer from 1 up"),
        (DIGITS, {"blocks": 2}, "model_kwargs do not fit the model"),
        (DIGITS, {"classes": 3}, "model_kwargs do not fit the model"),
    ],
)
@pytest.mark.parametrize("name", BLOCKS)
def test_what_does_not_fit_is_refused(
    name: str, shape: tuple[int, ...], options: dict[str, Any], words: str
) -> None:
    """Samples that are no images, and options that it has not."""
    with pytest.raises(ConfigurationError) as caught:
        network(name, shape, 10, **options)
    assert words in str(caught.value)


def test_it_learns() -> None:
    """Twenty steps on one batch of eight classes bring its loss from that of guessing to a tenth."""
    executor = made("resnet8", DIGITS, width=8)
    generator = np.random.default_rng(5)
    inputs = generator.standard_normal((16, *DIGITS)).astype(np.float32)
    labels = np.arange(16) % 8
    first = executor.inference_and_backprop(inputs, labels)
    for _ in range(20):
        executor.parameters -= 0.2 * executor.gradients
        last = executor.inference_and_backprop(inputs, labels)
    assert first > np.log(8) and last < first / 10
