"""Claims about layers as data: what PyTorch makes of each is its formula in NumPy, and its shape is known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch.build import chain
from d5ray.networks.layers.layers import (
    BatchNorm,
    Conv,
    ConvTranspose,
    GlobalAveragePool,
    ImageRows,
    Last,
    Layer,
    Lstm,
    MaxPool,
    Relu,
    Residual,
    Shape,
    SkipConcatenation,
    chain_shape,
)

Array = np.ndarray[Any, Any]
IMAGE = (3, 7, 6)


def built(*layers: Layer, shape: Shape = IMAGE) -> nn.Sequential:
    """The chain in float64, with seeded random numbers in all its parameters."""
    module = chain(layers, shape).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.copy_(torch.randn(tensor.shape, generator=generator, dtype=torch.float64))
    return module


def samples(count: int = 4, shape: Shape = IMAGE) -> Array:
    return 1 + 2 * np.random.default_rng(8).standard_normal((count, *shape))


def outputs(module: nn.Module, inputs: Array) -> Array:
    return np.asarray(module(torch.from_numpy(inputs)).detach().numpy())


def convolution(inputs: Array, weight: Array, padding: int, stride: int) -> Array:
    """The sum over every window, one output at a time: (batch, channels, height, width)."""
    padded = np.pad(inputs, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    kernel = weight.shape[2]
    rows, columns = (range(0, size - kernel + 1, stride) for size in padded.shape[2:])
    windows = [[padded[:, :, r : r + kernel, c : c + kernel] for c in columns] for r in rows]
    return np.array([[np.einsum("bikl,oikl->bo", w, weight) for w in row] for row in windows]).transpose(
        2, 3, 0, 1
    )


def by_formula(
    inputs: Array, mean: Array, variance: Array, weight: Array, bias: Array, epsilon: float
) -> Array:
    """γ (x − mean) / √(variance + ε) + β, everything but the inputs given by channel."""
    mean, variance, weight, bias = (v[:, None, None] for v in (mean, variance, weight, bias))
    return np.asarray(weight * (inputs - mean) / np.sqrt(variance + epsilon) + bias)


# -- values ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "padding", "stride"), [(3, 1, 1), (3, 1, 2), (1, 0, 2), (2, 0, 3), (5, 2, 2)]
)
@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_is_the_sum_over_every_window(
    kernel: int, padding: int, stride: int, bias: bool
) -> None:
    """At every stride; with a bias there is one number per channel, without there is no parameter for it."""
    module = built(Conv(4, kernel, padding, stride, bias))
    weight, *rest = (tensor.detach().numpy() for tensor in module.parameters())
    assert [value.shape for value in rest] == ([(4,)] if bias else [])
    expected = convolution(samples(), weight, padding, stride) + (rest[0][:, None, None] if bias else 0)
    np.testing.assert_allclose(outputs(module, samples()), expected, rtol=1e-12, atol=1e-12)
    assert expected.shape[1:] == Conv(4, kernel, padding, stride, bias).output_shape(IMAGE)


def test_a_normalization_is_the_papers() -> None:
    """In training by the batch's mean and variance, in evaluation by the running ones, in float64."""
    module = built(BatchNorm(epsilon=0.5, momentum=0.25))
    weight, bias = (tensor.detach().numpy() for tensor in module.parameters())
    inputs = samples()
    mean, variance = inputs.mean(axis=(0, 2, 3)), inputs.var(axis=(0, 2, 3))
    expected = by_formula(inputs, mean, variance, weight, bias, 0.5)
    np.testing.assert_allclose(outputs(module, inputs), expected, rtol=1e-12, atol=1e-12)
    count = inputs.size // 3
    running = 0.25 * mean, 0.75 + 0.25 * variance * count / (count - 1)
    expected = by_formula(inputs, *running, weight, bias, 0.5)
    np.testing.assert_allclose(outputs(module.eval(), inputs), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("size", "stride", "padding"), [(2, None, 0), (3, 2, 1), (2, 1, 0), (3, 3, 1), (1, 2, 0), (4, 1, 2)]
)
def test_a_maximum_is_that_of_every_square(size: int, stride: int | None, padding: int) -> None:
    """Also of negative numbers: what is padded is never the largest."""
    inputs = samples() - 9
    padded = np.pad(inputs, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2), constant_values=-np.inf)
    rows, columns = (range(0, extent - size + 1, stride or size) for extent in padded.shape[2:])
    expected = [[padded[:, :, r : r + size, c : c + size].max(axis=(2, 3)) for c in columns] for r in rows]
    found = outputs(built(MaxPool(size, stride, padding)), inputs)
    np.testing.assert_array_equal(found, np.array(expected).transpose(2, 3, 0, 1))
    assert found.shape[1:] == MaxPool(size, stride, padding).output_shape(IMAGE)


