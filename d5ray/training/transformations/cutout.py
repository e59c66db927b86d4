"""A square of each image blotted out, at random"""

from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.checks import check_count, check_number
from d5ray.training.transformations.transformation import Sampled, Shape, Transformation, image_shape


@final
@dataclass(frozen=True)
class Cutout(Transformation):
    """Sets a square of size × size pixels of an image (C, H, W) to `fill`; test samples stay as they are.

    The square's centre may be any pixel, so that a part of it may lie outside of the image.
    DeVries, Taylor: Improved regularization of convolutional neural networks with cutout, arXiv:1708.04552.
    """

    size: int
    fill: float = 0.0

    def __post_init__(self) -> None:
        check_count("size", self.size)
        check_number("fill", self.fill, low=-np.inf, low_included=False)

    def output_shape(self, shape: Shape) -> Shape:
        return image_shape(self, shape)

    def apply(self, samples: Sampled) -> Sampled:
        images = samples.inputs.copy()  # (n, C, H, W)
        height, width = images.shape[2:]
        corners = (samples.uniform(2) * (height, width)).astype(np.intp) - self.size // 2  # (n, 2)
        for image, (top, left) in zip(images, corners.tolist(), strict=True):
            image[:, max(0, top) : max(0, top + self.size), max(0, left) : max(0, left + self.size)] = (
                self.fill
            )
        return samples.with_inputs(images)

    def at_test(self) -> None:
        return None
