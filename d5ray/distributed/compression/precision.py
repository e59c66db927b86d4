"""Identity, Float16, BFloat16: every entry as it is, or rounded to 16 bits"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.communicator import Message
from d5ray.distributed.compression.compressor import Array, LinearCompressor, Quantizer

EXPONENT_BYTES = 4


@final
@dataclass(frozen=True)
class Identity(LinearCompressor):
    """C(v) = v: nothing is lost and nothing saved."""

    linear = True
    unbiased = True

    def contraction(self, n: int) -> float:
        return 1.0

    def compress(self, vector: Array, rng: np.random.Generator) -> Message:
        return vector.copy().view(np.uint8)

    def decompress(self, message: Message, n: int, dtype: Any) -> Array:
        vector: Array = message.view(dtype)
        return vector.copy()

    def message_bytes(self, n: int, dtype: Any) -> int:
        return n * int(np.dtype(dtype).itemsize)

    def part(self, n: int, rng: np.random.Generator) -> slice:
        return slice(None)

    def values(self, vector: Array, part: Any) -> Array:
        return vector.copy()


class _SixteenBits(Quantizer):
    """Rounds to the nearest number of 16 bits, to the even one of two, after a scaling by a power of two.

    The scaling brings the largest finite magnitude to [2^14, 2^15), so that nothing overflows and small
    vectors do not vanish; being exact, it changes no result else. Infinity and NaN stay what they are.
    A message is the exponent (int32) and 16 bits an entry.
    """

    rounding = True
    _precision: int  # bits of the significand, the leading one included

    @abstractmethod
    def _round(self, scaled: Array) -> Array:
        """(n,) in 16 bits."""

    @abstractmethod
    def _value(self, halves: Message, dtype: Any) -> Array:
        """The numbers (n,) that these bytes are, in this type."""

    @final
    def contraction(self, n: int) -> float | None:
        delta = 1.0 - 4.0**-self._precision - n * 2.0**-78  # what is 2^-39 of the largest may vanish
        return delta if delta > 0.0 else None

    @final
    def compress(self, vector: Array, rng: np.random.Generator) -> Message:
        exponent = np.array([_exponent(vector) - 15], dtype="<i4")
        rounded = self._round(np.ldexp(vector, -exponent[0]))
        return np.concatenate([exponent.view(np.uint8), rounded.view(np.uint8)])

    @final
    def decompress(self, message: Message, n: int, dtype: Any) -> Array:
        exponent = message[:EXPONENT_BYTES].view("<i4")[0]
        values = self._value(message[EXPONENT_BYTES:], dtype)
        largest = np.finfo(dtype).max
        with np.errstate(over="ignore"):
            restored: Array = np.ldexp(values, exponent)
        overflown = np.isinf(restored) & np.isfinite(values)
        if overflown.any():  # the largest numbers of the vector's own type, rounded up
            restored[overflown] = np.copysign(largest, values[overflown])
        return restored

    @final
    def message_bytes(self, n: int, dtype: Any) -> int:
        return EXPONENT_BYTES + 2 * n


@final
@dataclass(frozen=True)
class Float16(_SixteenBits):
    """IEEE 754 binary16: 11 bits of significand, a relative error of at most 2^-11."""

    _precision = 11

    def _round(self, scaled: Array) -> Array:
        return scaled.astype("<f2")

    def _value(self, halves: Message, dtype: Any) -> Array:
        return halves.view("<f2").astype(dtype)


@final
@dataclass(frozen=True)
class BFloat16(_SixteenBits):
    """The upper half of binary32: 8 bits of significand, a relative error of at most 2^-8."""

    _precision = 8

    def _round(self, scaled: Array) -> Array:
        unsigned: Any
        unsigned, dropped = (np.uint32, 16) if scaled.dtype == np.float32 else (np.uint64, 45)
        bits = scaled.view(unsigned)
        odd = (bits >> unsigned(dropped)) & unsigned(1)
        up = bits + unsigned(2 ** (dropped - 1) - 1) + odd
        kept = (up >> unsigned(dropped)) << unsigned(dropped)
        rounded = np.where(np.isnan(scaled), np.nan, kept.view(scaled.dtype)).astype("<f4")
        return (rounded.view("<u4") >> np.uint32(16)).astype("<u2")

    def _value(self, halves: Message, dtype: Any) -> Array:
        return (halves.view("<u2").astype("<u4") << np.uint32(16)).view("<f4").astype(dtype)


def _exponent(vector: Array) -> int:
    """e with 2^(e−1) ≤ the largest finite magnitude < 2^e; 0 where there is none."""
    magnitude = np.abs(vector)
    largest = magnitude.max(initial=0.0)
    if not np.isfinite(largest):
        largest = magnitude.max(initial=0.0, where=np.isfinite(magnitude))
    return int(np.frexp(largest)[1])
