"""Chain: a sparsifier chooses the entries, a quantizer sends their values in fewer bits"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.communicator import Message
from d5ray.distributed.compression.compressor import Array, Compressor, Quantizer
from d5ray.distributed.compression.sparsifier import Sparsifier
from d5ray.errors import ConfigurationError


@final
@dataclass(frozen=True)
class Chain(Compressor):
    """C₂ on the entries that C₁ keeps: Chain(TopK(16, bucket=512), QSGD(bits=4)) is SparCML's Top16_Q4.

    A message is the sparsifier's head and the quantizer's message of the kept values in their order; the
    quantizer's buckets are of kept values, and the smaller they are the less noise it adds. With an unbiased
    quantizer error feedback keeps what was dropped and leaves the quantizer's noise, which is zero on
    average, out (arXiv:1802.08021); with a biased one it keeps both.
    """

    sparsifier: Sparsifier
    quantizer: Quantizer

    def __post_init__(self) -> None:
        _check_parts(self.sparsifier, self.quantizer)

    @property
    def unbiased(self) -> bool:
        return self.sparsifier.unbiased and self.quantizer.unbiased

    def contraction(self, n: int) -> float | None:
        """δ₁δ₂, since what is dropped is orthogonal to what is kept."""
        first = self.sparsifier.contraction(n)
        second = self.quantizer.contraction(self.sparsifier.count(n) or n)
        return None if first is None or second is None or self.sparsifier.unbiased else first * second

    def bounded_residual(self, n: int) -> bool:
        if not self.sparsifier.bounded_residual(n):
            return False
        second = self.quantizer.contraction(self.sparsifier.count(n) or n)
        return self.quantizer.unbiased or (second is not None and not self.sparsifier.unbiased)

    def check(self, n: int) -> None:
        self.sparsifier.check(n)

    def compress(self, vector: Array, rng: np.random.Generator) -> Message:
        indices, head = self.sparsifier.choose(vector, rng)
        values = self.sparsifier.values(vector, indices)
        return np.concatenate([head, self.quantizer.compress(values, rng)])

    def decompress(self, message: Message, n: int, dtype: Any) -> Array:
        indices, head = self.sparsifier.places(message, n)
        vector = np.zeros(n, dtype=dtype)
        vector[indices] = self.quantizer.decompress(message[head:], len(indices), dtype)
        return vector

    def message_bytes(self, n: int, dtype: Any) -> int | None:
        head, count = self.sparsifier.head_bytes(n), self.sparsifier.count(n)
        values = None if count is None else self.quantizer.message_bytes(count, dtype)
        return None if head is None or values is None else head + values

    def sent(self, vector: Array, message: Message, received: Array) -> Array:
        if not self.quantizer.unbiased:
            return received
        indices, _ = self.sparsifier.places(message, len(vector))
        kept = np.zeros_like(vector)
        kept[indices] = self.sparsifier.values(vector, indices)
        return kept


def _check_parts(first: object, second: object) -> None:
    if not isinstance(first, Sparsifier):
        advice = (
            "turn the two round" if isinstance(second, Sparsifier) else "put a sparsifier such as TopK there"
        )
        raise ConfigurationError(
            f"Chain begins with {first!r}, which drops nothing: {advice}, as in "
            "Chain(TopK(16, bucket=512), QSGD(bits=4))"
        )
    if isinstance(second, Sparsifier):
        raise ConfigurationError(
            f"Chain has two sparsifiers, {first!r} and {second!r}: take the one that keeps less, "
            "alone or with a quantizer such as QSGD(bits=4)"
        )
    if not isinstance(second, Quantizer):
        raise ConfigurationError(
            f"Chain ends with {second!r}, which makes no value smaller: put a quantizer such as QSGD(bits=4) "
            f"there, or take {first!r} alone"
        )
