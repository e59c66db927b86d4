"""Random-k: k entries drawn without replacement, as they are or scaled to be right on average"""

from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.distributed.communicators.communicator import Message
from d5ray.distributed.compression.compressor import Array, Indices, LinearCompressor
from d5ray.distributed.compression.sparsifier import Sparsifier, check_k, count_of

SEED_BYTES = 8


@dataclass(frozen=True)
class _Random(Sparsifier, LinearCompressor):
    """A message is the seed from which the places follow, and the values."""

    k: int | float
    linear = True

    def __post_init__(self) -> None:
        check_k(self.k, None)

    def check(self, n: int) -> None:
        check_k(self.k, n)

    @final
    def choose(self, vector: Array, rng: np.random.Generator) -> tuple[Indices, Message]:
        seed = rng.integers(2**63, size=1, dtype=np.uint64)
        return self._drawn(int(seed[0]), len(vector)), seed.astype("<u8").view(np.uint8)

    @final
    def part(self, n: int, rng: np.random.Generator) -> Indices:
        return self._drawn(int(rng.integers(2**63, dtype=np.uint64)), n)

    @final
    def places(self, message: Message, n: int) -> tuple[Indices, int]:
        return self._drawn(int(message[:SEED_BYTES].view("<u8")[0]), n), SEED_BYTES

    @final
    def count(self, n: int) -> int:
        return count_of(self.k, n)

    @final
    def head_bytes(self, n: int) -> int:
        return SEED_BYTES

    def _drawn(self, seed: int, n: int) -> Indices:
        drawn = np.random.default_rng(seed).choice(n, self.count(n), replace=False, shuffle=False)
        return np.sort(drawn)


@final
@dataclass(frozen=True)
class RandomK(_Random):
    """k random entries as they are: a contraction, E‖v − C(v)‖² = (1 − k/n)‖v‖², for error feedback.

    k is an integer, or a fraction below 1 (Stich et al., arXiv:1809.07599, definition 2.1). Agents
    with the same generator keep the same entries, and their values can be added: `Allreduce(RandomK(k))`.
    """

    def contraction(self, n: int) -> float:
        return self.count(n) / n


@final
@dataclass(frozen=True)
class UnbiasedRandomK(_Random):
    """k random entries, times n/k: right on average, E‖v − C(v)‖² = (n/k − 1)‖v‖², without error feedback.

    (Konečný et al., arXiv:1610.05492: random mask; Wangni et al., arXiv:1710.09854.) k as in `RandomK`.
    """

    unbiased = True

    def contraction(self, n: int) -> float | None:
        delta = 2.0 - n / self.count(n)
        return delta if delta > 0.0 else None

    def gain(self, n: int) -> float:
        return n / self.count(n)
