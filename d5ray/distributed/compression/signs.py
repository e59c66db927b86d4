"""One bit an entry: its sign, and what the entries of a sign are worth"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.communicator import Message
from d5ray.distributed.compression.bit_packing import (
    check_bucket,
    packed_bytes,
    row_count,
    row_lengths,
    row_size,
    rows,
)
from d5ray.distributed.compression.compressor import Array, Quantizer


class _Signs(Quantizer):
    """A message is a few numbers a bucket, and one bit an entry."""

    bucket: int | None
    numbers: int  # a bucket

    def __post_init__(self) -> None:
        check_bucket(self.bucket)

    @final
    def contraction(self, n: int) -> float:
        return 1.0 / row_size(n, self.bucket)

    @final
    def message_bytes(self, n: int, dtype: Any) -> int:
        return packed_bytes(n, 1) + self._head(n, dtype)

    def _head(self, n: int, dtype: Any) -> int:
        return self.numbers * row_count(n, self.bucket) * int(np.dtype(dtype).itemsize)


@final
@dataclass(frozen=True)
class ScaledSign(_Signs):
    """(‖v‖₁/d) sign(v), of the vector or of each bucket of d entries (Karimireddy et al., arXiv:1901.09847).

    ‖v − C(v)‖² = ‖v‖² − ‖v‖₁²/d, so δ = ‖v‖₁²/(d‖v‖²) ≥ 1/d. The sign of zero is plus.
    A message is one scale a bucket and one bit an entry.
    """

    bucket: int | None = None
    numbers = 1

    def compress(self, vector: Array, rng: np.random.Generator) -> Message:
        sums = np.abs(rows(vector, self.bucket)).sum(axis=1, dtype=np.float64)
        scales = (sums / row_lengths(len(vector), self.bucket)).astype(vector.dtype)
        return np.concatenate([scales.view(np.uint8), np.packbits(vector >= 0)])

    def decompress(self, message: Message, n: int, dtype: Any) -> Array:
        head = self._head(n, dtype)
        scales = message[:head].view(dtype)[:, None]
        return _choose(message[head:], n, self.bucket, scales, -scales)


@final
@dataclass(frozen=True)
class OneBit(_Signs):
    """The mean of a bucket's entries ≥ 0, and that of its negative ones   (Seide et al., Interspeech 2014).

    The paper's buckets are the columns of the weight matrices. δ ≥ 1/d for a bucket of d entries, since the
    mean is the projection on each sign's indicator. A message is two means a bucket and one bit an entry.
    """

    bucket: int | None = 512
    numbers = 2

    def compress(self, vector: Array, rng: np.random.Generator) -> Message:
        buckets = rows(vector, self.bucket)
        upper = buckets >= 0
        sums = np.stack(
            [np.where(side, buckets, 0).sum(axis=1, dtype=np.float64) for side in (upper, ~upper)], axis=1
        )  # (buckets, 2)
        lengths = row_lengths(len(vector), self.bucket)
        counts = upper.sum(axis=1) - (
            buckets.shape[1] - lengths
        )  # the zeros that fill the last row count not
        means = (sums / np.maximum(1, np.stack([counts, lengths - counts], axis=1))).astype(vector.dtype)
        return np.concatenate([means.reshape(-1).view(np.uint8), np.packbits(vector >= 0)])

    def decompress(self, message: Message, n: int, dtype: Any) -> Array:
        head = self._head(n, dtype)
        means = message[:head].view(dtype).reshape(-1, 2, 1)
        return _choose(message[head:], n, self.bucket, means[:, 0], means[:, 1])


def _choose(bits: Message, n: int, bucket: int | None, upper: Array, lower: Array) -> Array:
    """The value of its bucket (buckets, 1) for every bit: upper for 1, lower for 0."""
    signs = rows(np.unpackbits(bits, count=n), bucket)
    return np.where(signs, upper, lower).reshape(-1)[:n]
