"""Images mirrored left to right, at random"""

from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.checks import is_number, shown
from d5ray.errors import ConfigurationError
from d5ray.training.transformations.transformation import Sampled, Shape, Transformation, image_shape


@final
@dataclass(frozen=True)
class RandomFlip(Transformation):
    """Mirrors an image (C, H, W) left to right with this probability; test samples stay as they are."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not is_number(self.probability) or not 0 <= self.probability <= 1:
            raise ConfigurationError(
                f"probability is {shown(self.probability)}: it must be a number from 0 to 1"
            )

    def output_shape(self, shape: Shape) -> Shape:
        return image_shape(self, shape)

    def apply(self, samples: Sampled) -> Sampled:
        images = samples.inputs.copy()  # (n, C, H, W)
        mirrored = np.flatnonzero(samples.uniform(1)[:, 0] < self.probability)
        images[mirrored] = samples.inputs[mirrored, :, :, ::-1]
        return samples.with_inputs(images)

    def at_test(self) -> None:
        return None
