"""Policies for buffers, a model's state that is not trained, such as BatchNorm's running statistics"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

from d5ray.checks import KnownKeywords
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.training.arrays import bits, copy_of, zeros_like


class BufferPolicy(KnownKeywords, ABC):
    """A policy for statistics that come from an agent's own samples, and so differ between agents."""

    @abstractmethod
    def settle(self, communication: Communicator, buffers: Any, counters: Iterable[Any]) -> None:
        """Set the state for an evaluation. All agents call it, before an evaluation and at the end.

        buffers: the executor's flat array (m,) of a floating-point type; m may be 0. counters: its arrays
        of integers and booleans, such as the number of batches in a running mean.
        """


@final
@dataclass(frozen=True)
class LocalBuffers(BufferPolicy):
    """Every agent keeps its own buffers, without communication: for agents whose models differ."""

    def settle(self, communication: Communicator, buffers: Any, counters: Iterable[Any]) -> None:
        pass


@final
@dataclass(frozen=True)
class SynchronizedBuffers(BufferPolicy):
    """The mean of the statistics on all agents; counters are rank 0's, which has every batch.

    Buffers that are bitwise equal on all agents, such as a mask or a table, stay unchanged. A mean of running
    means is the running mean over all samples if the agents' batches have equal size. A mean of running
    variances lacks the variance of the agents' means around their common mean.
    """

    def settle(self, communication: Communicator, buffers: Any, counters: Iterable[Any]) -> None:
        if len(buffers) and communication.size > 1:
            _average(communication, buffers)
        for counter in counters:
            communication.broadcast(counter, root=0)


def _average(communication: Communicator, values: Any) -> None:
    """values (m,) ← their mean over the agents, but where they agree in all bits."""
    first = copy_of(values)
    communication.broadcast(first, root=0)
    differ = zeros_like(values)
    differ[bits(first) != bits(values)] = 1
    communication.allreduce(differ, "max")
    if not bool(differ.any()):
        return
    same = differ == 0
    own = copy_of(values[same])
    values[same] = 0  # which overflows nowhere
    communication.allreduce(values, "mean")
    values[same] = own


@final
@dataclass(frozen=True)
class FromRankZero(BufferPolicy):
    """Rank 0's buffers on all agents, as under `DistributedDataParallel`."""

    def settle(self, communication: Communicator, buffers: Any, counters: Iterable[Any]) -> None:
        if len(buffers):
            communication.broadcast(buffers, root=0)
        for counter in counters:
            communication.broadcast(counter, root=0)
