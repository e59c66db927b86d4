"""Claims about the networks by name beyond LeNet and ResNets: their papers' sizes, their layers' formulas"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch.build import chain
from d5ray.networks.layers.layers import (
    Conv,
    ConvTranspose,
    ImageRows,
    Last,
    Layer,
    Lstm,
    MaxPool,
    Shape,
    SkipConcatenation,
    chain_shape,
)
from d5ray.networks.zoo.catalogue import network

RNG = np.random.default_rng(4)


def built(*layers: Layer, shape: Shape) -> nn.Sequential:
    """The chain in float64, with random numbers in all its parameters."""
    module = chain(layers, shape).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.copy_(torch.randn(tensor.shape, generator=generator, dtype=torch.float64))
    return module


def counted(name: str, shape: Shape, classes: int, **options: Any) -> int:
    """The number of parameters, none of which is made."""
    with torch.device("meta"):
        module = chain(network(name, shape, classes, **options), shape)
    return sum(tensor.numel() for tensor in module.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "parameters"),
    [
        ("vgg11", (3, 224, 224), 1000, {}, 132_863_336),  # torchvision's, and the paper's 133 million
        ("mobilenet", (3, 224, 224), 1000, {}, 4_231_976),  # the paper's 4.2 million; Keras's trainable ones
        ("wide_resnet", (3, 32, 32), 10, {}, 36_479_194),  # the paper's 36.5 million
        ("wide_resnet", (3, 32, 32), 10, {"depth": 16, "factor": 8}, 10_961_370),  # its 11.0 million
        ("unet", (1, 64, 64), 2, {}, 31_030_658),  # by hand: see `unet_parameters`
        ("lstm", (1, 28, 28), 10, {"features": 128}, 4 * 128 * (28 + 128 + 2) + 1290),
        ("lstm", (35,), 10, {"tokens": 256, "width": 64, "depth": 2}, 16_384 + 99_328 + 132_096 + 1290),
    ],
)  # fmt: skip
def test_a_network_has_the_parameters_of_its_paper(
    name: str, shape: Shape, classes: int, options: dict[str, Any], parameters: int
) -> None:
    assert counted(name, shape, classes, **options) == parameters


def test_unet_has_the_parameters_of_its_figure() -> None:
    """Figure 1, layer by layer: 3 × 3 convolutions down and up, 2 × 2 ones between, 1 × 1 at the end."""

    def conv(inputs: int, outputs: int, kernel: int) -> int:
        return outputs * (inputs * kernel**2 + 1)

    widths = (64, 128, 256, 512, 1024)
    down = sum(conv(i, o, 3) + conv(o, o, 3) for i, o in zip((1, *widths), widths, strict=False))
    up = sum(conv(2 * o, o, 2) + conv(2 * o, o, 3) + conv(o, o, 3) for o in widths[:-1])
    assert counted("unet", (1, 64, 64), 2) == down + up + conv(64, 2, 1) == 31_030_658


@pytest.mark.parametrize(
    ("name", "shape", "options", "output"),
    [
        ("vgg11", (3, 32, 32), {"width": 4, "hidden": (16,)}, (10,)),
        ("mobilenet", (3, 32, 32), {"width": 4}, (10,)),
        ("wide_resnet", (3, 16, 16), {"depth": 10, "factor": 1, "dropout": 0.3}, (10,)),
        ("unet", (1, 16, 24), {"width": 4, "depth": 2}, (16, 24, 10)),
        ("lstm", (1, 8, 8), {"features": 6, "depth": 2}, (10,)),
        ("lstm", (7, 5), {"features": 6}, (10,)),
        ("lstm", (7,), {"features": 6, "tokens": 9}, (10,)),
    ],
)
def test_a_network_trains_under_pytorch(
    name: str, shape: Shape, options: dict[str, Any], output: Shape
) -> None:
    """Its scores have the shape that its layers say, and every parameter has a gradient."""
    from d5ray.frameworks.torch import from_model  # noqa: PLC0415

    assert chain_shape(network(name, shape, 10, **options), shape) == output
    executor = from_model(
        name,
        options,
        sample_shape=shape,
        classes=10,
        loss=d5.operators.SoftmaxCrossEntropyLoss(),
        seed=1,
        threads=1,
    )
    inputs: Any = RNG.standard_normal((4, *shape)).astype(np.float32)
    if "tokens" in options:
        inputs = RNG.integers(0, options["tokens"], (4, *shape))
    assert executor.inference(inputs).shape == (4, *output)
    executor.inference_and_backprop(inputs, RNG.integers(0, 10, (4, *output[:-1])))
    for slot in executor.slots:
        assert executor.gradients[slot.offset : slot.offset + slot.size].abs().max() > 0, slot.name


def test_groups_are_convolutions_side_by_side() -> None:
    """Each group makes its channels of its own part of the input's."""
    x = torch.from_numpy(RNG.standard_normal((2, 6, 5, 5)))
    whole = built(Conv(4, kernel=3, padding=1, groups=2), shape=(6, 5, 5))
    weight, bias = (tensor.detach() for tensor in whole.parameters())
    parts = [
        nn.functional.conv2d(
            x[:, 3 * g : 3 * g + 3], weight[2 * g : 2 * g + 2], bias[2 * g : 2 * g + 2], padding=1
        )
        for g in range(2)
    ]
    np.testing.assert_allclose(whole(x).detach(), torch.cat(parts, 1), rtol=1e-12)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (4, 1, 2)])
