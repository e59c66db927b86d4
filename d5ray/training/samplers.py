"""In which order the samples of an epoch are seen, and which of them each agent gets."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError

Indices = np.ndarray[Any, np.dtype[np.int64]]


class Sampler(ABC):
    """The order of one epoch: a permutation of the samples that is the same on every agent."""

    @abstractmethod
    def order(self, samples: int, *, epoch: int, seed: int) -> Indices:
        """The indices 0..samples-1 in the order in which this epoch sees them."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))


@final
class OrderedSampler(Sampler):
    """Every epoch in the order of the data set."""

    def order(self, samples: int, *, epoch: int, seed: int) -> Indices:
        return np.arange(samples, dtype=np.int64)


@final
class ShuffleSampler(Sampler):
    """Every epoch in a new order, drawn from (seed, epoch): an epoch can be repeated alone."""

    def order(self, samples: int, *, epoch: int, seed: int) -> Indices:
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
        return generator.permutation(samples).astype(np.int64, copy=False)


@dataclass(frozen=True)
class Draw:
    """One agent's share of one step.

    `weight` = own samples × agents / samples of all agents in this step. The mean over the agents of
    weight × (mean gradient over own samples) is the mean gradient over all samples of the step, also
    where a remainder leaves agents with shares of different size; it is 1 for full batches.
    """

    indices: Indices
    weight: float
    epoch: int
    ends_epoch: bool


@dataclass(frozen=True)
class Shards:
    """How the agents share the samples: exact epochs for every remainder, nothing twice, nothing left out.

    Step t of an epoch takes the next agents × batch_size indices of the sampler's order, cut into one
    consecutive piece an agent. The last step takes what remains, cut into pieces that differ by at most
    one sample; agents may then get none.
    """

    samples: int
    agents: int
    batch_size: int
    sampler: Sampler
    seed: int

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ConfigurationError("the training split is empty: give a data set with at least one sample")

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.samples // (self.agents * self.batch_size))

    def epoch(self, epoch: int, rank: int) -> Iterator[Draw]:
        """The draws of `rank` in one epoch."""
        order = _order(self.sampler, self.samples, epoch, self.seed)
        total = self.agents * self.batch_size
        for start in range(0, self.samples, total):
            taken = min(total, self.samples - start)
            base, extra = divmod(taken, self.agents)
            first = start + rank * base + min(rank, extra)
            size = base + (rank < extra)
            yield Draw(
                indices=order[first : first + size],
                weight=size * self.agents / taken,
                epoch=epoch,
                ends_epoch=start + taken == self.samples,
            )

    def draws(self, rank: int, first_epoch: int = 0) -> Iterator[Draw]:
        """The draws of `rank`, epoch after epoch, without end."""
        epoch = first_epoch
        while True:
            yield from self.epoch(epoch, rank)
            epoch += 1


@lru_cache(maxsize=4)
def _order(sampler: Sampler, samples: int, epoch: int, seed: int) -> Indices:
    """The order of an epoch, made once for all agents of a process: a simulation has very many."""
    return sampler.order(samples, epoch=epoch, seed=seed)
