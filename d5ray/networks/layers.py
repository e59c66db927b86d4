"""A network as data: the layers it is a chain of, with the shapes they give; each framework builds it."""

from dataclasses import dataclass

from d5ray.errors import ConfigurationError

Shape = tuple[int, ...]  # of one sample, without the batch


@dataclass(frozen=True)
class Conv:
    """A 2-d convolution over (channels, height, width), followed by nothing."""

    channels: int
    kernel: int
    padding: int
    stride: int = 1
    bias: bool = True  # one number per output channel is added

    def __post_init__(self) -> None:
        for name, least in (("channels", 1), ("kernel", 1), ("padding", 0), ("stride", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ConfigurationError(f"{name} of {self} must be a whole number from {least} up")

    def output_shape(self, shape: Shape) -> Shape:
        _check_image(self, shape)
        height, width = ((size + 2 * self.padding - self.kernel) // self.stride + 1 for size in shape[1:])
        return _positive(self, shape, (self.channels, height, width))


@dataclass(frozen=True)
class BatchNorm:
    """γ (x − mean) / √(variance + epsilon) + β for every channel (Ioffe and Szegedy, arXiv:1502.03167).

    In training mean and variance are the batch's, and `momentum` is the weight with which they enter the
    running ones, by which the network is evaluated. The running ones are state that is not trained.
    """

    epsilon: float = 1e-5
    momentum: float = 0.1

    def output_shape(self, shape: Shape) -> Shape:
        _check_image(self, shape)
        return shape


@dataclass(frozen=True)
class MaxPool:
    """The largest of every `size` × `size` square."""

    size: int

    def output_shape(self, shape: Shape) -> Shape:
        return _positive(self, shape, (shape[0], shape[1] // self.size, shape[2] // self.size))


@dataclass(frozen=True)
class GlobalAveragePool:
    """The mean of every channel, as (channels, 1, 1)."""

    def output_shape(self, shape: Shape) -> Shape:
        _check_image(self, shape)
        return (shape[0], 1, 1)


@dataclass(frozen=True)
class Relu:
    """max(0, x)."""

    def output_shape(self, shape: Shape) -> Shape:
        return shape


@dataclass(frozen=True)
class Flatten:
    """Every sample as one vector."""

    def output_shape(self, shape: Shape) -> Shape:
        size = 1
        for extent in shape:
            size *= extent
        return (size,)


@dataclass(frozen=True)
class Linear:
    """W x + b with `features` outputs."""

    features: int

    def output_shape(self, shape: Shape) -> Shape:
        return (self.features,)


@dataclass(frozen=True)
class Residual:
    """body(x) + shortcut(x), two chains of layers; without layers the shortcut is x itself."""

    body: tuple["Layer", ...]
    shortcut: tuple["Layer", ...] = ()

    def output_shape(self, shape: Shape) -> Shape:
        after, beside = chain_shape(self.body, shape), chain_shape(self.shortcut, shape)
        if after != beside:
            raise ConfigurationError(
                f"a Residual cannot add what its body makes of samples of shape {shape}, {after}, to what "
                f"its shortcut makes of them, {beside}: give it a shortcut with the body's output shape"
            )
        return after


Layer = Conv | BatchNorm | MaxPool | GlobalAveragePool | Relu | Flatten | Linear | Residual


def chain_shape(layers: tuple[Layer, ...], shape: Shape) -> Shape:
    """The shape of one sample behind these layers; raises `ConfigurationError` where one does not fit.

    >>> chain_shape((Conv(8, kernel=3, padding=1, stride=2), GlobalAveragePool(), Flatten()), (3, 32, 32))
    (8,)
    """
    for layer in layers:
        shape = layer.output_shape(shape)
    return shape


def _check_image(layer: Layer, shape: Shape) -> None:
    if len(shape) != 3:
        raise ConfigurationError(
            f"{layer} needs samples of shape (channels, height, width), found {shape}: "
            "choose a model without convolutions, such as 'mlp'"
        )


def _positive(layer: Layer, before: Shape, after: Shape) -> Shape:
    if min(after) < 1:
        raise ConfigurationError(
            f"{layer} makes {after} of samples of shape {before}: the samples are too small"
        )
    return after
