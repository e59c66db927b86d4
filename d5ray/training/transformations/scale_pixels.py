"""Pixels 0..255 as numbers 0..1"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.networks.executors.trees import mapped
from d5ray.training.transformations.transformation import Sampled, Shape, Transformation


@final
@dataclass(frozen=True)
class ScalePixels(Transformation):
    """x / 255 as float32, of samples that are kept as uint8; in training and in tests.

    Where no transformation says so, it is the first one for such samples. Put after `Crop` and `RandomFlip`
    these move a quarter of the bytes. Samples of another type stay as they are.
    """

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def apply(self, samples: Sampled) -> Sampled:
        return samples.with_inputs(mapped(_scaled, samples.inputs))

    def at_test(self) -> Transformation:
        return self


def _scaled(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.divide(array, np.float32(255), dtype=np.float32) if array.dtype == np.uint8 else array
