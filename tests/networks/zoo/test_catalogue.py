"""Claims about the catalogue's networks as PyTorch runs them, against modules written out by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch import from_model
from d5ray.frameworks.torch.executor import TorchExecutor
from d5ray.networks.zoo.catalogue import network
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32)]
# Parameters of mlp by hand: 64 hidden units and 10 classes on 64, 784 and 3072 pixels.
MLP = {(1, 8, 8): 64 * 64 + 64 + 650, (1, 28, 28): 784 * 64 + 64 + 650, (3, 32, 32): 3072 * 64 + 64 + 650}


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


BY_HAND = {"lenet": lenet_by_hand, "mlp": mlp_by_hand}


def made(name: str, shape: tuple[int, ...], /, **options: Any) -> TorchExecutor:
    return from_model(
        name, options, sample_shape=shape, classes=10, loss=SoftmaxCrossEntropyLoss(), seed=7, threads=1
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", BY_HAND)
def test_a_network_by_name_is_the_module_written_out(name: str, shape: tuple[int, int, int]) -> None:
    """The same seed gives the same parameters, names, and scores, bit for bit."""
    executor = made(name, shape)
    torch.manual_seed(7)
    expected = BY_HAND[name](*shape)
    assert [slot.name for slot in executor.slots] == [key for key, _ in expected.named_parameters()]
    for found, tensor in zip(executor.named_parameters().values(), expected.parameters(), strict=True):
        np.testing.assert_array_equal(found, tensor.detach().numpy())
    inputs = np.random.default_rng(2).standard_normal((5, *shape)).astype(np.float32)
    scores = expected(torch.from_numpy(inputs)).detach().numpy()
    assert scores.shape == (5, 10)
    np.testing.assert_array_equal(executor.inference(inputs), scores)


@pytest.mark.parametrize("shape", MLP, ids=str)
def test_mlp_has_the_parameters_counted_by_hand(shape: tuple[int, int, int]) -> None:
    """For digits, MNIST and CIFAR."""
    assert made("mlp", shape).parameters.shape == (MLP[shape],)


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize("option", ["classes", "name", "sample_shape"])
def test_what_the_experiment_settles_is_no_option(name: str, option: str) -> None:
    """`model_kwargs` with a name of another argument are refused as such, not as a fault of Python."""
    with pytest.raises(ConfigurationError) as caught:
        made(name, (1, 8, 8), **{option: 3})
    assert f"model_kwargs do not fit the model {name!r}: {name}() got " in str(caught.value)
    assert f"'{option}'" in str(caught.value)


@pytest.mark.parametrize(("name", "known"), [("LeNet", "lenet"), ("MLP", "mlp"), ("lenet5", "lenet")])
def test_an_unknown_name_brings_the_nearest(name: str, known: str) -> None:
    """Names are compared exactly; another case or a suffix gets the name that was meant."""
    with pytest.raises(ConfigurationError) as caught:
        network(name, (1, 8, 8), 10)
    assert str(caught.value) == f"there is no model named {name!r}: did you mean {known!r}?"


@pytest.mark.parametrize(("shape", "fits"), [((1, 4, 4), True), ((1, 3, 4), False), ((1, 4, 3), False)])
def test_lenet_takes_samples_from_four_by_four(shape: tuple[int, int, int], fits: bool) -> None:
    """Both sides need four pixels: two poolings halve them to one."""
    if fits:
        scores = made("lenet", shape).inference(np.zeros((2, *shape), np.float32))
        assert scores.shape == (2, 10)
    else:
        with pytest.raises(ConfigurationError, match="the samples are too small"):
            made("lenet", shape)
