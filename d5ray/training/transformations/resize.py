"""Images of another size, by bilinear interpolation without aliasing"""

from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
import numpy.typing as npt

from d5ray.training.transformations.transformation import (
    Sampled,
    Shape,
    Transformation,
    check_size,
    image_shape,
    square,
)


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
