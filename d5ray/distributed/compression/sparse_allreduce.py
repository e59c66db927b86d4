"""SparCML: the mean of sparse vectors, whose pairs of index and value are added on the way"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.checks import KnownKeywords
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.compression.compressor import Array
from d5ray.distributed.compression.reductions import Compressed, RandomSources, Reduced
from d5ray.distributed.compression.sparse_stream import LARGEST, Stream
from d5ray.distributed.compression.sparsifier import Sparsifier
from d5ray.errors import ConfigurationError
from d5ray.training.optimizers.optimizer import State


class ExchangeSchedule(KnownKeywords, ABC):
    """The schedule of streams: who sends which one to whom until everyone has the sum."""

    @abstractmethod
    def total(self, own: Stream, communication: Communicator) -> Array:
        """The sum (n,) of all agents' streams; the same bits on all of them."""


@final
@dataclass(frozen=True)
class RecursiveDoubling(ExchangeSchedule):
    """log₂P rounds, in each of which pairs swap their sums: for few entries   (SSAR_Recursive_double).

    With k pairs of β bytes an agent, each sends from log₂P · kβ (all have the same indices) to (P−1)kβ
    (none in common). Of P agents that are no power of two, the first 2(P − 2^⌊log₂P⌋) fold in pairs before,
    and unfold afterwards.
    """

    def total(self, own: Stream, communication: Communicator) -> Array:
        rank, size = communication.rank, communication.size
        core = 1 << (size.bit_length() - 1)  # agents that take part in the rounds
        folded = size - core  # pairs (0, 1), (2, 3), … of which the second takes part
        if rank < 2 * folded and rank % 2 == 0:
            communication.exchange_messages({rank + 1: own.message()}, [])
            result = communication.exchange_messages({}, [rank + 1])[rank + 1]
            return Stream.read(result, own.n, own.values.dtype).dense()
        if rank < 2 * folded:
            other = communication.exchange_messages({}, [rank - 1])[rank - 1]
            own = Stream.read(other, own.n, own.values.dtype) + own
        place = rank // 2 if rank < 2 * folded else rank - folded
        for bit in range(core.bit_length() - 1):
            partner = place ^ (1 << bit)
            peer = 2 * partner + 1 if partner < folded else partner + folded
            received = communication.exchange_messages({peer: own.message()}, [peer])[peer]
            other_sum = Stream.read(received, own.n, own.values.dtype)
            own = own + other_sum if place < partner else other_sum + own
        if rank < 2 * folded:
            communication.exchange_messages({rank - 1: own.message()}, [])
        return own.dense()


@final
@dataclass(frozen=True)
class SplitAllGather(ExchangeSchedule):
    """Each agent adds up one part of the index range, then all gather the parts: for many entries.

    (SSAR_Split_allgather and, where a part fills up and is sent dense, DSAR_Split_allgather.)
    On average an agent sends from 2(P−1)/P · kβ to Pkβ bytes of pairs.
    """

    def total(self, own: Stream, communication: Communicator) -> Array:
        rank, dtype = communication.rank, own.values.dtype
        parts = communication.bounds(own.n)
        others = [other for other in range(communication.size) if other != rank]
        pieces = own.split(parts)
        received = communication.exchange_messages({o: pieces[o].message() for o in others}, others)
        sums = np.zeros(pieces[rank].n, dtype=dtype)
        for member in range(communication.size):
            piece = pieces[rank] if member == rank else Stream.read(received[member], len(sums), dtype)
            piece.add_to(sums)
        filled = np.flatnonzero(sums)
        gathered = communication.all_gather_messages(Stream.of(len(sums), filled, sums[filled]).message())
        result = np.zeros(own.n, dtype=dtype)
        for part, message in zip(parts, gathered, strict=True):
            Stream.read(message, part.stop - part.start, dtype).add_to(result[part])
        return result


@final
@dataclass(frozen=True)
class SparseAllreduce(Compressed):
    """The mean of what the agents' sparsifiers keep, equal to that of the vectors with zeros between.

    (Renggli et al., SparCML, arXiv:1802.08021.) Sums are sent as pairs of a 4-byte index and a value, and
    dense from the fill threshold on, where that is shorter.
    """

    compressor: Sparsifier
    schedule: ExchangeSchedule = RecursiveDoubling()

    def __post_init__(self) -> None:
        if not isinstance(self.compressor, Sparsifier):
            raise ConfigurationError(
                f"SparseAllreduce adds pairs of index and value, but {self.compressor!r} gives none: take a "
                f"sparsifier such as TopK(16, bucket=512), or AllGather({self.compressor!r})"
            )
        if not isinstance(self.schedule, ExchangeSchedule):
            raise ConfigurationError(
                f"the schedule is {self.schedule!r}: it must be RecursiveDoubling() or SplitAllGather()"
            )

    def mean(self, vector: Array, communication: Communicator, draws: RandomSources, state: State) -> Reduced:
        if len(vector) > LARGEST:
            raise ConfigurationError(f"a vector of {len(vector)} entries: SparseAllreduce takes {LARGEST}")
        indices, _ = self.compressor.choose(vector, draws.own)
        values = self.compressor.values(vector, indices)
        sent = np.zeros_like(vector)
        sent[indices] = values
        mean = self.schedule.total(Stream.of(len(vector), indices, values), communication)
        mean /= communication.size
        return Reduced(mean, sent)
