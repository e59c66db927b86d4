"""MicroBatchSizes: which sizes of micro-batches are tried, the three sets of the paper"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

from d5ray.checks import KnownKeywords, check_count


class MicroBatchSizes(KnownKeywords, ABC):
    """A set of sizes, for every mini-batch (Oyama et al., arXiv:1804.04806, section III-E)."""

    @final
    def of(self, batch_size: int) -> tuple[int, ...]:
        """The sizes for a mini-batch of that many samples, ascending."""
        check_count("batch_size", batch_size, 1)
        return self._of(batch_size)

    @abstractmethod
    def _of(self, batch_size: int) -> tuple[int, ...]: ...


@final
@dataclass(frozen=True)
class Undivided(MicroBatchSizes):
    """The whole mini-batch alone.

    >>> Undivided().of(6)
    (6,)
    """

    def _of(self, batch_size: int) -> tuple[int, ...]:
        return (batch_size,)


@final
@dataclass(frozen=True)
class PowersOfTwo(MicroBatchSizes):
    """1, 2, 4, … up to the mini-batch, and the mini-batch itself.

    >>> PowersOfTwo().of(6)
    (1, 2, 4, 6)
    """

    def _of(self, batch_size: int) -> tuple[int, ...]:
        powers = {1 << exponent for exponent in range(batch_size.bit_length())}
        return tuple(sorted({*powers, batch_size}))


@final
@dataclass(frozen=True)
class AllSizes(MicroBatchSizes):
    """Every size from 1 to the mini-batch.

    >>> AllSizes().of(4)
    (1, 2, 3, 4)
    """

    def _of(self, batch_size: int) -> tuple[int, ...]:
        return tuple(range(1, batch_size + 1))
