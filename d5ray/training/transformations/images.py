"""Transformations of images: pieces of them, a square blotted out, mirrored, another size"""

from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count, check_number, is_number, shown
from d5ray.errors import ConfigurationError
from d5ray.training.transformations.transformation import (
    MOST_PIXELS,
    Sampled,
    Shape,
    Transformation,
    check_size,
    image_shape,
    square,
)


@dataclass(frozen=True)
class _Piece(Transformation):
    """Pieces (C, *size) of images (C, H, W) that get `padding` pixels of the value `fill` on each side."""

    size: int | tuple[int, int]
    padding: int = 0
    fill: float = 0.0

    def __post_init__(self) -> None:
        check_size("size", self.size)
        check_count("padding", self.padding, 0, MOST_PIXELS)
        check_number("fill", self.fill, low=-np.inf, low_included=False)

    @final
    def output_shape(self, shape: Shape) -> Shape:
        channels, height, width = image_shape(self, shape)
        wanted = square(self.size)
        if wanted[0] > height + 2 * self.padding or wanted[1] > width + 2 * self.padding:
            raise ConfigurationError(
                f"{self!r} takes {wanted[0]} × {wanted[1]} pixels of images of {height} × {width}: make it "
                "smaller, or the padding larger"
            )
        return channels, *wanted

    @final
    def padded(self, images: np.ndarray) -> np.ndarray:
        """The images (n, C, H, W) with their border."""
        if not self.padding:
            return images
        n, channels, height, width = images.shape
        padding = self.padding
        shape = (n, channels, height + 2 * padding, width + 2 * padding)
        larger = np.full(shape, self.fill, images.dtype)
        larger[:, :, padding : padding + height, padding : padding + width] = images
        return larger


@final
@dataclass(frozen=True)
class Crop(_Piece):
    """A piece at a random place, all places equally likely; a test sample gives the piece at its centre.

    Images (C, H, W) get `padding` pixels of the value `fill` on each side, then a piece (C, *size) is taken.
    With size=32, padding=4 it is the usual augmentation of CIFAR (He et al., arXiv:1512.03385, section 4.2).

    size: pixels, or (height, width).
    """

    def apply(self, samples: Sampled) -> Sampled:
        images = self.padded(samples.inputs)
        height, width = square(self.size)
        places = np.array(images.shape[2:]) - (height, width) + 1
        corners = (samples.uniform(2) * places).astype(np.intp)  # (n, 2)
        pieces = np.empty((*images.shape[:2], height, width), images.dtype)
        for piece, image, (top, left) in zip(pieces, images, corners.tolist(), strict=True):
            piece[...] = image[:, top : top + height, left : left + width]
        return samples.with_inputs(pieces)

    def at_test(self) -> Transformation:
        return CentreCrop(self.size, self.padding, self.fill)


@final
@dataclass(frozen=True)
class CentreCrop(_Piece):
    """The piece (C, *size) at the centre of an image; where that lies between two pixels, the upper left one.

    Images get `padding` pixels of the value `fill` on each side before.
    """

    def apply(self, samples: Sampled) -> Sampled:
        images = self.padded(samples.inputs)
        height, width = square(self.size)
        top, left = (images.shape[2] - height) // 2, (images.shape[3] - width) // 2
        return samples.with_inputs(images[:, :, top : top + height, left : left + width])

    def at_test(self) -> Transformation:
        return self


class _Augmentation(Transformation):
    """A change of images at random, which keeps their shape; test samples stay as they are."""

    def output_shape(self, shape: Shape) -> Shape:
        return image_shape(self, shape)

    def at_test(self) -> None:
        return None


@final
@dataclass(frozen=True)
class Cutout(_Augmentation):
    """Sets a square of size × size pixels of an image (C, H, W) to `fill`; test samples stay as they are.

    The square's centre may be any pixel, so that a part of it may lie outside of the image.
    DeVries, Taylor: Improved regularization of convolutional neural networks with cutout, arXiv:1708.04552.
    """

    size: int
    fill: float = 0.0

    def __post_init__(self) -> None:
        check_count("size", self.size)
        check_number("fill", self.fill, low=-np.inf, low_included=False)

    def apply(self, samples: Sampled) -> Sampled:
        images = samples.inputs.copy()  # (n, C, H, W)
        height, width = images.shape[2:]
        corners = (samples.uniform(2) * (height, width)).astype(np.intp) - self.size // 2  # (n, 2)
        for image, (top, left) in zip(images, corners.tolist(), strict=True):
            image[:, max(0, top) : max(0, top + self.size), max(0, left) : max(0, left + self.size)] = (
                self.fill
            )
        return samples.with_inputs(images)


@final
@dataclass(frozen=True)
class RandomFlip(_Augmentation):
    """Mirrors an image (C, H, W) left to right with this probability; test samples stay as they are."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not is_number(self.probability) or not 0 <= self.probability <= 1:
            raise ConfigurationError(
                f"probability is {shown(self.probability)}: it must be a number from 0 to 1"
            )

    def apply(self, samples: Sampled) -> Sampled:
        images = samples.inputs.copy()  # (n, C, H, W)
        mirrored = np.flatnonzero(samples.uniform(1)[:, 0] < self.probability)
        images[mirrored] = samples.inputs[mirrored, :, :, ::-1]
        return samples.with_inputs(images)


@final
@dataclass(frozen=True)
class Resize(Transformation):
    """Images (C, H, W) to (C, *size), in training and in tests.

    Every pixel is the mean of those that its triangle covers, one pixel wide on either side or, where the
    image shrinks, as wide as what it stands for: what Pillow's and PyTorch's antialiased `bilinear` do.

    size: pixels, or (height, width).
    """

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        check_size("size", self.size)

    def output_shape(self, shape: Shape) -> Shape:
        channels, _, _ = image_shape(self, shape)
        return channels, *square(self.size)

    def apply(self, samples: Sampled) -> Sampled:
        images = samples.inputs  # (n, C, H, W)
        height, width = square(self.size)
        rows = _weights(images.shape[2], height).astype(images.dtype)  # (height, H)
        columns = _weights(images.shape[3], width).astype(images.dtype)  # (width, W)
        return samples.with_inputs(rows @ (images @ columns.T))

    def at_test(self) -> Transformation:
        return self


@lru_cache(maxsize=16)
def _weights(before: int, after: int) -> npt.NDArray[np.float64]:
    """(after, before): how much each old pixel counts in each new one; rows add up to 1."""
    scale = before / after
    support = max(1.0, scale)
    centres = (np.arange(after) + 0.5) * scale
    distance = np.abs(np.arange(before) + 0.5 - centres[:, None]) / support
    triangle = np.maximum(0.0, 1.0 - distance)
    weights: npt.NDArray[np.float64] = triangle / triangle.sum(axis=1, keepdims=True)
    return weights
