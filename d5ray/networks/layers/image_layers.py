"""Layers over images (channels, height, width), as data"""

from dataclasses import dataclass

from d5ray.errors import ConfigurationError
from d5ray.networks.layers.layer_shapes import Shape, check_image, check_whole, positive


@dataclass(frozen=True)
class Conv:
    """A 2-d convolution over (channels, height, width), followed by nothing.

    groups: the number of parts of the input's channels, each of which makes a part of the output's by itself;
    with as many groups as channels the convolution is depthwise.
    """

    channels: int
    kernel: int
    padding: int
    stride: int = 1
    bias: bool = True  # one number per output channel is added
    groups: int = 1

    def __post_init__(self) -> None:
        check_whole(self, channels=1, kernel=1, padding=0, stride=1, groups=1)

    def output_shape(self, shape: Shape) -> Shape:
        """(channels, height, width). Raises ConfigurationError where `groups` divides not all channels."""
        check_image(self, shape)
        if shape[0] % self.groups or self.channels % self.groups:
            raise ConfigurationError(
                f"{self} makes {self.channels} channels of {shape[0]}, which its {self.groups} groups cannot "
                "share evenly: choose a number of groups that divides both"
            )
        height, width = ((size + 2 * self.padding - self.kernel) // self.stride + 1 for size in shape[1:])
        return positive(self, shape, (self.channels, height, width))


@dataclass(frozen=True)
class ConvTranspose:
    """A 2-d transposed convolution, the gradient of a `Conv` with respect to its input: it enlarges images.

    A side of n pixels becomes one of (n − 1) stride − 2 padding + kernel (Zeiler et al., CVPR 2010).
    """

    channels: int
    kernel: int
    padding: int = 0
    stride: int = 1
    bias: bool = True

    def __post_init__(self) -> None:
        check_whole(self, channels=1, kernel=1, padding=0, stride=1)

    def output_shape(self, shape: Shape) -> Shape:
        """(channels, height, width) of the output, each side (n − 1) stride − 2 padding + kernel."""
        check_image(self, shape)
        height, width = ((size - 1) * self.stride - 2 * self.padding + self.kernel for size in shape[1:])
        return positive(self, shape, (self.channels, height, width))


@dataclass(frozen=True)
class BatchNorm:
    """γ (x − mean) / √(variance + epsilon) + β for every channel (Ioffe and Szegedy, arXiv:1502.03167).

    In training mean and variance are the batch's, and `momentum` is the weight with which they enter the
    running ones, by which the network is evaluated. The running ones are state that is not trained.
    """

    epsilon: float = 1e-5
    momentum: float = 0.1

    def output_shape(self, shape: Shape) -> Shape:
        """The input's shape, (channels, height, width)."""
        check_image(self, shape)
        return shape


@dataclass(frozen=True)
class MaxPool:
    """The largest of every `size` × `size` square, one every `stride` pixels, by default side by side.

    padding: the pixels around the image that belong to the squares and are never the largest; at most half
    of the size.
    """

    size: int
    stride: int | None = None
    padding: int = 0

    def __post_init__(self) -> None:
        check_whole(self, size=1, padding=0)
        if self.stride is not None:
            check_whole(self, stride=1)
        if 2 * self.padding > self.size:
            raise ConfigurationError(
                f"padding of {self} must be at most half of its size: a square of nothing but padding has no "
                "largest pixel"
            )

    def output_shape(self, shape: Shape) -> Shape:
        """(channels, height, width) with a pixel for each position of the square."""
        check_image(self, shape)
        stride = self.size if self.stride is None else self.stride
        height, width = ((size + 2 * self.padding - self.size) // stride + 1 for size in shape[1:])
        return positive(self, shape, (shape[0], height, width))


@dataclass(frozen=True)
class GlobalAveragePool:
    """The mean of every channel, as (channels, 1, 1)."""

    def output_shape(self, shape: Shape) -> Shape:
        """(channels, 1, 1)."""
        check_image(self, shape)
        return (shape[0], 1, 1)


@dataclass(frozen=True)
class ChannelsLast:
    """(channels, height, width) as (height, width, channels): the scores of every pixel as the last axis."""

    def output_shape(self, shape: Shape) -> Shape:
        """(height, width, channels)."""
        check_image(self, shape)
        return (*shape[1:], shape[0])


@dataclass(frozen=True)
class ImageRows:
    """An image as the sequence of its rows, (height, channels × width); a sequence stays what it is."""

    def output_shape(self, shape: Shape) -> Shape:
        """(height, channels × width) of an image; the input's shape where it is a sequence."""
        if len(shape) == 2:
            return shape
        check_image(self, shape)
        return (shape[1], shape[0] * shape[2])
