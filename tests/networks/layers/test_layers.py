"""Claims about layers as data: what PyTorch makes of each is its own module, and its shape is known."""

from collections.abc import Callable
from functools import partial
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
    Dropout,
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
    torch.manual_seed(1)
    return np.asarray(module(torch.from_numpy(inputs)).detach().numpy())


class Added(nn.Module):
    """The sum of what two modules make of an input."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.body(inputs) + self.shortcut(inputs)  # type: ignore[no-any-return]


PEERS: list[tuple[Layer, Callable[[], nn.Module]]] = [
    *(
        (Conv(4, kernel, padding, stride, bias), partial(nn.Conv2d, 3, 4, kernel, stride, padding, bias=bias))
        for kernel, padding, stride in ((3, 1, 1), (3, 1, 2), (1, 0, 2), (2, 0, 3), (5, 2, 2))
        for bias in (True, False)
    ),
    (Conv(6, 3, 1, groups=3), partial(nn.Conv2d, 3, 6, 3, padding=1, groups=3)),
    *(
        (
            ConvTranspose(4, kernel, padding, stride),
            partial(nn.ConvTranspose2d, 3, 4, kernel, stride, padding),
        )
        for kernel, stride, padding in ((2, 2, 0), (3, 2, 1), (4, 1, 2))
    ),
    (ConvTranspose(4, 2, bias=False), partial(nn.ConvTranspose2d, 3, 4, 2, bias=False)),
    *(
        (MaxPool(size, stride, padding), partial(nn.MaxPool2d, size, stride, padding))
        for size, stride, padding in ((2, None, 0), (3, 2, 1), (2, 1, 0), (3, 3, 1), (1, 2, 0), (4, 1, 2))
    ),
    (Dropout(0.25), partial(nn.Dropout, 0.25)),
    (BatchNorm(epsilon=0.5, momentum=0.25), partial(nn.BatchNorm2d, 3, eps=0.5, momentum=0.25)),
    (
        Residual((Conv(3, 3, 1, bias=False), Relu())),
        lambda: Added(nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.ReLU()), nn.Identity()),
    ),
    (
        Residual((Conv(5, 3, 1, 2),), (Conv(5, 1, 0, 2, bias=False),)),
        lambda: Added(nn.Conv2d(3, 5, 3, 2, 1), nn.Conv2d(3, 5, 1, 2, bias=False)),
    ),
]


@pytest.mark.every_case
@pytest.mark.parametrize(("layer", "make"), PEERS, ids=[repr(layer) for layer, _ in PEERS])
def test_a_layer_is_the_module_of_pytorch(layer: Layer, make: Callable[[], nn.Module]) -> None:
    """In training and in evaluation, with the parameters that it has and no others; its shape is known."""
    module, twin = built(layer), make().double()
    values = module.state_dict().values()
    twin.load_state_dict(dict(zip(twin.state_dict(), values, strict=True)))
    for training in (True, False):
        found, expected = (outputs(each.train(training), samples() - 3) for each in (module, twin))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        assert found.shape[1:] == layer.output_shape(IMAGE)


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
