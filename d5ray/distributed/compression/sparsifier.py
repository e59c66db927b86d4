"""Compressors that keep some entries and drop the others: where they are, then what they are"""

from abc import abstractmethod
from typing import Any, final

import numpy as np

from d5ray.checks import LARGEST, shown
from d5ray.distributed.communicators.communicator import Message
from d5ray.distributed.compression.bit_packing import pack, packed_bytes, unpack
from d5ray.distributed.compression.compressor import Array, Compressor, Indices
from d5ray.errors import ConfigurationError


class Sparsifier(Compressor):
    """A message is a head, which tells the kept entries' places, and their values."""

    @abstractmethod
    def choose(self, vector: Array, rng: np.random.Generator) -> tuple[Indices, Message]:
        """The kept entries (count,), ascending, and the message's head."""

    @abstractmethod
    def places(self, message: Message, n: int) -> tuple[Indices, int]:
        """The kept entries (count,) of a message, and how many bytes its head has."""

    @abstractmethod
    def count(self, n: int) -> int | None:
        """The number of entries of a vector (n,) that are kept; None if the vector decides."""

    @abstractmethod
    def head_bytes(self, n: int) -> int | None:
        """The length of the head; None if the vector decides."""

    def gain(self, n: int) -> float:
        """The factor that the kept entries of n are multiplied with."""
        return 1.0

    @final
    def values(self, vector: Array, part: Any) -> Array:
        """C(v) at the kept entries; all NaN if v is not finite anywhere, also where it is dropped."""
        if not np.isfinite(vector).all():
            return np.full_like(vector[part], np.nan)
        kept: Array = vector[part]
        gain = self.gain(len(vector))
        if gain != 1.0:
            kept *= gain
        return kept

    @final
    def compress(self, vector: Array, rng: np.random.Generator) -> Message:
        indices, head = self.choose(vector, rng)
        return np.concatenate([head, self.values(vector, indices).view(np.uint8)])

    @final
    def decompress(self, message: Message, n: int, dtype: Any) -> Array:
        indices, head = self.places(message, n)
        vector: Array = np.zeros(n, dtype=dtype)
        vector[indices] = message[head:].view(dtype)
        return vector

    @final
    def message_bytes(self, n: int, dtype: Any) -> int | None:
        head, count = self.head_bytes(n), self.count(n)
        return None if head is None or count is None else head + count * int(np.dtype(dtype).itemsize)


# -- how many ------------------------------------------------------------------------------------------------


def check_k(k: object, room: int | None) -> None:
    """Raise `ConfigurationError` unless k is an integer from 1 to `room`, or a fraction below 1."""
    whole = isinstance(k, (int, np.integer)) and not isinstance(k, bool) and 1 <= k <= LARGEST
    fraction = isinstance(k, (float, np.floating)) and 0.0 < k < 1.0
    if not whole and not fraction:
        raise ConfigurationError(
            f"k is {shown(k)}: it must be an integer from 1 up, or a fraction between 0 and 1"
        )
    if whole and room is not None and k > room:  # type: ignore[operator]
        raise ConfigurationError(
            f"k is {k} of {room} entries: keep {room} at most, or a fraction such as 0.01"
        )


def count_of(k: float, n: int) -> int:
    """The number of n entries that k means: k, but not more than there are; or a fraction, at least one.

    >>> count_of(16, 512), count_of(16, 10), count_of(0.01, 512)
    (16, 10, 5)
    """
    return min(int(k), n) if isinstance(k, (int, np.integer)) else max(1, round(k * n))


# -- where ---------------------------------------------------------------------------------------------------


def write_places(indices: Indices, n: int, size: int) -> Message:
    """Kept entries (count,) within rows of `size`, in as few bits as a row needs; see `places_bytes`.

    >>> write_places(np.array([3, 515]), n=1024, size=512).tolist()
    [3, 6, 0]
    """
    width = place_bits(size)
    if _marks_are_shorter(len(indices), n, width):
        marks = np.zeros(n, dtype=np.uint8)
        marks[indices] = 1
        return np.packbits(marks, bitorder="little")
    return pack(indices % size, width)


def read_places(message: Message, n: int, size: int, begins: Indices) -> Indices:
    """The kept entries (count,) that `write_places` wrote; begins (count,): where the row of each begins."""
    width = place_bits(size)
    if _marks_are_shorter(len(begins), n, width):
        return np.flatnonzero(np.unpackbits(message[: packed_bytes(n, 1)], count=n, bitorder="little"))
    return begins + unpack(message, len(begins), width)


def places_bytes(count: int, n: int, size: int) -> int:
    """⌈log2 size⌉ bits a kept entry, or one bit an entry of the vector where that is less.

    >>> places_bytes(32, 1024, 512), places_bytes(512, 1024, 512)
    (36, 128)
    """
    return packed_bytes(min(count * place_bits(size), n), 1)


def place_bits(size: int) -> int:
    """The bits that tell `size` entries apart."""
    return (size - 1).bit_length()


def _marks_are_shorter(count: int, n: int, width: int) -> bool:
    return n < count * width
