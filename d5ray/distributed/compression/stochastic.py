"""QSGD and TernGrad: entries rounded to a few levels, up or down at random, so that the mean is right"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.checks import is_number
from d5ray.distributed.communicators.communicator import Message
from d5ray.distributed.compression.bit_packing import (
    check_bucket,
    pack,
    packed_bytes,
    row_count,
    row_size,
    rows,
    unpack,
)
from d5ray.distributed.compression.compressor import Array, Quantizer
from d5ray.errors import ConfigurationError


class _Levels(Quantizer):
    """C(v) = scale · ℓ/s with ℓ in −s..s, rounded stochastically: unbiased where scale ≥ max|v|.

    A message is one scale a bucket, in the vector's type, and one code an entry: ℓ + s. A bucket that is not
    finite has the scale NaN.
    """

    bits: int
    bucket: int | None

    @property
    @abstractmethod
    def levels(self) -> int:
        """s."""

    @abstractmethod
    def scales(self, buckets: Array) -> Array:
        """The divisor of each bucket of (buckets, size), (buckets,): at least its largest magnitude."""

    @final
    def compress(self, vector: Array, rng: np.random.Generator) -> Message:
        buckets = rows(vector, self.bucket)
        scales = self.scales(buckets)
        lost = ~np.isfinite(scales)
        if lost.any():
            scales = np.where(lost, np.nan, scales).astype(vector.dtype)
            buckets = np.where(lost[:, None], 0, buckets)
        divisors = np.where(scales > 0, scales, 1).astype(vector.dtype)
        steps = buckets / divisors[:, None]
        steps *= self.levels
        below = np.floor(steps)
        steps -= below
        below += rng.random(steps.shape, dtype=vector.dtype) < steps
        below += self.levels
        codes = below.reshape(-1)[: len(vector)].astype(np.uint8)
        return np.concatenate([scales.view(np.uint8), pack(codes, self.bits)])

    @final
    def decompress(self, message: Message, n: int, dtype: Any) -> Array:
        count = row_count(n, self.bucket)
        head = count * np.dtype(dtype).itemsize
        shares = (np.arange(2**self.bits) - self.levels).astype(dtype) / np.dtype(dtype).type(self.levels)
        vector = shares[unpack(message[head:], n, self.bits)]
        buckets = rows(vector, self.bucket)
        buckets *= message[:head].view(dtype)[:, None]
        return buckets.reshape(-1)[:n]

    @final
    def message_bytes(self, n: int, dtype: Any) -> int:
        return packed_bytes(n, self.bits) + row_count(n, self.bucket) * int(np.dtype(dtype).itemsize)


@final
@dataclass(frozen=True)
class QSGD(_Levels):
    """‖v‖₂ · ℓ/s, ℓ = s·v/‖v‖₂ rounded up or down at random   (Alistarh et al., arXiv:1610.02132).

    ‖v‖₂ is that of a bucket. A code of b bits holds the sign too: s = 2^(b−1) − 1, so 1, 7 or 127 levels
    above zero for 2, 4 or 8 bits. Unbiased, E‖C(v) − v‖² ≤ min(d/s², √d/s)‖v‖² for a bucket of d entries.
    """

    bits: int = 4
    bucket: int | None = 512
    unbiased = True

    def __post_init__(self) -> None:
        check_bucket(self.bucket)
        if not is_number(self.bits) or self.bits not in (2, 4, 8):
            raise ConfigurationError(f"bits is {self.bits!r}: an entry can have 2, 4 or 8 bits")

    @property
    def levels(self) -> int:
        return int(2 ** (self.bits - 1)) - 1

    def contraction(self, n: int) -> float | None:
        return _one_minus(_variance(row_size(n, self.bucket), self.levels))

    def scales(self, buckets: Array) -> Array:
        largest: Array = np.abs(buckets).max(axis=1)
        finite = np.isfinite(largest)
        units = np.where((largest > 0) & finite, largest, 1)
        shares = buckets / units[:, None]  # whose squares neither overflow nor underflow
        squares = np.einsum("ij,ij->i", shares, shares, dtype=np.float64)
        with np.errstate(over="ignore"):
            norms = np.clip(units * np.sqrt(squares), largest, np.finfo(buckets.dtype).max)
        largest[finite] = norms[finite]
        return largest


@final
@dataclass(frozen=True)
class TernGrad(_Levels):
    """max|v| · sign(v) · b with b = 1 at the probability |v|/max|v|, else 0 (Wen et al., arXiv:1705.07878).

    2 bits an entry. Unbiased; E‖C(v) − v‖² = max|v| ‖v‖₁ − ‖v‖² ≤ ½(√d − 1)‖v‖² for a bucket of d entries.
    The paper's clipping of large gradients is left out: it is not unbiased.
    """

    bucket: int | None = 512
    unbiased = True
    bits = 2
    levels = 1

    def __post_init__(self) -> None:
        check_bucket(self.bucket)

    def contraction(self, n: int) -> float | None:
        return _one_minus((math.sqrt(row_size(n, self.bucket)) - 1) / 2)

    def scales(self, buckets: Array) -> Array:
        largest: Array = np.abs(buckets).max(axis=1)
        return largest


def _variance(size: int, levels: int) -> float:
    """QSGD's bound on E‖C(v) − v‖²/‖v‖² (lemma 3.1)."""
    return min(size / levels**2, math.sqrt(size) / levels)


def _one_minus(variance: float) -> float | None:
    return 1.0 - variance if variance < 1.0 else None
