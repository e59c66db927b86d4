"""Samples of similar length together in a step, so that little is padded"""

import hashlib
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.training.samplers.sampler import Indices, Sampler, generator

MOST_BUCKETS = 1_000_000  # each of which is counted


@final
class BucketSampler(Sampler):
    """Samples are put in buckets of equal width by their length; a step takes from one bucket.

    Each epoch shuffles every bucket, cuts it into full steps, and shuffles the steps. What is left over of
    the buckets makes steps of neighbouring buckets, and the last, smaller step. Every sample comes once.

    Args:
        lengths: (N,) of integers, 0 or more: the length of each sample of the split.
        buckets: how many, between the shortest and the longest length.
        max_length: longer samples are left out; None: none are.

    Raises:
        ConfigurationError: lengths that are none; when the split is known: as many lengths as it has samples
            must be there, and one of at most max_length.
    """

    def __init__(
        self,
        lengths: Sequence[int] | npt.NDArray[np.integer[Any]],
        buckets: int = 30,
        max_length: int | None = None,
    ) -> None:
        check_count("buckets", buckets, high=MOST_BUCKETS)
        if max_length is not None:
            check_count("max_length", max_length)
        self.lengths = _checked(lengths)
        self.buckets = buckets
        self.max_length = max_length
        self._step = 1  # indices a step

    def __repr__(self) -> str:
        shown = f"lengths=<{len(self.lengths)} numbers>, buckets={self.buckets}, max_length={self.max_length}"
        return f"BucketSampler({shown})"

    @property
    def fingerprint(self) -> str:
        """The SHA-256 (hex) of what the sampler sorts by."""
        text = f"{self.buckets} {self.max_length}\n".encode()
        return hashlib.sha256(text + self.lengths.astype("<i8").tobytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BucketSampler):
            return NotImplemented
        return (self._step, self.fingerprint) == (other._step, other.fingerprint)

    def __hash__(self) -> int:
        return hash((len(self.lengths), self.buckets, self.max_length, self._step))

    def in_steps(self, samples: int) -> "BucketSampler":
        told = BucketSampler.__new__(BucketSampler)
        vars(told).update(vars(self), _step=samples)
        return told

    def length(self, samples: int) -> int:
        return len(self._kept())

    def check(self, samples: int) -> None:
        if len(self.lengths) != samples:
            raise ConfigurationError(
                f"{self!r} has {len(self.lengths)} lengths, but the training split has {samples} samples: "
                "give each sample one"
            )
        if not len(self._kept()):
            raise ConfigurationError(
                f"{self!r} leaves out every sample: the shortest has length {self.lengths.min()}, set "
                "max_length to at least that"
            )

    def bucket_of(self, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The bucket, 0..buckets-1, of samples of these lengths."""
        kept = self.lengths[self._kept()]
        low, high = int(kept.min()), int(kept.max())
        return (lengths - low) * self.buckets // (high - low + 1)

    def order(self, samples: int, *, epoch: int, seed: int) -> Indices:
        rng, step = generator(seed, epoch), self._step
        drawn = rng.permutation(self._kept())
        bucket = self.bucket_of(self.lengths[drawn])
        by_bucket = np.argsort(bucket, kind="stable")  # shuffled within each
        drawn, bucket = drawn[by_bucket], bucket[by_bucket]
        sizes = np.bincount(bucket, minlength=self.buckets)
        place = np.arange(len(drawn)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # within the bucket
        whole = place < (sizes // step * step)[bucket]
        left = drawn[~whole]
        full = len(left) // step * step
        steps = np.concatenate([drawn[whole], left[:full]]).reshape(-1, step)
        return np.concatenate([rng.permutation(steps).reshape(-1), left[full:]])

    def _kept(self) -> Indices:
        if self.max_length is None:
            return np.arange(len(self.lengths), dtype=np.int64)
        return np.flatnonzero(self.lengths <= self.max_length).astype(np.int64, copy=False)


def _checked(lengths: Any) -> npt.NDArray[np.int64]:
    found = np.asarray(lengths)
    if found.ndim != 1 or not len(found) or not np.issubdtype(found.dtype, np.integer):
        raise ConfigurationError(
            f"lengths have the shape {found.shape} and the type {found.dtype}: they must be integers "
            "(N,), one a sample"
        )
    if found.min() < 0:
        raise ConfigurationError(f"lengths[{found.argmin()}] is {found.min()}: it must be 0 or more")
    return np.array(found, dtype=np.int64)
