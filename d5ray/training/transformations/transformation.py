"""Transformation: data that turns some samples into others, all of a batch at once"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from d5ray.checks import KnownKeywords, check_count, with_settings
from d5ray.errors import ConfigurationError
from d5ray.training.batches import sample_randomness
from d5ray.training.batches.sample_randomness import Keys

MOST_PIXELS = 65_536  # of a side

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Sampled:
    """Samples under way into a batch: inputs (n, ...), labels (n, ...), and a key (n,) of each one's chance.

    The keys come from (seed, epoch, number of the sample), so what is drawn is the same whichever agent
    takes the sample, in whichever step, and whether the run was interrupted before.
    """

    inputs: np.ndarray[Any, Any]
    labels: npt.NDArray[Any]
    keys: Keys

    def uniform(self, draws: int) -> npt.NDArray[np.float64]:
        """(n, draws) random numbers, evenly from [0, 1); asked again, the same ones."""
        return sample_randomness.uniform(self.keys, draws)

    def with_inputs(self, inputs: np.ndarray[Any, Any]) -> "Sampled":
        """A copy of the samples with other inputs (n, ...)."""
        return replace(self, inputs=inputs)


class Transformation(KnownKeywords, ABC):
    """One step from a sample as it is stored to a sample as the network gets it.

    One of your own is a short frozen dataclass with three methods. It must not change the arrays that it is
    given, and draws all its chance from `Sampled.uniform`.
    """

    def __repr__(self) -> str:
        return with_settings(self)

    @abstractmethod
    def output_shape(self, shape: Shape) -> Shape:
        """The shape of one sample afterwards. Raises `ConfigurationError` if it does not take this one."""

    @abstractmethod
    def apply(self, samples: Sampled) -> Sampled:
        """The transformed samples: inputs (n, *shape) to (n, *output_shape)."""

    @abstractmethod
    def at_test(self) -> "Transformation | None":
        """The transformation of test samples, without chance: itself, another one, or None for nothing."""


def image_shape(transformation: Transformation, shape: Shape) -> tuple[int, int, int]:
    """(C, H, W), or the error for samples that are no images."""
    if len(shape) != 3:
        raise ConfigurationError(
            f"{transformation!r} takes images (C, H, W), the samples have the shape {shape}: leave it out, "
            "or give images"
        )
    return shape[0], shape[1], shape[2]


def square(size: int | tuple[int, int]) -> tuple[int, int]:
    """(height, width) of a size that may be one number."""
    return (size[0], size[1]) if isinstance(size, tuple) else (size, size)


def check_size(name: str, size: object) -> None:
    """Raise `ConfigurationError` unless it is an integer of at least 1, or a pair of them."""
    for one in size if isinstance(size, tuple) and len(size) == 2 else (size,):
        check_count(name, one, high=MOST_PIXELS, of="pixels", other="a pair of them, (height, width)")
