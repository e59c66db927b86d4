"""Threshold: every entry whose magnitude exceeds a number"""

from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.checks import check_number
from d5ray.distributed.communicators.communicator import Message
from d5ray.distributed.compression.compressor import Array, Indices
from d5ray.distributed.compression.sparsifier import Sparsifier, places_bytes, read_places, write_places

COUNT_BYTES = 8


@final
@dataclass(frozen=True)
class Threshold(Sparsifier):
    """The entries with |v| > t, whatever their sign; as many as there are (Strom, Interspeech 2015).

    No contraction, since all entries may be small; but ‖v − C(v)‖² ≤ n t², which error feedback needs no more
    than (absolute compressors: Sahu et al., arXiv:2108.00951). t has the unit of the compressed vector: in
    `CompressedSGD` that of the parameters. A message is the count, the places, and the values.
    """

    value: float
    linear = False
    unbiased = False

    def __post_init__(self) -> None:
        check_number("the threshold's value", self.value, low=0.0, low_included=True)

    def contraction(self, n: int) -> float | None:
        return None

    def bounded_residual(self, n: int) -> bool:
        return True

    def choose(self, vector: Array, rng: np.random.Generator) -> tuple[Indices, Message]:
        indices = np.flatnonzero(~(np.abs(vector) <= self.value))  # NaN is kept
        count = np.array([len(indices)], dtype="<i8").view(np.uint8)
        return indices, np.concatenate([count, write_places(indices, len(vector), len(vector))])

    def places(self, message: Message, n: int) -> tuple[Indices, int]:
        count = int(message[:COUNT_BYTES].view("<i8")[0])
        indices = read_places(message[COUNT_BYTES:], n, n, np.zeros(count, dtype=np.int64))
        return indices, COUNT_BYTES + places_bytes(count, n, n)

    def count(self, n: int) -> None:
        return None

    def head_bytes(self, n: int) -> None:
        return None
