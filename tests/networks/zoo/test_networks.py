"""Claims about the catalogue's networks: shapes for every kind of sample, and what is refused."""

from typing import Any

import numpy as np
import pytest
import torch

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch import from_model
from d5ray.networks.device import CPUDevice, GPUDevice
from d5ray.networks.executors.slots import Slot
from d5ray.networks.layers.layers import Conv, Flatten, Linear, MaxPool, Relu
from d5ray.networks.zoo.catalogue import NETWORKS, check_network_name, network
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

SAMPLES = [(1, 8, 8), (1, 28, 28), (3, 32, 32), (2, 4, 4), (1, 9, 13)]
# Parameters by hand: convolutions c·k²·channels + channels, dense layers inputs·outputs + outputs.
LENET = {
    (1, 8, 8): (25 * 6 + 6) + (6 * 25 * 16 + 16) + (64 * 120 + 120) + (120 * 84 + 84) + (84 * 10 + 10),
    (1, 28, 28): (25 * 6 + 6) + (6 * 25 * 16 + 16) + (784 * 120 + 120) + (120 * 84 + 84) + (84 * 10 + 10),
    (3, 32, 32): (75 * 6 + 6) + (6 * 25 * 16 + 16) + (1024 * 120 + 120) + (120 * 84 + 84) + (84 * 10 + 10),
}


SMALL = ("lenet", "mlp", "resnet8", "resnet20")  # quickly made; the others have tests of their own


@pytest.mark.parametrize("shape", SAMPLES, ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_shapes_as_data_are_those_that_pytorch_computes(name: str, shape: tuple[int, ...]) -> None:
    """Layer by layer, what `output_shape` says is what the module does; the last are the classes."""
    layers = network(name, shape, 10)
    made = from_model(
        name, {}, sample_shape=shape, classes=10, loss=SoftmaxCrossEntropyLoss(), seed=0, threads=1
    )
    value, expected = torch.zeros(3, *shape), shape
    for layer, module in zip(layers, made.module.children(), strict=True):
        value, expected = module(value), layer.output_shape(expected)
        assert tuple(value.shape) == (3, *expected)
    assert expected == (10,)


@pytest.mark.parametrize("shape", LENET, ids=str)
def test_lenet_has_the_parameters_counted_by_hand(shape: tuple[int, int, int]) -> None:
    """For digits, MNIST and CIFAR."""
    made = from_model(
        "lenet", {}, sample_shape=shape, classes=10, loss=SoftmaxCrossEntropyLoss(), seed=0, threads=1
    )
    assert made.parameters.shape == (LENET[shape],)
    assert sum(slot.size for slot in made.slots) == LENET[shape]


def test_options_change_the_layers() -> None:
    """channels and hidden are LeNet's, hidden is the perceptron's; none at all is a linear model."""
    assert network("lenet", (1, 8, 8), 3, channels=(2, 4), hidden=(5, 6)) == (
        Conv(2, 5, 2), Relu(), MaxPool(2), Conv(4, 5, 2), Relu(), MaxPool(2),
        Flatten(), Linear(5), Relu(), Linear(6), Relu(), Linear(3),
    )  # fmt: skip
    assert network("mlp", (4,), 3, hidden=(7, 8)) == (
        Flatten(), Linear(7), Relu(), Linear(8), Relu(), Linear(3),
    )  # fmt: skip
    assert network("mlp", (4,), 3, hidden=()) == (Flatten(), Linear(3))


@pytest.mark.parametrize(
    ("name", "shape", "options", "words"),
    [
        ("lennet", (1, 8, 8), {}, ("no model named 'lennet'", "did you mean 'lenet'?")),
        ("resnet51", (1, 8, 8), {}, ("no model named 'resnet51'",)),
        ("", (1, 8, 8), {}, ("no model named ''", "known: lenet, lstm, mlp, mobilenet, resnet, resnet101")),
        ("lenet", (1, 3, 3), {}, ("MaxPool(size=2, ", "of shape (16, 1, 1)", "the samples are too small")),
        ("lenet", (1, 8, 1), {}, ("of shape (6, 8, 1)", "the samples are too small")),
        ("lenet", (64,), {}, ("(channels, height, width), found (64,)", "choose a model", "'mlp'")),
        ("lenet", (8, 8), {}, ("(channels, height, width), found (8, 8)",)),
        ("resnet", (3, 32, 32), {"depth": 45}, ("no residual network of depth 45", "44, 50, 56")),
        ("lenet", (1, 8, 8), {"depth": 3}, ("model_kwargs do not fit the model 'lenet'", "depth")),
        ("mlp", (1, 8, 8), {"hiden": (3,)}, ("model_kwargs do not fit the model 'mlp'", "hiden")),
        ("mlp", (1, 8, 8), {"hidden": 3}, ("model_kwargs do not fit the model 'mlp'",)),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, shape: tuple[int, ...], options: dict[str, Any], words: tuple[str, ...]
) -> None:
    """Names, samples and options: what was found, what is needed, what to do."""
    with pytest.raises(ConfigurationError) as caught:
        network(name, shape, 10, **options)
    for word in words:
        assert word in str(caught.value)


def test_names_are_checked_without_building() -> None:
    """Every name of the catalogue passes."""
    for name in NETWORKS:
        check_network_name(name)


def test_a_slot_knows_its_size() -> None:
    """The product of the extents; a scalar has one element, an empty tensor none."""
    assert [Slot("a", 0, shape).size for shape in ((2, 3, 4), (), (5, 0))] == [24, 1, 0]


def test_named_parameters_are_copies_in_the_order_of_the_buffer() -> None:
    """They concatenate to the flat buffer, and writing one of them changes nothing."""
    made = from_model(
        "mlp", {}, sample_shape=(4,), classes=3, loss=SoftmaxCrossEntropyLoss(), seed=0, threads=1
    )
    named = made.named_parameters()
    flat = made.numpy_parameters()
    np.testing.assert_array_equal(np.concatenate([value.ravel() for value in named.values()]), flat)
    for value in named.values():
        value += 1
    np.testing.assert_array_equal(made.numpy_parameters(), flat)


def test_devices_print_as_pytorch_names_them() -> None:
    """cpu, cuda:0, cuda:1."""
    assert [str(device) for device in (CPUDevice(), GPUDevice(), GPUDevice(1))] == ["cpu", "cuda:0", "cuda:1"]
