"""The networks to be had by name, each defined once for all frameworks."""

import inspect
from collections.abc import Callable, Iterable

from d5ray.errors import ConfigurationError, nearest
from d5ray.networks.layers.layers import Conv, Flatten, Layers, Linear, MaxPool, Relu, Shape, chain_shape
from d5ray.networks.zoo import convolutional, resnets
from d5ray.networks.zoo.sequences import lstm, transformer


def lenet(
    classes: int, *, channels: tuple[int, int] = (6, 16), hidden: tuple[int, int] = (120, 84)
) -> Layers:
    """LeNet-5 with rectifiers and padded convolutions, so that samples from 4 × 4 pixels up fit.

    LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, 1998.
    """
    return (
        Conv(channels[0], kernel=5, padding=2), Relu(), MaxPool(2),
        Conv(channels[1], kernel=5, padding=2), Relu(), MaxPool(2),
        Flatten(),
        Linear(hidden[0]), Relu(),
        Linear(hidden[1]), Relu(),
        Linear(classes),
    )  # fmt: skip


def mlp(classes: int, *, hidden: tuple[int, ...] = (64,)) -> Layers:
    """A multilayer perceptron with rectifiers."""
    inner = tuple(layer for features in hidden for layer in (Linear(features), Relu()))
    return (Flatten(), *inner, Linear(classes))


RESNETS = {f"resnet{depth}": made for depth, made in resnets.DEPTHS.items()}
NETWORKS: dict[str, Callable[..., Layers]] = {
    "lenet": lenet, "mlp": mlp, "transformer": transformer, "resnet": resnets.resnet, **RESNETS,
    "wide_resnet": convolutional.wide_resnet, "vgg11": convolutional.vgg11,
    "mobilenet": convolutional.mobilenet, "unet": convolutional.unet, "lstm": lstm,
}  # fmt: skip


def check_network_name(name: str) -> None:
    """Raise `ConfigurationError` with the nearest name if there is no such network."""
    if name not in NETWORKS:
        raise ConfigurationError(f"there is no model named {name!r}: {nearest(name, NETWORKS)}")


def check_network_options(name: str, options: Iterable[str]) -> None:
    """Raise `ConfigurationError` if there is no such network, or if it has no such option; makes nothing."""
    check_network_name(name)
    parameters = inspect.signature(NETWORKS[name]).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise ConfigurationError(
                f"model_kwargs do not fit the model {name!r}: it has no option {option!r}: "
                f"{nearest(option, known)}"
            )


def network(name: str, sample_shape: Shape, classes: int, /, **options: object) -> Layers:
    """The layers of the network `name` for samples of this shape; its shapes are checked.

    >>> network("mlp", (1, 8, 8), 10, hidden=(32,))
    (Flatten(), Linear(features=32), Relu(), Linear(features=10))
    """
    check_network_name(name)
    try:
        layers = NETWORKS[name](classes, **options)
    except TypeError as error:
        raise ConfigurationError(f"model_kwargs do not fit the model {name!r}: {error}") from error
    chain_shape(layers, sample_shape)
    return layers
