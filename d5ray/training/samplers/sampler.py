"""The order of an epoch: what every sampler is, and those that see each sample once"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, final

import numpy as np

from d5ray.checks import KnownKeywords, check_count, with_settings

Indices = np.ndarray[Any, np.dtype[np.int64]]


class Sampler(KnownKeywords, ABC):
    """The order of one epoch: indices of samples, drawn from (seed, epoch) alone, so equal on every agent.

    A sampler of your own needs `order`. One whose epoch is not every sample exactly once also says how long
    it is (`length`), and states `replacement` where an index may come twice.
    """

    replacement: bool = False  # whether an index may come twice in an epoch
    varies: ClassVar[bool] = True  # whether each epoch has an order of its own

    @abstractmethod
    def order(self, samples: int, *, epoch: int, seed: int) -> Indices:
        """The indices, each in 0..samples-1, in the order in which this epoch sees them."""

    def length(self, samples: int) -> int:
        """The number of indices in an epoch, for a split of this many samples."""
        return samples

    def check(self, samples: int) -> None:
        """Raise `ConfigurationError` if this does not fit a split of that many samples."""

    def in_steps(self, samples: int) -> "Sampler":
        """A sampler that knows that each step of all agents together takes this many consecutive indices."""
        return self

    def __repr__(self) -> str:
        return with_settings(self)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))


@final
class OrderedSampler(Sampler):
    """Every epoch in the order of the data set."""

    varies = False

    def order(self, samples: int, *, epoch: int, seed: int) -> Indices:
        return np.arange(samples, dtype=np.int64)


@final
class ShuffleSampler(Sampler):
    """Every epoch in a new order, drawn from (seed, epoch): an epoch can be repeated alone."""

    def order(self, samples: int, *, epoch: int, seed: int) -> Indices:
        return generator(seed, epoch).permutation(samples).astype(np.int64, copy=False)


@final
class BlockShuffleSampler(Sampler):
    """Blocks of neighbours in a new order, and the samples shuffled within each few blocks that follow.

    For data that is read in pieces, such as Parquet's row groups: with `block` the rows of a piece, at most
    `window` pieces are in use at a time, where a shuffle of all samples would need one for every sample.
    """

    def __init__(self, block: int = 1024, window: int = 8) -> None:
        check_count("block", block)
        check_count("window", window)
        self.block = block
        self.window = window

    def order(self, samples: int, *, epoch: int, seed: int) -> Indices:
        rng = generator(seed, epoch)
        blocks = rng.permutation(-(-samples // self.block))
        within = np.arange(min(self.block, samples))
        starts = (blocks * self.block)[:, None] + within  # (blocks, block)
        found = starts.reshape(-1).astype(np.int64, copy=False)
        found = found[found < samples]
        for begin in range(0, samples, self.block * self.window):
            rng.shuffle(found[begin : begin + self.block * self.window])
        return found


def generator(seed: int, epoch: int) -> np.random.Generator:
    """The random numbers of one epoch."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
