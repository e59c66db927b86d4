"""The ranges of a flat gradient that are announced, in a fixed order, while a backward pass goes on."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import final

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.networks.executors.flat_buffers import Slot

Range = tuple[int, int]  # elements [begin, end) of the flat buffer
OnReady = Callable[[int, int], None]


@final
@dataclass(frozen=True)
class Buckets:
    """Buckets of parameter tensors that are announced together, in the order of announcement.

    The ranges follow one another from the end of the flat buffer to its beginning, since a backward pass
    reaches the last layers first (Li et al., PyTorch Distributed, arXiv:2006.15704, section 3.2.3).
    """

    slots: tuple[Slot, ...]
    ranges: tuple[Range, ...]
    of_slot: tuple[int, ...]  # for every slot the index of its range


def partition(slots: tuple[Slot, ...], element_bytes: int, bucket_bytes: int) -> Buckets:
    """Walk from the last slot to the first; a bucket is closed when it holds `bucket_bytes` or more.

    So only the last bucket can be smaller, and a tensor that is larger makes no bucket before it small.
    """
    check_count("bucket_bytes", bucket_bytes, of="bytes")
    ranges: list[Range] = []
    of_slot = [0] * len(slots)
    end = sum(slot.size for slot in slots)
    for index in reversed(range(len(slots))):
        begin = slots[index].offset
        of_slot[index] = len(ranges)
        if (end - begin) * element_bytes >= bucket_bytes or (begin == 0 and end > 0):
            ranges.append((begin, end))
            end = begin
    last = len(ranges) - 1  # tensors without elements at the beginning of the buffer belong to it
    return Buckets(slots, tuple(ranges), tuple(min(bucket, last) for bucket in of_slot))


@final
class Announcer:
    """The announcements of one backward pass: on_ready(begin, end) once for every bucket, in their order.

    A bucket is announced when the gradients of all its tensors have arrived and every bucket before it was
    announced. So the order is the same on every agent, whatever the order in which gradients arrive.
    `nanoseconds` are those spent in on_ready.
    """

    def __init__(self, buckets: Buckets, on_ready: OnReady) -> None:
        self._buckets = buckets
        self._on_ready = on_ready
        self._arrived = [False] * len(buckets.slots)
        self._missing = [0] * len(buckets.ranges)
        for bucket in buckets.of_slot:
            self._missing[bucket] += 1
        self._announced = 0
        self.nanoseconds = 0

    def arrived(self, slot: int) -> None:
        """Take notice that this slot's gradient is complete. Raises if it was announced already."""
        bucket = self._buckets.of_slot[slot]
        if self._arrived[slot]:
            if bucket < self._announced:
                raise ConfigurationError(
                    f"the parameter {self._buckets.slots[slot].name!r} got another gradient after the first "
                    "was handed out as complete: let the model's backward pass reach every parameter once "
                    "(with torch.utils.checkpoint: use_reentrant=False), or choose a distributed optimizer "
                    "that exchanges after the backward pass"
                )
            return
        self._arrived[slot] = True
        self._missing[bucket] -= 1
        while self._announced < len(self._missing) and not self._missing[self._announced]:
            self._announce()

    def finish(self) -> None:
        """The backward pass is over: announce the rest, whose missing gradients are zero."""
        while self._announced < len(self._missing):
            self._announce()

    def _announce(self) -> None:
        begin, end = self._buckets.ranges[self._announced]
        self._announced += 1
        since = perf_counter_ns()
        self._on_ready(begin, end)
        self.nanoseconds += perf_counter_ns() - since
