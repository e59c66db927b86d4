"""Shards: the samples of an epoch that each agent gets in each step, exactly, from any step on"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.training.batches.epochs import START, BatchSize, Epochs, Position, size_at
from d5ray.training.samplers.sampler import Indices, Sampler


@dataclass(frozen=True)
class Draw:
    """One agent's share of one step.

    `weight` = own samples × agents / samples of all agents in this step. The mean over the agents of
    weight × (mean gradient over own samples) is the mean gradient over all samples of the step, also
    where a remainder leaves agents with shares of different size; it is 1 for full batches. The agents are
    those that are there.
    """

    indices: Indices
    weight: float
    epoch: int
    ends_epoch: bool


@dataclass(frozen=True)
class Sharing:
    """A step's samples as the agents share them: cut into `pieces`, of which one takes its `own`.

    taken: the pieces that somebody takes; those of agents that are gone may be left out. Empty: all.
    """

    pieces: int
    own: int
    taken: tuple[int, ...] = ()

    @classmethod
    def among(cls, sharers: Sequence[int], present: Sequence[int]) -> "dict[int, Sharing]":
        """The shares of those that are there, by rank, where a step has a piece for each of the sharers.

        >>> Sharing.among([0, 1, 2], [0, 2])
        {0: Sharing(pieces=3, own=0, taken=(0, 2)), 2: Sharing(pieces=3, own=2, taken=(0, 2))}
        """
        own = {rank: sharers.index(rank) for rank in present}
        taken = () if len(own) == len(sharers) else tuple(own.values())
        return {rank: cls(len(sharers), index, taken) for rank, index in own.items()}


@dataclass(frozen=True)
class Shards:
    """The shards of the agents: exact epochs for every remainder, nothing twice, nothing left out.

    Step t of an epoch takes the next agents × batch_size indices of the sampler's order, cut into one
    consecutive piece an agent. The last step takes what remains, cut into pieces that differ by at most
    one sample; agents may then get none.

    samples: of the split; an epoch has as many indices as the sampler says. Raises `ConfigurationError` for
    an empty split, and for a sampler that does not fit it.

    Where the number of agents changes, `since` is the place in the data from which the rest is shared anew:
    the order of the epoch stays that of the `planned` agents, so that all of it comes exactly once.
    """

    samples: int
    agents: int  # whose batches a step has
    batch_size: BatchSize  # of an agent; a schedule may change it by step or epoch
    sampler: Sampler
    seed: int
    planned: int = 0  # agents; 0: as many as there are
    pieces: int = 0  # into which a step's samples are cut; 0: one an agent
    taken: tuple[int, ...] = ()  # the pieces that somebody takes; empty: all
    since: Position = START

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ConfigurationError("the training split is empty: give a data set with at least one sample")
        self.sampler.check(self.samples)
        if self.length < 1:
            raise ConfigurationError(
                f"an epoch of {self.sampler!r} over {self.samples} samples has none: let it take at least one"
            )

    @cached_property
    def length(self) -> int:
        """The indices of an epoch."""
        return self.sampler.length(self.samples)

    @cached_property
    def epochs(self) -> Epochs:
        """The epochs: their first steps, and how they are cut into steps."""
        return Epochs(self.length, self.agents, self.batch_size, self.since)

    @property
    def steps_per_epoch(self) -> int:
        """The steps of the first epoch; of all, where the batch size stays."""
        return self.epochs.steps(0)

    def sampler_of(self, epoch: int) -> Sampler:
        """The sampler, told how many indices the epoch's first step takes, and all where they stay."""
        agents = self.planned or self.agents
        return self.sampler.in_steps(agents * size_at(self.batch_size, epoch, self.epochs.begin(epoch)))

    @property
    def relative_batch(self) -> float:
        """The samples of a full step that somebody takes, relative to those of the planned agents."""
        pieces = self.pieces or self.agents
        return self.agents / (self.planned or self.agents) * (len(self.taken) or pieces) / pieces

    def global_batch(self, place: Position) -> int:
        """The samples of a full step at a place in the data."""
        size = self.agents * size_at(self.batch_size, place.epoch, place.step)
        return size * len(self.taken) // self.pieces if self.taken else size

    def epoch(self, epoch: int, piece: int, first_step: int = 0) -> Iterator[Draw]:
        """The draws of one piece in one epoch, from a step of it on; by default a rank's piece is its own."""
        order = _order(self.sampler_of(epoch), self.samples, epoch, self.seed)
        pieces = self.pieces or self.agents
        present = len(self.taken) or pieces
        for start, taken in self.epochs.cuts(epoch, first_step):
            base, extra = divmod(taken, pieces)
            first = start + piece * base + min(piece, extra)
            size = base + (piece < extra)
            together = taken
            if self.taken:
                together = present * base + sum(each < extra for each in self.taken)
            yield Draw(
                indices=order[first : first + size],
                weight=size * present / together if together else 1.0,
                epoch=epoch,
                ends_epoch=start + taken == self.length,
            )

    def draws(self, piece: int, first_epoch: int = 0, first_step: int = 0) -> Iterator[Draw]:
        """The draws of one piece, epoch after epoch, without end.

        first_step: where it begins, counted from the beginning of first_epoch; it may lie in a later epoch.
        What lies before is not drawn: beginning in the middle costs the order of one epoch.
        """
        epoch, step = self.epochs.position(self.epochs.begin(first_epoch) + first_step)
        while True:
            yield from self.epoch(epoch, piece, step)
            epoch, step = epoch + 1, 0


@lru_cache(maxsize=4)
def _order(sampler: Sampler, samples: int, epoch: int, seed: int) -> Indices:
    """The order of an epoch, made once for all agents of a process: a simulation has very many."""
    found = drawn(sampler, samples, epoch, seed).copy()  # a sampler may shuffle its own array again
    if not sampler.replacement and (most := np.bincount(found)).max() > 1:
        raise ConfigurationError(
            f"{sampler!r} gave sample {most.argmax()} {most.max()} times in epoch {epoch}: once is enough, "
            "or set replacement = True in its class"
        )
    own = not type(sampler).__module__.startswith("d5ray.")
    if own and not np.array_equal(found, drawn(sampler, samples, epoch, seed)):
        raise ConfigurationError(
            f"{sampler!r} gave two orders for epoch {epoch}, so that agents would not agree: draw it from "
            "(seed, epoch) alone"
        )
    return found


def drawn(sampler: Sampler, samples: int, epoch: int, seed: int) -> Indices:
    """The order of an epoch as the sampler gives it now; raises `ConfigurationError` for what is none."""
    found: object = sampler.order(samples, epoch=epoch, seed=seed)
    wanted = sampler.length(samples)
    if not isinstance(found, np.ndarray) or found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        kind = f"{found.shape} of {found.dtype}" if isinstance(found, np.ndarray) else type(found).__name__
        raise ConfigurationError(f"{sampler!r} gave {kind}: an order must be a NumPy array (n,) of integers")
    if len(found) != wanted:
        raise ConfigurationError(
            f"{sampler!r} gave {len(found)} indices for epoch {epoch}, but says that an epoch has {wanted}: "
            "let `order` and `length` agree"
        )
    low, high = int(found.min()), int(found.max())
    if low < 0 or high >= samples:
        wrong = low if low < 0 else high
        raise ConfigurationError(
            f"{sampler!r} asks for sample {wrong} in epoch {epoch}, but the split has {samples}: its indices "
            f"must be 0 to {samples - 1}"
        )
    return found
