"""Sparsifiers of as many entries as the vector says: those beyond a number, or rows that are not zero"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.checks import check_count, check_number
from d5ray.distributed.communicators.communicator import Message
from d5ray.distributed.compression.compressor import Array, Indices
from d5ray.distributed.compression.sparsifier import Sparsifier, places_bytes, read_places, write_places

COUNT_BYTES = 8


class _Counted(Sparsifier):
    """Keeps rows of `width` entries; a message is the number of rows, their places, and their values.

    The places take as few bits as that needs.
    """

    width: int

    @abstractmethod
    def kept(self, vector: Array) -> Indices:
        """The rows that are kept, ascending."""

    @final
    def choose(self, vector: Array, rng: np.random.Generator) -> tuple[Indices, Message]:
        rows, of = self.kept(vector), self._rows(len(vector))
        count = np.array([len(rows)], dtype="<i8").view(np.uint8)
        return self._entries(rows, len(vector)), np.concatenate([count, write_places(rows, of, of)])

    @final
    def places(self, message: Message, n: int) -> tuple[Indices, int]:
        of, count = self._rows(n), int(message[:COUNT_BYTES].view("<i8")[0])
        rows = read_places(message[COUNT_BYTES:], of, of, np.zeros(count, dtype=np.int64))
        return self._entries(rows, n), COUNT_BYTES + places_bytes(count, of, of)

    @final
    def count(self, n: int) -> None:
        return None

    @final
    def head_bytes(self, n: int) -> None:
        return None

    def _rows(self, n: int) -> int:
        return -(-n // self.width)

    def _entries(self, rows: Indices, n: int) -> Indices:
        """The entries (count,) of these rows; the last row of a vector (n,) may be shorter."""
        if self.width == 1:
            return rows
        entries: Indices = (rows[:, None] * self.width + np.arange(min(self.width, n))).reshape(-1)
        return entries[entries < n]


@final
@dataclass(frozen=True)
class Threshold(_Counted):
    """The entries with |v| > t, whatever their sign; as many as there are (Strom, Interspeech 2015).

    No contraction, since all entries may be small; but ‖v − C(v)‖² ≤ n t², which error feedback needs no more
    than (absolute compressors: Sahu et al., arXiv:2108.00951). t has the unit of the compressed vector: in
    `CompressedSGD` that of the parameters. A message is the count, the places, and the values.
    """

    value: float
    width = 1

    def __post_init__(self) -> None:
        check_number("the threshold's value", self.value, low=0.0, low_included=True)

    def contraction(self, n: int) -> float | None:
        return None

    def bounded_residual(self, n: int) -> bool:
        return True

    def kept(self, vector: Array) -> Indices:
        return np.flatnonzero(~(np.abs(vector) <= self.value))  # NaN is kept


@final
@dataclass(frozen=True)
class NonZeroRows(_Counted):
    """The rows of `width` entries in which one is not zero; the others are zero anyway, so C(v) = v.

    For gradients of embeddings, of whose rows a batch touches few: width is what a row has. Rows are counted
    from the beginning of what is compressed; where a shard's slice begins in the middle of an embedding's
    row, that row lies in two of them, and both travel. Nothing is lost: the contraction's δ is 1.
    """

    width: int = 1
    linear = True
    unbiased = True

    def __post_init__(self) -> None:
        check_count("width", self.width)

    def contraction(self, n: int) -> float:
        return 1.0

    def kept(self, vector: Array) -> Indices:
        begins = np.arange(0, len(vector), self.width)
        return np.flatnonzero(np.logical_or.reduceat(vector != 0, begins)) if len(vector) else begins
