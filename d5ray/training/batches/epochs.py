"""Epochs of a run: its samples cut into steps, by a batch size, or by one that changes"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.training.schedules import Schedule

BatchSize = int | Schedule


@final
@dataclass(frozen=True)
class Epochs:
    """Every step of an epoch takes the next agents × batch_size samples, its last one what remains.

    batch_size: of an agent; a schedule is rounded to whole samples, and counts the run's steps or epochs.
    """

    samples: int
    agents: int
    batch_size: BatchSize

    @classmethod
    def even(cls, steps: int) -> "Epochs":
        """Epochs of that many steps each."""
        return cls(steps, 1, 1)

    def begin(self, epoch: int) -> int:
        """The first step of an epoch, both from 0."""
        if not isinstance(self.batch_size, Schedule):
            return epoch * self._length(0, 0)
        begins = self._begins
        while len(begins) <= epoch:
            begins.append(begins[-1] + self._length(len(begins) - 1, begins[-1]))
        return begins[epoch]

    def steps(self, epoch: int) -> int:
        """The number of steps in an epoch."""
        return self.begin(epoch + 1) - self.begin(epoch)

    def position(self, step: int) -> tuple[int, int]:
        """The epoch of a step, and how many of the epoch's steps come before it."""
        if not isinstance(self.batch_size, Schedule):
            return divmod(step, self._length(0, 0))
        while self._begins[-1] <= step:
            self.begin(len(self._begins))
        epoch = bisect_right(self._begins, step) - 1
        return epoch, step - self._begins[epoch]

    def after(self, step: int, epochs: int) -> int:
        """The step at which that many epochs from this step on have passed."""
        epoch, done = self.position(step)
        return self.begin(epoch + epochs) + min(done, self.steps(epoch + epochs))

    def cuts(self, epoch: int) -> Iterator[tuple[int, int]]:
        """The steps of an epoch: where the samples of each begin in the epoch's order, and their number."""
        return self._cuts(epoch, self.begin(epoch))

    def _cuts(self, epoch: int, step: int) -> Iterator[tuple[int, int]]:
        start = 0
        while start < self.samples:
            taken = min(self.agents * size_at(self.batch_size, epoch, step), self.samples - start)
            yield start, taken
            start += taken
            step += 1

    def _length(self, epoch: int, begin: int) -> int:
        """The steps of an epoch that begins at this step."""
        if isinstance(self.batch_size, Schedule) and self.batch_size.unit == "step":
            return sum(1 for _ in self._cuts(epoch, begin))
        return -(-self.samples // (self.agents * size_at(self.batch_size, epoch, begin)))

    @cached_property
    def _begins(self) -> list[int]:
        """The first steps of the epochs so far asked for."""
        return [0]


def check_batch_size(batch_size: object) -> None:
    """Raise `ConfigurationError` unless it is an integer, or a schedule that begins with at least one."""
    if isinstance(batch_size, Schedule):
        size_at(batch_size, 0, 0)
    else:
        check_count("batch_size", batch_size)


def check_fits(batch_size: BatchSize, samples: int) -> None:
    """Raise `ConfigurationError` where the first batch of an agent has more samples than an epoch has.

    >>> check_fits(64, samples=50)
    Traceback (most recent call last):
    d5ray.errors.ConfigurationError: batch_size is 64, but an epoch has 50 samples to train on: take \
batch_size=50 at most
    """
    if size_at(batch_size, 0, 0) > samples:
        raise ConfigurationError(
            f"batch_size is {batch_size!r}, but an epoch has {samples} samples to train on: take "
            f"batch_size={samples} at most"
        )


def size_at(batch_size: BatchSize, epoch: int, step: int) -> int:
    """The batch size at a step of the run in this epoch."""
    if not isinstance(batch_size, Schedule):
        return batch_size
    value = batch_size.value(epoch if batch_size.unit == "epoch" else step)
    size = round(value) if abs(value) < float("inf") else 0
    if size < 1:
        raise ConfigurationError(
            f"batch_size is {value} at {batch_size.unit} {epoch if batch_size.unit == 'epoch' else step} by "
            f"{batch_size!r}: it must be at least 1"
        )
    return size
