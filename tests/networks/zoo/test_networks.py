"""Claims about networks by name: sizes of their papers, shapes, modules written by hand, what is refused"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch import from_model
from d5ray.frameworks.torch.build import chain
from d5ray.networks.layers.layers import (
    Conv,
    Flatten,
    Layers,
    Linear,
    MaxPool,
    Relu,
    Residual,
    Shape,
    chain_shape,
)
from d5ray.networks.zoo.catalogue import NETWORKS, check_network_name, network
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

DIGITS, MNIST, CIFAR, IMAGENET = (1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 224, 224)
SMALL = {"resnet8": 1, "resnet20": 3, "resnet32": 5, "resnet44": 7, "resnet56": 9, "resnet110": 18}  # n
# Blocks of each stage (table 1 of arXiv:1512.03385), and the parameters of torchvision's networks.
PUBLISHED = {
    "resnet18": ((2, 2, 2, 2), 11_689_512),
    "resnet34": ((3, 4, 6, 3), 21_797_672),
    "resnet50": ((3, 4, 6, 3), 25_557_032),
    "resnet101": ((3, 4, 23, 3), 44_549_160),
    "resnet152": ((3, 8, 36, 3), 60_192_808),
}


def residual(channels: int, blocks: int, width: int = 16) -> int:
    """Parameters of a residual network of 10 classes for small images, by the closed form of its layers.

    A stage of `a` channels: its blocks have 2 convolutions a → a and 2 normalizations, but for the first
    convolution of the second and third stage, a/2 → a, which brings a projection and its normalization.
    """
    total = 9 * channels * width + 2 * width
    for a in (width, 2 * width, 4 * width):
        total += blocks * (2 * 9 * a * a + 2 * 2 * a)
    for a in (2 * width, 4 * width):
        total += 9 * (a // 2) * a - 9 * a * a + (a // 2) * a + 2 * a
    return total + 4 * width * 10 + 10


def lenet(channels: int, features: int) -> int:
    return (25 * channels + 1) * 6 + (6 * 25 + 1) * 16 + (features + 1) * 120 + 121 * 84 + 85 * 10


def unet() -> int:
    """Figure 1, layer by layer: 3 × 3 convolutions down and up, 2 × 2 ones between, 1 × 1 at the end."""

    def conv(inputs: int, outputs: int, kernel: int) -> int:
        return outputs * (inputs * kernel**2 + 1)

    widths = (64, 128, 256, 512, 1024)
    down = sum(conv(i, o, 3) + conv(o, o, 3) for i, o in zip((1, *widths), widths, strict=False))
    up = sum(conv(2 * o, o, 2) + conv(2 * o, o, 3) + conv(o, o, 3) for o in widths[:-1])
    return down + up + conv(64, 2, 1)


def test_sizes_in_closed_form_are_the_papers() -> None:
    """0.27 million for 20 layers to 1.7 for 110 (table 6 of arXiv:1512.03385, without projections)."""
    for name, millions in {"resnet20": 0.27, "resnet44": 0.66, "resnet56": 0.85, "resnet110": 1.7}.items():
        assert round((residual(3, SMALL[name]) - 2752) / 1e6, 1 if millions > 1 else 2) == millions
    assert unet() == 31_030_658


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "parameters"),
    [
        ("lenet", DIGITS, 10, {}, lenet(1, 64)), ("lenet", CIFAR, 10, {}, lenet(3, 1024)),
        ("mlp", MNIST, 10, {}, 785 * 64 + 65 * 10),
        *((name, CIFAR, 10, {}, residual(3, blocks)) for name, blocks in SMALL.items()),
        ("resnet8", DIGITS, 10, {"width": 1}, residual(1, 1, 1)),
        *((name, IMAGENET, 1000, {}, parameters) for name, (_, parameters) in PUBLISHED.items()),
        ("vgg11", IMAGENET, 1000, {}, 132_863_336),  # torchvision's, and the paper's 133 million
        ("mobilenet", IMAGENET, 1000, {}, 4_231_976),  # the paper's 4.2 million; Keras's trainable ones
        ("wide_resnet", CIFAR, 10, {}, 36_479_194),  # the paper's 36.5 million
        ("wide_resnet", CIFAR, 10, {"depth": 16, "factor": 8}, 10_961_370),  # its 11.0 million
        ("unet", (1, 64, 64), 2, {}, unet()),
        ("lstm", MNIST, 10, {"features": 128}, 4 * 128 * (28 + 128 + 2) + 1290),
        ("lstm", (35,), 10, {"tokens": 256, "width": 64, "depth": 2}, 16_384 + 99_328 + 132_096 + 1290),
    ],
)  # fmt: skip
def test_a_network_has_the_parameters_of_its_paper(
    name: str, shape: Shape, classes: int, options: dict[str, Any], parameters: int
) -> None:
    """Built without memory, on PyTorch's device `meta`."""
    with torch.device("meta"):
        module = chain(network(name, shape, classes, **options), shape)
    assert sum(tensor.numel() for tensor in module.parameters()) == parameters