def test_a_residual_adds_its_shortcut_to_its_body() -> None:
    """Without layers the shortcut is the input itself; with layers it is what they make of it."""
    inputs = samples()
    module = built(Residual((Conv(3, 3, 1, bias=False), Relu())))
    (weight,) = (tensor.detach().numpy() for tensor in module.parameters())
    expected = np.maximum(convolution(inputs, weight, 1, 1), 0) + inputs
    np.testing.assert_allclose(outputs(module, inputs), expected, rtol=1e-12, atol=1e-12)
    module = built(Residual((Conv(5, 3, 1, 2, bias=False),), (Conv(5, 1, 0, 2, bias=False),)))
    body, shortcut = (tensor.detach().numpy() for tensor in module.parameters())
    expected = convolution(inputs, body, 1, 2) + convolution(inputs, shortcut, 0, 2)
    np.testing.assert_allclose(outputs(module, inputs), expected, rtol=1e-12, atol=1e-12)


# -- shapes ----------------------------------------------------------------------------------------------


def test_groups_are_convolutions_side_by_side() -> None:
    """Each group makes its channels of its own part of the input's."""
    x = torch.from_numpy(samples(2, (6, 5, 5)))
    whole = built(Conv(4, kernel=3, padding=1, groups=2), shape=(6, 5, 5))
    weight, bias = (tensor.detach().numpy() for tensor in whole.parameters())
    parts = [
        convolution(x[:, 3 * g : 3 * g + 3].numpy(), weight[2 * g : 2 * g + 2], 1, 1)
        + bias[2 * g : 2 * g + 2, None, None]
        for g in range(2)
    ]
    np.testing.assert_allclose(whole(x).detach(), np.concatenate(parts, 1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (4, 1, 2)])
def test_a_transposed_convolution_is_the_gradient_of_a_convolution(
    kernel: int, stride: int, padding: int
) -> None:
    """⟨conv(y), x⟩ = ⟨y, conv_transpose(x)⟩ for all x and y."""
    layer = ConvTranspose(3, kernel, padding, stride, bias=False)
    module = built(layer, shape=(2, 5, 4))
    (weight,) = (tensor.detach().numpy() for tensor in module.parameters())  # (2, 3, kernel, kernel)
    x, y = samples(1, (2, 5, 4)), samples(1, layer.output_shape((2, 5, 4)))
    there = convolution(y, weight, padding, stride)
    assert float((there * x).sum()) == pytest.approx(float((y * outputs(module, x)).sum()), rel=1e-10)


def test_lstm_is_its_formula() -> None:
    """Step by step in NumPy, from a state of zeros."""
    module, x = built(Lstm(3), Last(), shape=(6, 4)), samples(2, (6, 4))
    w, u, b, c = (tensor.detach().numpy() for tensor in module.parameters())
    h, cell = np.zeros((2, 3)), np.zeros((2, 3))
    for step in range(6):
        i, f, g, o = np.split(x[:, step] @ w.T + b + h @ u.T + c, 4, axis=1)
        cell = cell / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(cell) / (1 + np.exp(-o))
    np.testing.assert_allclose(outputs(module, x), h, rtol=1e-10)


def test_rows_of_an_image_are_a_sequence() -> None:
    image = samples(1, (2, 3, 4))
    found = outputs(built(ImageRows(), shape=(2, 3, 4)), image)
    assert found.shape == (1, 3, 8)
    np.testing.assert_array_equal(found[0, 1], [*image[0, 0, 1], *image[0, 1, 1]])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Conv(4, 3, 1).output_shape((8, 8)),
            r"shape \(channels, height, width\), found \(8, 8\): choose",
        ),
        (lambda: BatchNorm().output_shape((64,)), r"BatchNorm.* found \(64,\)"),
        (lambda: GlobalAveragePool().output_shape((1, 2, 3, 4)), "GlobalAveragePool.* found"),
        (
            lambda: Residual((Conv(4, 3, 1),)).output_shape(IMAGE),
            r"makes of .* \(4, 7, 6\), to .*, \(3, 7, 6\)",
        ),
        (lambda: Residual((Conv(3, 3, 1, 2),)).output_shape(IMAGE), "give it a shortcut with the body's"),
        (
            lambda: Residual((GlobalAveragePool(),)).output_shape(IMAGE),
            "shortcut",
        ),  # PyTorch would stretch it
        (lambda: Conv(0, 3, 1), r"channels of Conv\(channels=0, .* must be an integer from 1 up"),
        (lambda: Conv(2, 0, 1), "kernel of Conv"),
        (lambda: Conv(2, 3, 1, stride=1.5), "stride=1.5"),  # type: ignore[arg-type]
        (lambda: Conv(2, 3, -1), "padding of Conv.* from 0 up"),
        (lambda: MaxPool(0), "size of MaxPool"),
        (lambda: MaxPool(3, 0), "stride of MaxPool"),
        (lambda: MaxPool(3, padding=-1), "padding of MaxPool"),
        (lambda: MaxPool(3, padding=2), "must be at most half of its size"),
        (lambda: chain_shape((Conv(4, 3, 1, groups=3),), (5, 5, 5)), "cannot share evenly"),
        (
            lambda: chain_shape((SkipConcatenation((MaxPool(2),)),), (1, 4, 4)),
            "sizes but the first must be equal",
        ),
        (lambda: chain_shape((Lstm(3),), (1, 4, 4)), r"needs samples of shape \(length, width\)"),
    ],
)
def test_layers_that_do_not_fit_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()
