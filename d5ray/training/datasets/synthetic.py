"""Made-up samples of any shape, from (seed, index) alone, whose labels can be learned from them"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count, check_number
from d5ray.errors import ConfigurationError
from d5ray.training.batches.sample_randomness import mixed, uniform
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.samples import Array, Labels, OnDemand

CELLS = 8  # of a class's pattern, along each axis
STARTS = 1 << 16  # in the table of noise


@final
class Synthetic(OnDemand):
    """Sample i is the pattern of its class, plus noise; both are made from (seed, i) when it is taken.

    A pattern is a coarse grid of standard normal numbers, at most 8 cells along an axis; the noise is
    normal with the standard deviation `noise`. The memory needed does not grow with the number of samples.

    Args:
        shape: of one sample, such as (3, 224, 224); each axis at least 1.
        classes: of which each sample's is drawn evenly.
        samples: how many.
        seed: of patterns, classes and noise.
        noise: 0 makes all samples of a class equal.
        first: the number of the first sample, so that a test split has others than the training split.

    >>> inputs, labels = Synthetic((3, 32, 32), classes=10, samples=10**6).take(np.array([5, 999_999]))
    >>> inputs.shape, inputs.dtype, labels.dtype
    ((2, 3, 32, 32), dtype('float32'), dtype('int64'))
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int = 10,
        samples: int = 1000,
        *,
        seed: int = 0,
        noise: float = 1.0,
        first: int = 0,
    ) -> None:
        if not isinstance(shape, (tuple, list)) or not shape:
            raise ConfigurationError(f"shape is {shape!r}: it must be a tuple such as (3, 32, 32)")
        for axis in shape:
            check_count("an axis of shape", axis)
        for name, value, low in (
            ("classes", classes, 1), ("samples", samples, 0), ("seed", seed, 0), ("first", first, 0),
        ):  # fmt: skip
            check_count(name, value, low)
        check_number("noise", noise, low=0.0, low_included=True)
        self.sample_shape = tuple(shape)
        self.classes = classes
        self.samples = samples
        self.seed = seed
        self.noise = noise
        self.first = first

    def __repr__(self) -> str:
        return (
            f"Synthetic({self.sample_shape}, classes={self.classes}, samples={self.samples}, "
            f"seed={self.seed}, noise={self.noise}, first={self.first})"
        )

    def __len__(self) -> int:
        return self.samples

    def __getstate__(self) -> dict[str, Any]:
        made = ("labels", "_patterns", "_table")
        return {name: value for name, value in vars(self).items() if name not in made}

    @cached_property
    def labels(self) -> Labels:
        """The class of each sample, int64 (N,), computed at the first use."""
        return self._labels(np.arange(self.samples, dtype=np.int64))

    @property
    def highest_label(self) -> int:
        return self.classes - 1 if self.samples else -1

    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Array, Labels]:
        labels = self._labels(indices)
        inputs = self._patterns[labels]  # (n, cells of each axis …)
        for axis, length in enumerate(self.sample_shape, start=1):
            cells = np.arange(length) * inputs.shape[axis] // length
            if length != inputs.shape[axis]:
                inputs = inputs.take(cells, axis=axis)
        if self.noise:
            size = int(np.prod(self.sample_shape))
            starts = (uniform(self._keys(indices), 3)[:, 1:] * STARTS).astype(np.int64)  # (n, 2)
            for line, own in zip(self._table, starts.T, strict=True):
                pieces = np.lib.stride_tricks.sliding_window_view(line, size)[own]  # (n, size)
                inputs += pieces.reshape(inputs.shape)
        return inputs, labels

    def add_to(self, digest: "hashlib._Hash", part: str) -> None:
        """Add everything that the samples are made from to the fingerprint."""
        digest.update(f"{part} {self!r}\n".encode())

    def _keys(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        return mixed(indices.astype(np.uint64) + np.uint64(self.first), self.seed, 0x5A)

    def _labels(self, indices: npt.NDArray[np.int64]) -> Labels:
        return (uniform(self._keys(indices), 1)[:, 0] * self.classes).astype(np.int64)

    @cached_property
    def _patterns(self) -> npt.NDArray[np.float32]:
        """(classes, at most 8 along each axis)."""
        coarse = [min(CELLS, length) for length in self.sample_shape]
        return self._rng(1).standard_normal((self.classes, *coarse), dtype=np.float32)

    @cached_property
    def _table(self) -> npt.NDArray[np.float32]:
        """Two lines of noise; a sample's is the sum of a piece of each."""
        size = int(np.prod(self.sample_shape)) + STARTS - 1
        lines = self._rng(2).standard_normal((2, size), dtype=np.float32)
        return lines * np.float32(self.noise / 2**0.5)

    def _rng(self, stream: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, stream])))


def load_synthetic(
    *,
    shape: Sequence[int] = (1, 28, 28),
    classes: int = 10,
    samples: int = 10_000,
    test_samples: int = 1_000,
    seed: int = 0,
    noise: float = 1.0,
) -> Dataset:
    """Samples made from their number, see `Synthetic`; the test split has the numbers that follow."""
    check_count("test_samples", test_samples, 0)
    train = Synthetic(shape, classes, samples, seed=seed, noise=noise)
    test = Synthetic(shape, classes, test_samples, seed=seed, noise=noise, first=samples)
    return Dataset("synthetic", train, test, tuple(map(str, range(classes))))
