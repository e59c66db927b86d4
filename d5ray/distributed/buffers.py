"""Policies for buffers, a model's state that no gradient trains, such as BatchNorm's running statistics"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.training.arrays import bits, copy_of, zeros_like


class BufferPolicy(ABC):
    """A policy: an agent's own samples made its statistics, and another agent's may differ."""

    @abstractmethod
    def settle(self, communication: Communicator, untrained: Any, counters: Iterable[Any]) -> None:
        """Make the state what is evaluated. All agents call it, before an evaluation and at the end.

        untrained: flat array (m,) of a floating type, of the executor; m may be 0. counters: its arrays of
        integers and booleans, such as how many batches a running mean has seen.
        """


@final
@dataclass(frozen=True)
class LocalBuffers(BufferPolicy):
    """Every agent keeps its own buffers: right where the agents' models differ, and nothing is exchanged."""

    def settle(self, communication: Communicator, untrained: Any, counters: Iterable[Any]) -> None:
        pass


@final
@dataclass(frozen=True)
class SynchronizedBuffers(BufferPolicy):
    """The mean of all agents' statistics for everyone; counters are rank 0's, which has every batch.

    What agrees on all agents to the last bit, such as a mask or a table, stays as it is. A mean of running
    means is the running mean of all samples where the agents' batches are of one size. A mean of running
    variances lacks the variance of the agents' means about their common one.
    """

    def settle(self, communication: Communicator, untrained: Any, counters: Iterable[Any]) -> None:
        if len(untrained) and communication.size > 1:
            _average(communication, untrained)
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
    """Buffers of rank 0 for everyone, as `DistributedDataParallel` does it."""

    def settle(self, communication: Communicator, untrained: Any, counters: Iterable[Any]) -> None:
        if len(untrained):
            communication.broadcast(untrained, root=0)
        for counter in counters:
            communication.broadcast(counter, root=0)
