"""Numbers brought into a range: pixels 0..255 to 0..1, channels to mean 0 and standard deviation 1"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.checks import check_number
from d5ray.errors import ConfigurationError
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


@final
@dataclass(frozen=True)
class Normalize(Transformation):
    """(x − mean) / std, in training and in tests.

    mean, std: a number, or one for each channel, which is the first axis of a sample; std above 0. For
    CIFAR-10 in 0..1: mean (0.4914, 0.4822, 0.4465), std (0.2470, 0.2435, 0.2616).
    """

    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]

    def __post_init__(self) -> None:
        for name, low in (("mean", -np.inf), ("std", 0.0)):
            given = getattr(self, name)
            if isinstance(given, Sequence) and not isinstance(given, str) and len(given):
                object.__setattr__(self, name, tuple(given))
                for value in given:
                    check_number(f"a number of {name}", value, low=low, low_included=False)
            else:
                check_number(name, given, low=low, low_included=False)

    def output_shape(self, shape: Shape) -> Shape:
        for name in ("mean", "std"):
            given = getattr(self, name)
            if isinstance(given, tuple) and len(given) != shape[0]:
                raise ConfigurationError(
                    f"{self!r} has {len(given)} numbers of {name}, but the samples, of shape {shape}, have "
                    f"{shape[0]} channels: give one for each, or one for all"
                )
        return shape

    def apply(self, samples: Sampled) -> Sampled:
        inputs = samples.inputs  # (n, C, ...)
        axes = (1, -1, *(1,) * (inputs.ndim - 2))
        mean, std = (np.asarray(given, dtype=np.float64) for given in (self.mean, self.std))
        scale, shift = 1 / std, -mean / std  # x · scale + shift: a division takes longer
        scaled = inputs * np.reshape(scale, axes).astype(np.float32)
        scaled += np.reshape(shift, axes).astype(np.float32)
        return samples.with_inputs(scaled)

    def at_test(self) -> Transformation:
        return self
