"""Reductions of the agents' compressed vectors to their mean: gathered, by parts, or on the way"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from d5ray.checks import KnownKeywords, check_kind
from d5ray.distributed.communicators.communicator import Communicator, Message
from d5ray.distributed.compression.compressor import Array, Compressor, LinearCompressor, Quantizer
from d5ray.errors import ConfigurationError
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.training.optimizers.optimizer import State


@dataclass(frozen=True)
class RandomSources:
    """The sources of random choices: this agent's own generator, and one that is alike on all agents."""

    own: np.random.Generator
    shared: np.random.Generator


class Reduced(NamedTuple):
    """The result of a reduction: the mean, alike on all agents, and the part of this agent's vector in it."""

    mean: Array  # (n,)
    sent: Array  # (n,)


class Reduction(KnownKeywords, ABC):
    """The mean of all agents' vectors (n,) from fewer bytes, as frozen data; what it remembers is a state."""

    @property
    @abstractmethod
    def faithful(self) -> bool:
        """True if nothing is lost over the steps: unbiased, with error feedback, or merely rounded."""

    @abstractmethod
    def bounded_residual(self, n: int) -> bool:
        """True if error feedback makes up for what the reduction loses."""

    @abstractmethod
    def check(self, elements: int) -> None:
        """Raise `ConfigurationError` if this does not fit a gradient of that many entries."""

    def state(self, slots: Sequence[Slot], dtype: Any) -> State:
        """The state before the first step, which the reduction changes: empty by default.

        slots: the tensors of the gradient. Raises `ConfigurationError` if they do not fit.
        """
        return {}

    @abstractmethod
    def mean(self, vector: Array, communication: Communicator, draws: RandomSources, state: State) -> Reduced:
        """The mean over the agents, all of whom call this with vectors of the same size and type.

        vector (n,), float32 or float64, is not changed; the arrays that are given back are the caller's.
        """


class Compressed(Reduction):
    """A reduction of compressed vectors."""

    compressor: Any

    @final
    @property
    def faithful(self) -> bool:
        return bool(self.compressor.unbiased or self.compressor.rounding)

    @final
    def bounded_residual(self, n: int) -> bool:
        return bool(self.compressor.bounded_residual(n))

    @final
    def check(self, elements: int) -> None:
        self.compressor.check(elements)


@final
@dataclass(frozen=True)
class AllGather(Compressed):
    """Every agent's message to every other, (P−1) messages' bytes an agent; each decompresses and adds all P.

    For every compressor. The sum is in the order of the ranks, so all agents get the same bits.
    """

    compressor: Compressor

    def __post_init__(self) -> None:
        check_kind("AllGather's compressor", self.compressor, Compressor, "a compressor such as QSGD(bits=4)")

    def mean(self, vector: Array, communication: Communicator, draws: RandomSources, state: State) -> Reduced:
        n, dtype, compressor = len(vector), vector.dtype, self.compressor
        message = compressor.compress(vector, draws.own)
        total, own = np.zeros_like(vector), vector
        messages = communication.all_gather_messages(message, compressor.message_bytes(n, dtype))
        for rank, other in enumerate(messages):
            received = compressor.decompress(other, n, dtype)
            total += received
            if rank == communication.rank:
                own = received
        total /= communication.size
        return Reduced(total, compressor.sent(vector, message, own))


@final
@dataclass(frozen=True)
class ScatterReduce(Compressed):
    """Every agent gets its part of all vectors, and sends the mean of it to all: compressed both times.

    For quantizers: 2(P−1)/P messages' bytes an agent, however many agents there are (the ScatterReduce of
    Bagua, Gan et al., arXiv:2107.01499). All agents get the same bits. What the second compression loses
    counts as not sent by the agent whose part it is, so that error feedback makes up for both, as in
    DoubleSqueeze (Tang et al., arXiv:1905.05957). Two agents gather instead: as many bytes, compressed once.
    """

    compressor: Quantizer

    def __post_init__(self) -> None:
        if not isinstance(self.compressor, Quantizer):
            raise ConfigurationError(
                f"ScatterReduce compresses parts of vectors, which {self.compressor!r} cannot: take a "
                f"quantizer such as Float16 or QSGD, or AllGather({self.compressor!r})"
            )

    def mean(self, vector: Array, communication: Communicator, draws: RandomSources, state: State) -> Reduced:
        if communication.size <= 2:
            return AllGather(self.compressor).mean(vector, communication, draws, state)
        compressor, rank, dtype = self.compressor, communication.rank, vector.dtype
        parts = communication.bounds(len(vector))
        counts = [part.stop - part.start for part in parts]
        lengths = {member: compressor.message_bytes(n, dtype) for member, n in enumerate(counts)}
        own, others = parts[rank], [other for other in lengths if other != rank]

        messages = [compressor.compress(vector[part], draws.own) for part in parts]
        sent = self._joined(messages, counts, dtype)
        given = {other: messages[other] for other in others}
        pieces = communication.exchange_messages(given, others, lengths[rank]) | {rank: messages[rank]}
        total = np.zeros(counts[rank], dtype)
        for member in range(communication.size):
            total += compressor.decompress(pieces[member], counts[rank], dtype)
        total /= communication.size

        message = compressor.compress(total, draws.own)
        mean = self._joined(communication.all_gather_messages(message, lengths), counts, dtype)
        with np.errstate(invalid="ignore"):  # infinities are for the caller to judge
            sent[own] -= communication.size * (total - mean[own])
        return Reduced(mean, sent)

    def _joined(self, messages: Sequence[Message], counts: Sequence[int], dtype: Any) -> Array:
        """The vector whose parts these are."""
        parts = zip(messages, counts, strict=True)
        return np.concatenate([self.compressor.decompress(message, n, dtype) for message, n in parts])


@final
@dataclass(frozen=True)
class Allreduce(Compressed):
    """The messages of a linear compressor are added on the way: an allreduce of the entries it keeps.

    All agents keep the same entries, drawn from the shared generator, so that no index travels.
    """

    compressor: LinearCompressor

    def __post_init__(self) -> None:
        if not isinstance(self.compressor, LinearCompressor):
            raise ConfigurationError(
                f"Allreduce adds messages on the way, but those of {self.compressor!r} cannot be added: take "
                f"a linear compressor such as RandomK, or AllGather({self.compressor!r})"
            )

    def mean(self, vector: Array, communication: Communicator, draws: RandomSources, state: State) -> Reduced:
        part = self.compressor.part(len(vector), draws.shared)
        values = self.compressor.values(vector, part)
        mean, sent = np.zeros_like(vector), np.zeros_like(vector)
        sent[part] = values
        communication.allreduce(values, "mean")
        mean[part] = values
        return Reduced(mean, sent)


def reduction_of(compression: object) -> Reduction:
    """A reduction as it is; a compressor's messages by all-gather, or by parts if it merely rounds."""
    if isinstance(compression, Reduction):
        return compression
    if isinstance(compression, Quantizer) and compression.rounding:
        return ScatterReduce(compression)
    if isinstance(compression, Compressor):
        return AllGather(compression)
    raise ConfigurationError(
        f"the compression is {compression!r} ({type(compression).__name__}): it must be a compressor such as "
        "QSGD(bits=4), or a reduction such as SparseAllreduce(TopK(0.01))"
    )


def elements_of(slots: Sequence[Slot]) -> int:
    """The number of entries of a gradient with these tensors."""
    return sum(slot.size for slot in slots)