def weighted(layers: Layers) -> int:
    """Layers with weights along the longest path, without projections, which is how He et al. count."""
    return sum(
        weighted(layer.body) if isinstance(layer, Residual) else isinstance(layer, (Conv, Linear))
        for layer in layers
    )


@pytest.mark.parametrize("name", [*SMALL, *PUBLISHED])
def test_the_depth_of_a_residual_network_is_in_its_name(name: str) -> None:
    """And its stages are the paper's: halved images, doubled channels."""
    blocks: tuple[int, ...]
    if name in SMALL:
        shape, width, size, blocks = CIFAR, 16, 32, (SMALL[name],) * 3
    else:
        shape, width, size, blocks = IMAGENET, 64, 56, PUBLISHED[name][0]
        width *= 1 if name in ("resnet18", "resnet34") else 4
    layers = network(name, shape, 10)
    assert weighted(layers) == int(name.removeprefix("resnet"))
    found = [
        chain_shape(layers[: i + 1], shape) for i, each in enumerate(layers) if isinstance(each, Residual)
    ]
    stages = [(width * 2**stage, size // 2**stage, size // 2**stage) for stage in range(len(blocks))]
    assert found == [stage for stage, count in zip(stages, blocks, strict=True) for _ in range(count)]


@pytest.mark.parametrize(
    ("name", "shape", "options", "output"),
    [
        *((name, shape, {}, (10,)) for name in ("lenet", "mlp", "resnet8") for shape in (MNIST, (1, 9, 13))),
        ("resnet20", (1, 1, 1), {"width": 2}, (10,)), ("resnet8", (2, 3, 5), {"width": 2}, (10,)),
        ("lenet", (1, 4, 4), {}, (10,)),
        ("vgg11", CIFAR, {"width": 4, "hidden": (16,)}, (10,)), ("mobilenet", CIFAR, {"width": 4}, (10,)),
        ("wide_resnet", (3, 16, 16), {"depth": 10, "factor": 1, "dropout": 0.3}, (10,)),
        ("unet", (1, 16, 24), {"width": 4, "depth": 2}, (16, 24, 10)),
        ("lstm", DIGITS, {"features": 6, "depth": 2}, (10,)), ("lstm", (7, 5), {"features": 6}, (10,)),
        ("lstm", (7,), {"features": 6, "tokens": 9}, (10,)),
        ("transformer", (6,), {"dropout": 0.1}, (6, 10)),
    ],
)  # fmt: skip
def test_shapes_as_data_are_those_that_pytorch_computes(
    name: str, shape: Shape, options: dict[str, Any], output: Shape
) -> None:
    """Layer by layer; and every parameter has a gradient, where there is more than a pixel."""
    layers, generator = network(name, shape, 10, **options), np.random.default_rng(4)
    value = torch.from_numpy(generator.standard_normal((4, *shape)).astype(np.float32))
    if len(shape) == 1:
        value = torch.from_numpy(generator.integers(0, 9, (4, *shape)))
    module, expected = chain(layers, shape), shape
    for layer, part in zip(layers, module, strict=True):
        value, expected = part(value), layer.output_shape(expected)
        assert tuple(value.shape) == (4, *expected)
    assert expected == output
    functional.cross_entropy(value.flatten(0, -2), torch.arange(4).repeat(value[0].numel() // 10)).backward()  # type: ignore[no-untyped-call]
    for key, tensor in module.named_parameters():
        assert tensor.grad is not None and (tensor.grad.abs().max() > 0 or min(shape) < 4), key


# -- written out by hand -----------------------------------------------------------------------------------


def lenet_by_hand(channels: int, height: int, width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * (height // 4) * (width // 4), 120), nn.ReLU(),
        nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def mlp_by_hand(channels: int, height: int, width: int) -> nn.Module:
    pixels = channels * height * width
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 64), nn.ReLU(), nn.Linear(64, 10))


class Block(nn.Module):
    """The basic block of arXiv:1512.03385, figure 2, with option B where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.beside = nn.Sequential()
        if inputs != outputs:
            self.beside = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.bn1(self.conv1(inputs)))
        return functional.relu(self.bn2(self.conv2(hidden)) + self.beside(inputs))


class Bottleneck(nn.Module):
    """The block of figure 5, on the right; the stride is in the 3 × 3 convolution."""

    def __init__(self, inputs: int, channels: int, stride: int, projects: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, channels, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, 4 * channels, 1, bias=False), nn.BatchNorm2d(4 * channels),
        )  # fmt: skip
        self.beside = nn.Sequential()
        if projects:
            self.beside = nn.Sequential(
                nn.Conv2d(inputs, 4 * channels, 1, stride, bias=False), nn.BatchNorm2d(4 * channels)
            )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(inputs) + self.beside(inputs))


def resnet50_by_hand(channels: int, width: int) -> nn.Module:
    """Table 1: a stem of 7 × 7, a pooling, four stages of bottlenecks."""
    parts: list[nn.Module] = [nn.Conv2d(channels, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)]
    parts += [nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = width
    for stage, count in enumerate((3, 4, 6, 3)):
        for place in range(count):
            parts.append(Bottleneck(before, width * 2**stage, 2 if stage and not place else 1, not place))
            before = 4 * width * 2**stage
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


def resnet_by_hand(channels: int, width: int, blocks: int) -> nn.Module:
    """Section 4.2: a convolution, three stages, the mean of the image, a linear layer."""
    parts: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
    parts.append(nn.ReLU())
    before = width
    for stage in range(3):
        for place in range(blocks):
            parts.append(Block(before, width * 2**stage, 2 if stage and place == 0 else 1))
            before = width * 2**stage
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


BY_HAND: dict[str, tuple[Callable[..., nn.Module], dict[str, Any], float]] = {  # and how near gradients are
    "lenet": (lenet_by_hand, {}, 0.0),
    "mlp": (mlp_by_hand, {}, 0.0),
    "resnet8": (lambda channels, *_: resnet_by_hand(channels, 16, 1), {}, 1e-3),
    "resnet20": (lambda channels, *_: resnet_by_hand(channels, 4, 3), {"width": 4}, 1e-3),
    "resnet50": (lambda channels, *_: resnet50_by_hand(channels, 4), {"width": 4}, 1e-2),
}


@pytest.mark.parametrize("shape", [DIGITS, CIFAR], ids=str)
@pytest.mark.parametrize("name", BY_HAND)
def test_a_network_by_name_is_the_module_written_out(name: str, shape: tuple[int, int, int]) -> None:
    """The same seed gives the same parameters; loss, gradients, statistics and scores agree."""
    make, options, near = BY_HAND[name]
    executor = from_model(
        name, options, sample_shape=shape, classes=10, loss=SoftmaxCrossEntropyLoss(), seed=7, threads=1
    )
    torch.manual_seed(7)
    expected = make(*shape)
    for found, tensor in zip(executor.module.parameters(), expected.parameters(), strict=True):
        assert torch.equal(found, tensor)
    generator = np.random.default_rng(2)
    inputs = generator.standard_normal((6, *shape)).astype(np.float32)
    labels = generator.integers(0, 10, 6)
    loss = functional.cross_entropy(expected(torch.from_numpy(inputs)), torch.from_numpy(labels))
    loss.backward()  # type: ignore[no-untyped-call]
    assert executor.inference_and_backprop(inputs, labels) == pytest.approx(loss.item(), rel=near / 10)
    for slot, tensor in zip(executor.slots, expected.parameters(), strict=True):
        gradient = executor.gradients[slot.offset : slot.offset + slot.size].reshape(slot.shape)
        assert tensor.grad is not None
        limit = near / 10 * float(tensor.grad.abs().max())
        np.testing.assert_allclose(gradient, tensor.grad, rtol=near, atol=limit)
    for state, buffer in zip(executor.module.buffers(), expected.buffers(), strict=True):
        np.testing.assert_allclose(state, buffer, rtol=1e-4, atol=1e-6)
    scores = expected.eval()(torch.from_numpy(inputs)).detach().numpy()
    np.testing.assert_allclose(executor.inference(inputs), scores, rtol=near, atol=near / 10)


def test_options_change_the_layers() -> None:
    """channels and hidden are LeNet's, hidden is the perceptron's; none at all is a linear model."""
    assert network("lenet", DIGITS, 3, channels=(2, 4), hidden=(5, 6)) == (
        Conv(2, 5, 2), Relu(), MaxPool(2), Conv(4, 5, 2), Relu(), MaxPool(2),
        Flatten(), Linear(5), Relu(), Linear(6), Relu(), Linear(3),
    )  # fmt: skip
    assert network("mlp", (4,), 3, hidden=()) == (Flatten(), Linear(3))
    for name in NETWORKS:
        check_network_name(name)


@pytest.mark.parametrize(
    ("name", "shape", "options", "words"),
    [
        ("lennet", DIGITS, {}, ("no model named 'lennet'", "did you mean 'lenet'?")),
        ("LeNet", DIGITS, {}, ("did you mean 'lenet'?",)),
        ("", DIGITS, {}, ("no model named ''", "known: lenet, lstm, mlp, mobilenet, resnet, resnet101")),
        ("lenet", (1, 3, 4), {}, ("the samples are too small",)),
        ("lenet", (1, 4, 3), {}, ("the samples are too small",)),
        ("lenet", (64,), {}, ("(channels, height, width), found (64,)", "choose a model", "'mlp'")),
        ("resnet50", (64,), {}, ("(channels, height, width), found (64,)",)),
        ("resnet8", (1, 0, 8), {}, ("the samples are too small",)),
        ("resnet8", DIGITS, {"width": 2.5}, ("channels of Conv(", "must be an integer from 1 up")),
        ("resnet", CIFAR, {"depth": 45}, ("no residual network of depth 45", "44, 50, 56")),
        ("wide_resnet", CIFAR, {"depth": 20}, ("6 n + 4 layers",)),
        ("unet", (1, 10, 10), {"depth": 2}, ("choose samples whose sides every pooling can halve",)),
        ("mlp", DIGITS, {"hiden": (3,)}, ("model_kwargs do not fit the model 'mlp'", "hiden")),
        ("mlp", DIGITS, {"hidden": 3}, ("model_kwargs do not fit the model 'mlp'",)),
        ("mlp", DIGITS, {"sample_shape": 3}, ("model_kwargs do not fit the model 'mlp'", "'sample_shape'")),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, shape: Shape, options: dict[str, Any], words: tuple[str, ...]
) -> None:
    """Names, samples and options: what was found, what is needed, what to do."""
    with pytest.raises(ConfigurationError) as caught:
        network(name, shape, 10, **options)
    for word in words:
        assert word in str(caught.value)
