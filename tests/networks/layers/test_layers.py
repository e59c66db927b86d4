"""Claims about layers as data: what PyTorch makes of each is its formula in NumPy, and its shape is known."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch.build import chain
from d5ray.networks.layers.layers import (
    BatchNorm,
    Conv,
    Flatten,
    GlobalAveragePool,
    Layer,
    LayerNorm,
    Linear,
    MaxPool,
    Relu,
    Residual,
    Shape,
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


def test_a_normalization_has_the_papers_numbers_by_default() -> None:
    """ε = 1e-5, γ = 1 and β = 0, and a tenth of every batch enters the running statistics."""
    module = chain((BatchNorm(),), IMAGE).double()
    inputs = 1e-3 * samples()
    mean, variance = inputs.mean(axis=(0, 2, 3)), inputs.var(axis=(0, 2, 3))
    expected = by_formula(inputs, mean, variance, np.ones(3), np.zeros(3), 1e-5)
    np.testing.assert_allclose(outputs(module, inputs), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(module.get_buffer("0.running_mean").numpy(), 0.1 * mean, rtol=1e-12)


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


def test_a_layer_norm_is_over_the_last_axis_alone() -> None:
    """γ (x − mean) / √(variance + ε) + β, in float64."""
    module = built(LayerNorm(epsilon=0.5), shape=(7, 6))
    weight, bias = (tensor.detach().numpy() for tensor in module.parameters())
    inputs = samples(shape=(7, 6))
    mean, variance = inputs.mean(axis=2, keepdims=True), inputs.var(axis=2, keepdims=True)
    expected = weight * (inputs - mean) / np.sqrt(variance + 0.5) + bias
    np.testing.assert_allclose(outputs(module, inputs), expected, rtol=1e-12, atol=1e-12)


def test_a_linear_layer_acts_on_the_last_axis() -> None:
    """At every position of a sequence by itself."""
    module = built(Linear(5), shape=(7, 6))
    weight, bias = (tensor.detach().numpy() for tensor in module.parameters())
    inputs = samples(shape=(7, 6))
    np.testing.assert_allclose(outputs(module, inputs), inputs @ weight.T + bias, rtol=1e-12, atol=1e-12)
    assert Linear(5).output_shape((7, 6)) == (7, 5)


def test_a_global_average_is_the_mean_of_every_channel() -> None:
    """As images of one pixel, so that a Flatten makes a vector of it."""
    mean = samples().mean(axis=(2, 3))
    pooled = outputs(built(GlobalAveragePool()), samples())
    np.testing.assert_allclose(pooled, mean[:, :, None, None], rtol=1e-12)
    np.testing.assert_allclose(outputs(built(GlobalAveragePool(), Flatten()), samples()), mean, rtol=1e-12)


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


def test_gradients_flow_through_both_branches_of_a_residual() -> None:
    """Those of every parameter and of the inputs are central differences of the sum of squares."""
    module = built(
        Residual((Conv(4, 3, 1, 2, bias=False), BatchNorm()), (Conv(4, 1, 0, 2, bias=False), BatchNorm())),
        GlobalAveragePool(),
        Flatten(),
        Linear(2),
    )
    names = [name for name, _ in module.named_parameters()]

    def squares(inputs: torch.Tensor, *parameters: torch.Tensor) -> Any:
        named = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(module, named, inputs).square().sum()

    inputs = torch.from_numpy(samples(2)).requires_grad_()
    assert torch.autograd.gradcheck(squares, (inputs, *module.parameters()))


# -- shapes ----------------------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 12), st.integers(1, 12)),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(1, 4),
)
def test_the_shape_behind_a_convolution_is_that_of_pytorch(
    shape: Shape, kernel: int, padding: int, stride: int
) -> None:
    """For every size, kernel, padding and stride; where the kernel does not fit the samples are too small."""
    layer = Conv(2, kernel, padding, stride)
    if min(shape[1:]) + 2 * padding < kernel:
        with pytest.raises(ConfigurationError, match="the samples are too small"):
            layer.output_shape(shape)
        return
    value = nn.Conv2d(shape[0], 2, kernel, stride, padding)(torch.zeros(1, *shape))
    assert tuple(value.shape) == (1, *layer.output_shape(shape))


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 1, 1), (3, 9, 5)], ids=str)
def test_shapes_of_a_chain_are_those_of_pytorch(shape: Shape) -> None:
    """Through every kind of layer, also inside a residual."""
    layers: tuple[Layer, ...] = (
        Conv(4, 3, 1), BatchNorm(), Relu(),
        Residual((Conv(6, 3, 1, 2), Relu(), Conv(6, 3, 1)), (Conv(6, 1, 0, 2),)),
        MaxPool(1), Residual((BatchNorm(),)), GlobalAveragePool(), Flatten(), Linear(5),
    )  # fmt: skip
    module = chain(layers, shape).eval()
    value = torch.zeros(3, *shape)
    for count, part in enumerate(module, start=1):
        value = part(value)
        assert tuple(value.shape) == (3, *chain_shape(layers[:count], shape))
    assert chain_shape(layers, shape) == (5,)


# -- refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [Conv(4, 3, 1), BatchNorm(), GlobalAveragePool()], ids=repr)
@pytest.mark.parametrize("shape", [(64,), (8, 8), (1, 2, 3, 4), ()], ids=str)
def test_an_image_layer_refuses_other_samples(layer: Layer, shape: Shape) -> None:
    """With the layer, the shape that was found, and the way out."""
    with pytest.raises(ConfigurationError) as caught:
        layer.output_shape(shape)
    assert str(caught.value) == (
        f"{layer} needs samples of shape (channels, height, width), found {shape}: "
        "choose a model without convolutions, such as 'mlp'"
    )


@pytest.mark.parametrize(
    ("residual", "after", "beside"),
    [
        (Residual((Conv(4, 3, 1),)), (4, 7, 6), (3, 7, 6)),
        (Residual((Conv(3, 3, 1, 2),)), (3, 4, 3), (3, 7, 6)),
        (Residual((Conv(4, 3, 1, 2),), (Conv(4, 1, 0),)), (4, 4, 3), (4, 7, 6)),
        (Residual((GlobalAveragePool(),)), (3, 1, 1), (3, 7, 6)),  # PyTorch would stretch it
    ],
)
def test_a_residual_whose_branches_differ_is_refused(residual: Residual, after: Shape, beside: Shape) -> None:
    """With both shapes."""
    with pytest.raises(ConfigurationError) as caught:
        residual.output_shape(IMAGE)
    assert str(caught.value) == (
        f"a Residual cannot add what its body makes of samples of shape {IMAGE}, {after}, to what its "
        f"shortcut makes of them, {beside}: give it a shortcut with the body's output shape"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"channels": 0}, "channels of Conv(channels=0, "),
        ({"kernel": 0}, "kernel of Conv("),
        ({"stride": 0}, "stride of Conv("),
        ({"stride": 1.5}, "stride=1.5"),
        ({"padding": -1}, "padding of Conv("),
    ],
)
def test_numbers_that_make_no_convolution_are_refused(options: dict[str, Any], words: str) -> None:
    """When the layer is made: which number, and what it must be."""
    with pytest.raises(ConfigurationError) as caught:
        Conv(**{"channels": 2, "kernel": 3, "padding": 1, **options})
    assert words in str(caught.value)
    assert str(caught.value).endswith(f"must be an integer from {0 if 'padding' in options else 1} up")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 0}, "size of MaxPool("),
        ({"stride": 0}, "stride of MaxPool("),
        ({"padding": -1}, "padding of MaxPool("),
        ({"padding": 2}, "must be at most half of its size"),
    ],
)
def test_numbers_that_make_no_pool_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        MaxPool(**{"size": 3, **options})
    assert words in str(caught.value)
