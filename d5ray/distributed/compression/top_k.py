"""Top-k: the entries of largest magnitude"""

from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.distributed.communicators.communicator import Message
from d5ray.distributed.compression.bit_packing import check_bucket, row_size
from d5ray.distributed.compression.compressor import Array, Indices
from d5ray.distributed.compression.sparsifier import (
    Sparsifier,
    check_k,
    count_of,
    places_bytes,
    read_places,
    write_places,
)


@final
@dataclass(frozen=True)
class TopK(Sparsifier):
    """The k entries of largest magnitude, of the vector or of each bucket of that many entries.

    k is an integer, or a fraction below 1 of them, rounded, at least one. SparCML's "top 16 of 512"
    (arXiv:1802.08021) is TopK(16, bucket=512). ‖v − C(v)‖² ≤ (1 − k/n)‖v‖² (Stich et al., arXiv:1809.07599).
    A message is the places, in as few bits as a bucket needs, and the values.
    """

    k: int | float
    bucket: int | None = None

    def __post_init__(self) -> None:
        check_bucket(self.bucket)
        check_k(self.k, self.bucket)

    def contraction(self, n: int) -> float:
        size = row_size(n, self.bucket)
        return min(count_of(self.k, length) / length for length in (size, n % size or size))

    def check(self, n: int) -> None:
        check_k(self.k, n)

    def choose(self, vector: Array, rng: np.random.Generator) -> tuple[Indices, Message]:
        n, size = len(vector), row_size(len(vector), self.bucket)
        magnitude = np.abs(vector)
        whole = n - n % size
        indices = _largest(magnitude[:whole].reshape(-1, size), count_of(self.k, size))
        if whole < n:
            rest = _largest(magnitude[whole:].reshape(1, -1), count_of(self.k, n - whole))
            indices = np.concatenate([indices, rest + whole])
        return indices, write_places(indices, n, size)

    def places(self, message: Message, n: int) -> tuple[Indices, int]:
        size = row_size(n, self.bucket)
        begins = np.repeat(np.arange(0, n, size), count_of(self.k, size))[: self.count(n)]
        return read_places(message, n, size, begins), places_bytes(len(begins), n, size)

    def count(self, n: int) -> int:
        size = row_size(n, self.bucket)
        rest = count_of(self.k, n % size) if n % size else 0
        return n // size * count_of(self.k, size) + rest

    def head_bytes(self, n: int) -> int:
        return places_bytes(self.count(n), n, row_size(n, self.bucket))


def _largest(rows: Array, count: int) -> Indices:
    """The places in the flat array of the `count` largest of each row, ascending; NaN is the largest."""
    size = rows.shape[1]
    if count < size:
        within = np.argpartition(rows, size - count, axis=1)[:, size - count :]
        within.sort(axis=1)
    else:
        within = np.broadcast_to(np.arange(size), rows.shape)
    places: Indices = (within + size * np.arange(len(rows))[:, None]).reshape(-1)
    return places
