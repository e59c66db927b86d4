"""Pieces of images: at random places of a padded image, or from the centre"""

from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.checks import check_count, check_number
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
