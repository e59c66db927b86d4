"""Rows that are not zero: what a batch touched of an embedding, as it is"""

from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.checks import check_count
from d5ray.distributed.communicators.communicator import Message
from d5ray.distributed.compression.compressor import Array, Indices
from d5ray.distributed.compression.sparsifier import Sparsifier, places_bytes, read_places, write_places

COUNT_BYTES = 8


@final
@dataclass(frozen=True)
class NonZeroRows(Sparsifier):
    """The rows of `width` entries in which one is not zero; the others are zero anyway, so C(v) = v.

    For gradients of embeddings, of whose rows a batch touches few: width is what a row has. Rows are counted
    from the beginning of what is compressed; where a shard's slice begins in the middle of an embedding's
    row, that row lies in two of them, and both travel. A message is the number of rows, their places, in as
    few bits as that takes, and their values. Nothing is lost: the contraction's δ is 1.
    """

    width: int = 1
    linear = True
    unbiased = True

    def __post_init__(self) -> None:
        check_count("width", self.width)

    def contraction(self, n: int) -> float:
        return 1.0

    def choose(self, vector: Array, rng: np.random.Generator) -> tuple[Indices, Message]:
        n, width = len(vector), self.width
        begins = np.arange(0, n, width)
        rows = np.flatnonzero(np.logical_or.reduceat(vector != 0, begins)) if n else begins
        count = np.array([len(rows)], dtype="<i8").view(np.uint8)
        return self._entries(rows, n), np.concatenate([count, write_places(rows, len(begins), len(begins))])

    def places(self, message: Message, n: int) -> tuple[Indices, int]:
        of = -(-n // self.width)
        count = int(message[:COUNT_BYTES].view("<i8")[0])
        rows = read_places(message[COUNT_BYTES:], of, of, np.zeros(count, dtype=np.int64))
        return self._entries(rows, n), COUNT_BYTES + places_bytes(count, of, of)

    def count(self, n: int) -> None:
        return None

    def head_bytes(self, n: int) -> None:
        return None

    def _entries(self, rows: Indices, n: int) -> Indices:
        """The entries (count,) of these rows; the last row of a vector (n,) may be shorter."""
        entries: Indices = (rows[:, None] * self.width + np.arange(min(self.width, n))).reshape(-1)
        return entries[entries < n]
