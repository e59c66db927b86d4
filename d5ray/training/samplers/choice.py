"""Samples drawn at random, with or without replacement, evenly or by weights"""

import hashlib
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.training.samplers.sampler import Indices, Sampler, generator

MOST_DRAWN = 100_000_000  # in an epoch, whose order is in memory


@final
class ChoiceSampler(Sampler):
    """Draws samples at random: with replacement, independent of one another; without, none twice in an epoch.

    Args:
        replacement: whether a sample may come again within an epoch.
        samples: how many an epoch draws; None: as many as the split has.
        weights: (N,) of numbers, 0 or more, one for each sample of the split: with replacement, sample i is
            drawn with probability w_i / Σ w; without, one after the other, each with w_i / Σ of those left.
            None: all equal.

    Without replacement the weighted order is that of Efraimidis and Spirakis, "Weighted random sampling with
    a reservoir", 2006: ascending e_i / w_i with e_i exponentially distributed.

    Raises:
        ConfigurationError: weights that are none; when the split is known: weights of another length, or
            more samples asked for than there are with a weight above 0.
    """

    def __init__(
        self,
        replacement: bool = True,
        samples: int | None = None,
        weights: Sequence[float] | npt.NDArray[np.floating[Any]] | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise ConfigurationError(f"replacement is {replacement!r}: it must be True or False")
        if samples is not None:
            check_count("samples", samples, high=MOST_DRAWN)
        self.replacement = replacement
        self.samples = samples
        self.weights = None if weights is None else _checked(weights)

    def __repr__(self) -> str:
        weights = "None" if self.weights is None else f"<{len(self.weights)} numbers>"
        return f"ChoiceSampler(replacement={self.replacement}, samples={self.samples}, weights={weights})"

    @property
    def fingerprint(self) -> str:
        """The SHA-256 (hex) of what the sampler draws by."""
        weights = b"" if self.weights is None else self.weights.astype("<f8").tobytes()
        return hashlib.sha256(f"{self.replacement} {self.samples}\n".encode() + weights).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChoiceSampler) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash((self.replacement, self.samples))

    def length(self, samples: int) -> int:
        return samples if self.samples is None else self.samples

    def check(self, samples: int) -> None:
        if self.weights is not None and len(self.weights) != samples:
            raise ConfigurationError(
                f"{self!r} has {len(self.weights)} weights, but the training split has {samples} samples: "
                "give each sample one"
            )
        there = samples if self.weights is None else int(np.count_nonzero(self.weights))
        if not self.replacement and self.length(samples) > there:
            which = "" if self.weights is None else " with a weight above 0"
            raise ConfigurationError(
                f"{self!r} asks for {self.length(samples)} samples an epoch, but there are {there}{which}: "
                "ask for fewer, or set replacement=True"
            )

    def order(self, samples: int, *, epoch: int, seed: int) -> Indices:
        rng, count = generator(seed, epoch), self.length(samples)
        if self.weights is None:
            drawn = (
                rng.integers(samples, size=count) if self.replacement else rng.permutation(samples)[:count]
            )
        elif self.replacement:
            sums = np.cumsum(self.weights)
            drawn = np.searchsorted(sums / sums[-1], rng.random(count), side="right")
        else:
            with np.errstate(divide="ignore", invalid="ignore"):  # a weight of 0 comes last
                drawn = np.argsort(rng.standard_exponential(samples) / self.weights)[:count]
        return drawn.astype(np.int64, copy=False)


def _checked(weights: Any) -> npt.NDArray[np.float64]:
    try:
        numbers = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"weights are no numbers: {error}; give each sample one") from error
    if numbers.ndim != 1 or not len(numbers):
        raise ConfigurationError(f"weights have the shape {numbers.shape}: they must be (N,), one a sample")
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(wrong):
        raise ConfigurationError(
            f"weights[{wrong[0]}] is {numbers[wrong[0]]}: it must be a finite number, 0 or more"
        )
    if not np.isfinite(total := numbers.sum()) or total == 0:
        raise ConfigurationError(f"the sum of the weights is {total}: it must be finite and above 0")
    return numbers
