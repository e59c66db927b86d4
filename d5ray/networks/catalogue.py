"""The networks to be had by name, each defined once for all frameworks."""

from collections.abc import Callable

from d5ray.errors import ConfigurationError, nearest
from d5ray.networks.layers import (
    BatchNorm,
    Conv,
    Flatten,
    GlobalAveragePool,
    Layer,
    Linear,
    MaxPool,
    Relu,
    Residual,
    Shape,
    chain_shape,
)

Layers = tuple[Layer, ...]


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


def resnet8(classes: int, *, width: int = 16) -> Layers:
    """The residual network of eight layers for small images, as in the MLPerf Tiny benchmark; see `resnet20`.

    That benchmark's (Banbury et al., arXiv:2106.07597) has biases, and no normalization on its shortcuts.
    """
    return _resnet(classes, blocks=1, width=width)


def resnet20(classes: int, *, width: int = 16) -> Layers:
    """The residual network of 6n + 2 layers for small images, here with n = 3 blocks in each of three stages.

    He, Zhang, Ren, Sun: Deep residual learning for image recognition, arXiv:1512.03385, section 4.2. Where
    a stage halves the image and doubles the channels, the shortcut is a normalized 1 × 1 convolution, the
    paper's option B; the paper's own networks for CIFAR-10 have option A, which pads with zeros.
    """
    return _resnet(classes, blocks=3, width=width)


def _resnet(classes: int, *, blocks: int, width: int) -> Layers:
    stages = (
        layer
        for channels, stride in ((width, 1), (2 * width, 2), (4 * width, 2))
        for block in range(blocks)
        for layer in _basic_block(channels, stride if block == 0 else 1)
    )
    return (
        *_normalized_conv(width, kernel=3), Relu(),
        *stages,
        GlobalAveragePool(), Flatten(), Linear(classes),
    )  # fmt: skip


def _basic_block(channels: int, stride: int) -> Layers:
    body = (
        *_normalized_conv(channels, kernel=3, stride=stride), Relu(),
        *_normalized_conv(channels, kernel=3),
    )  # fmt: skip
    shortcut = () if stride == 1 else _normalized_conv(channels, kernel=1, stride=stride)
    return Residual(body, shortcut), Relu()


def _normalized_conv(channels: int, *, kernel: int, stride: int = 1) -> Layers:
    """The normalization subtracts the mean, so that the convolution needs no bias."""
    return Conv(channels, kernel, padding=kernel // 2, stride=stride, bias=False), BatchNorm()


NETWORKS: dict[str, Callable[..., Layers]] = {
    "lenet": lenet,
    "mlp": mlp,
    "resnet8": resnet8,
    "resnet20": resnet20,
}


def check_network_name(name: str) -> None:
    """Raise `ConfigurationError` with the nearest name if there is no such network."""
    if name not in NETWORKS:
        raise ConfigurationError(f"there is no model named {name!r}: {nearest(name, NETWORKS)}")


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
