"""SparCML's stream: a vector as index-value pairs, or dense from where those would be longer"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.communicator import Message
from d5ray.distributed.compression.compressor import Array

INDEX_BYTES = 4
LARGEST = 2 ** (8 * INDEX_BYTES)  # entries that an index can tell apart


def pairs_are_longer(count: int, n: int, item_bytes: int) -> bool:
    """The fill threshold: count ≥ δ = n·isize/(c + isize)   (arXiv:1802.08021).

    >>> pairs_are_longer(255, 512, 4), pairs_are_longer(256, 512, 4)
    (False, True)
    """
    return count * (INDEX_BYTES + item_bytes) >= n * item_bytes


@final
@dataclass(frozen=True, eq=False)
class Stream:
    """A vector (n,). A message's length tells whether it is dense, since pairs are never as long."""

    n: int
    indices: np.ndarray[Any, np.dtype[np.uint32]] | None  # (count,), ascending; None: dense
    values: Array  # (count,), or (n,)

    @staticmethod
    def of(n: int, indices: np.ndarray[Any, Any], values: Array) -> "Stream":
        """A stream of entries (count,) in ascending order and their values."""
        stream = Stream(n, indices.astype(np.uint32), values)
        longer = pairs_are_longer(len(indices), n, values.itemsize)
        return Stream(n, None, stream.dense()) if longer else stream

    @staticmethod
    def read(message: Message, n: int, dtype: Any) -> "Stream":
        """The stream in what `message` gives."""
        item_bytes = np.dtype(dtype).itemsize
        if len(message) == n * item_bytes:
            return Stream(n, None, message.view(dtype))
        head = INDEX_BYTES * (len(message) // (INDEX_BYTES + item_bytes))
        return Stream(n, message[:head].view("<u4"), message[head:].view(dtype))

    def message(self) -> Message:
        """The stream as bytes: all indices, then all values; or the values alone."""
        values = np.ascontiguousarray(self.values).view(np.uint8)
        if self.indices is None:
            return values
        return np.concatenate([self.indices.astype("<u4").view(np.uint8), values])

    def dense(self) -> Array:
        """The vector (n,), an array of its own."""
        if self.indices is None:
            return self.values.copy()
        vector = np.zeros(self.n, dtype=self.values.dtype)
        vector[self.indices] = self.values
        return vector

    def add_to(self, total: Array) -> None:
        """total (n,) += the vector."""
        if self.indices is None:
            total += self.values
        else:
            total[self.indices] += self.values

    def split(self, parts: tuple[slice, ...]) -> "list[Stream]":
        """The pieces of the vector that lie in these parts, which follow one another."""
        if self.indices is None:
            return [Stream(part.stop - part.start, None, self.values[part]) for part in parts]
        cuts = np.searchsorted(self.indices, [part.start for part in parts] + [self.n])
        return [
            Stream.of(
                part.stop - part.start, self.indices[low:high] - np.uint32(part.start), self.values[low:high]
            )
            for part, low, high in zip(parts, cuts[:-1], cuts[1:], strict=True)
        ]

    def __add__(self, other: "Stream") -> "Stream":
        """The sum; dense if one is, or if the pairs of both together might be longer."""
        if self.indices is None or other.indices is None:
            return self._dense_sum(other)
        count = len(self.indices) + len(other.indices)
        if pairs_are_longer(count, self.n, self.values.itemsize):
            return self._dense_sum(other)
        merged = np.sort(np.concatenate([self.indices, other.indices]), kind="stable")
        first = np.ones(len(merged), dtype=bool)
        first[1:] = merged[1:] != merged[:-1]
        union = merged[first]
        values = np.zeros(len(union), dtype=self.values.dtype)
        for one in (self, other):
            values[np.searchsorted(union, one.indices)] += one.values  # type: ignore[arg-type]
        return Stream(self.n, union, values)

    def _dense_sum(self, other: "Stream") -> "Stream":
        total = self.dense()
        other.add_to(total)
        return Stream(self.n, None, total)
