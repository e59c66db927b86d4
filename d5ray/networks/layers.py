"""A network as data: the layers it is a chain of, with the shapes they give; each framework builds it."""

from dataclasses import dataclass

from d5ray.errors import ConfigurationError

Shape = tuple[int, ...]  # of one sample, without the batch


@dataclass(frozen=True)
class Conv:
    """A 2-d convolution over (channels, height, width), stride 1, followed by nothing."""

    channels: int
    kernel: int
    padding: int

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3:
            raise ConfigurationError(
                f"{self} needs samples of shape (channels, height, width), found {shape}: "
                "choose a model without convolutions, such as 'mlp'"
            )
        height, width = (size + 2 * self.padding - self.kernel + 1 for size in shape[1:])
        return _positive(self, shape, (self.channels, height, width))


@dataclass(frozen=True)
class MaxPool:
    """The largest of every `size` × `size` square."""

    size: int

    def output_shape(self, shape: Shape) -> Shape:
        return _positive(self, shape, (shape[0], shape[1] // self.size, shape[2] // self.size))


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


Layer = Conv | MaxPool | Relu | Flatten | Linear


def _positive(layer: Conv | MaxPool, before: Shape, after: Shape) -> Shape:
    if min(after) < 1:
        raise ConfigurationError(
            f"{layer} makes {after} of samples of shape {before}: the samples are too small"
        )
    return after