def test_a_transposed_convolution_is_the_gradient_of_a_convolution(
    kernel: int, stride: int, padding: int
) -> None:
    """⟨conv(y), x⟩ = ⟨y, conv_transpose(x)⟩ for all x and y."""
    layer = ConvTranspose(3, kernel, padding, stride, bias=False)
    module = built(layer, shape=(2, 5, 4))
    (weight,) = (tensor.requires_grad_(False) for tensor in module.parameters())  # (2, 3, kernel, kernel)
    x = torch.from_numpy(RNG.standard_normal((1, 2, 5, 4)))
    y = torch.from_numpy(RNG.standard_normal((1, *layer.output_shape((2, 5, 4)))))
    there = nn.functional.conv2d(y, weight, stride=stride, padding=padding)
    assert float((there * x).sum()) == pytest.approx(float((y * module(x)).sum()), rel=1e-10)


def test_lstm_is_its_formula() -> None:
    """Step by step in NumPy, from a state of zeros."""
    module = built(Lstm(3), Last(), shape=(6, 4))
    w, u, b, c = (tensor.detach().numpy() for tensor in module.parameters())
    x = RNG.standard_normal((2, 6, 4))
    h, cell = np.zeros((2, 3)), np.zeros((2, 3))
    for step in range(6):
        i, f, g, o = np.split(x[:, step] @ w.T + b + h @ u.T + c, 4, axis=1)
        cell = cell / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(cell) / (1 + np.exp(-o))
    np.testing.assert_allclose(module(torch.from_numpy(x)).detach(), h, rtol=1e-10)


def test_rows_of_an_image_are_a_sequence() -> None:
    image = RNG.standard_normal((1, 2, 3, 4))
    found = built(ImageRows(), shape=(2, 3, 4))(torch.from_numpy(image)).numpy()
    assert found.shape == (1, 3, 8)
    np.testing.assert_array_equal(found[0, 1], [*image[0, 0, 1], *image[0, 1, 1]])


@pytest.mark.full
def test_lstm_learns_the_digits_row_by_row() -> None:
    wanted = d5.Experiment(
        model="lstm", model_kwargs={"features": 32}, dataset="digits", optimizer=d5.optimizers.Adam(0.01),
        agents=1,
        batch_size=64, epochs=20, seed=1,
    )  # fmt: skip
    with d5.simulate(wanted) as group:
        group.train(progress=False)
        samples = group.metrics().to_pandas()
    assert samples[samples.metric == "test_accuracy"].value.max() >= 0.93


@pytest.mark.parametrize(
    ("layers", "shape", "words"),
    [
        ((Conv(4, 3, 1, groups=3),), (6, 5, 5), "cannot share evenly"),
        ((SkipConcatenation((MaxPool(2),)),), (1, 4, 4), "all sizes but the first must be equal"),
        ((Lstm(3),), (1, 4, 4), "needs samples of shape \\(length, width\\)"),
    ],
)
def test_layers_that_do_not_fit_are_refused(layers: tuple[Layer, ...], shape: Shape, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        chain_shape(layers, shape)


@pytest.mark.parametrize(
    ("name", "shape", "options", "words"),
    [
        ("unet", (1, 10, 10), {"depth": 2}, "choose samples whose sides every pooling can halve"),
        ("vgg11", (3, 16, 16), {}, "the samples are too small"),
        ("wide_resnet", (3, 32, 32), {"depth": 20}, "6 n \\+ 4 layers"),
    ],
)
def test_networks_that_do_not_fit_are_refused(
    name: str, shape: Shape, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        network(name, shape, 10, **options)
