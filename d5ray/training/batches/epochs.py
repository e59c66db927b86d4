"""Epochs of a run: its samples cut into steps, by a batch size, or by one that changes"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final, final

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.training.schedules import Multiplied, Schedule

BatchSize = int | Schedule


@final
@dataclass(frozen=True)
class Position:
    """The place of a training in its data: `samples` of an epoch's order are done before step `step`.

    begin: the step with which the epoch began. It says what is left, however many agents there were until
    then and will be.
    """

    epoch: int = 0
    samples: int = 0
    step: int = 0
    begin: int = 0


START: Final = Position()


@final
@dataclass(frozen=True)
class Epochs:
    """Every step of an epoch takes the next agents × batch_size samples, its last one what remains.

    batch_size: of an agent; a schedule is rounded to whole samples, and counts the run's steps or epochs.
    since: where this began to hold, if there were more agents or fewer before; of earlier epochs it knows
    nothing.
    """

    samples: int
    agents: int
    batch_size: BatchSize
    since: Position = START

    @classmethod
    def even(cls, steps: int) -> "Epochs":
        """Epochs of that many steps each."""
        return cls(steps, 1, 1)

    def begin(self, epoch: int) -> int:
        """The first step of an epoch, both from 0."""
        first = self.since.epoch
        if not isinstance(self.batch_size, Schedule) and epoch > first:
            return self._second + (epoch - first - 1) * self._length(0, 0)
        begins = self._begins
        while len(begins) <= epoch - first:
            at = first + len(begins) - 1
            begins.append(self._second if at == first else begins[-1] + self._length(at, begins[-1]))
        return begins[epoch - first]

    def steps(self, epoch: int) -> int:
        """The number of steps in an epoch."""
        return self.begin(epoch + 1) - self.begin(epoch)

    def position(self, step: int) -> tuple[int, int]:
        """The epoch of a step, and how many of the epoch's steps come before it."""
        first, second = self.since.epoch, self._second
        if step < second:
            return first, step - self.since.begin
        if not isinstance(self.batch_size, Schedule):
            epoch, done = divmod(step - second, self._length(0, 0))
            return first + 1 + epoch, done
        while self._begins[-1] <= step:
            self.begin(first + len(self._begins))
        index = bisect_right(self._begins, step) - 1
        return first + index, step - self._begins[index]

    def after(self, step: int, epochs: int) -> int:
        """The step at which that many epochs from this step on have passed."""
        epoch, done = self.position(step)
        if self.since != START:  # the steps of this epoch may have been smaller or larger: samples count
            return self.reached(Position(epoch + epochs, self.at(step).samples))
        return self.begin(epoch + epochs) + min(done, self.steps(epoch + epochs))

    def at(self, step: int) -> Position:
        """The samples that are done before a step."""
        epoch, done = self.position(step)
        begin = step - done
        start, _ = next(islice(self.cuts(epoch, done), 1))
        return Position(epoch, start, step, begin)

    def reached(self, place: Position) -> int:
        """The step before which as much is done as at a place, at least; that of the place may differ."""
        since = self.since
        if (place.epoch, place.samples) <= (since.epoch, since.samples):
            return since.step
        first = since.step if place.epoch == since.epoch else self.begin(place.epoch)
        return first + sum(start < place.samples for start, _ in self._cuts_of(place.epoch))

    def cuts(self, epoch: int, done: int = 0) -> Iterator[tuple[int, int]]:
        """The steps of an epoch: where the samples of each begin in the epoch's order, and their number.

        done: steps of the epoch to leave out; of the epoch in which `since` lies at least those before it.
        """
        since = self.since
        before = since.step - since.begin if epoch == since.epoch else 0
        return islice(self._cuts_of(epoch), max(0, done - before), None)

    def _cuts_of(self, epoch: int) -> Iterator[tuple[int, int]]:
        since = self.since
        if epoch == since.epoch:
            return self._cuts(epoch, since.step, since.samples)
        return self._cuts(epoch, self.begin(epoch))

    def _cuts(self, epoch: int, step: int, start: int = 0) -> Iterator[tuple[int, int]]:
        while start < self.samples:
            taken = min(self.agents * size_at(self.batch_size, epoch, step), self.samples - start)
            yield start, taken
            start += taken
            step += 1

    def _length(self, epoch: int, step: int, done: int = 0) -> int:
        """The steps of an epoch from this step on, before which that many of its samples are done."""
        if isinstance(self.batch_size, Schedule) and self.batch_size.unit == "step":
            return sum(1 for _ in self._cuts(epoch, step, done))
        return -((done - self.samples) // (self.agents * size_at(self.batch_size, epoch, step)))

    @cached_property
    def _second(self) -> int:
        """The first step of the epoch after that of `since`."""
        since = self.since
        return since.step + self._length(since.epoch, since.step, since.samples)

    @cached_property
    def _begins(self) -> list[int]:
        """The first steps of the epochs so far asked for, from that of `since` on."""
        return [self.since.begin]


def check_batch_size(batch_size: object) -> None:
    """Raise `ConfigurationError` unless it is an integer, or a schedule that begins with at least one."""
    if isinstance(batch_size, Schedule):
        size_at(batch_size, 0, 0)
    else:
        check_count("batch_size", batch_size)


def check_fits(batch_size: BatchSize, samples: int, accumulate: int = 1) -> None:
    """Raise `ConfigurationError` where the first batch of an agent has more samples than an epoch has.

    accumulate: a step's batch has so many times `batch_size`.

    >>> check_fits(64, samples=50)
    Traceback (most recent call last):
    d5ray.errors.ConfigurationError: batch_size is 64, but an epoch has 50 samples to train on: take \
batch_size=50 at most
    """
    size = size_at(batch_size, 0, 0)
    if size > samples:
        raise ConfigurationError(
            f"batch_size is {batch_size!r}, but an epoch has {samples} samples to train on: take "
            f"batch_size={samples} at most"
        )
    if size * accumulate > samples:
        raise ConfigurationError(
            f"accumulate is {accumulate} and batch_size {batch_size!r}: a step takes {size * accumulate} "
            f"samples, but an epoch has {samples} to train on: take accumulate={samples // size} at most"
        )


def times(batch_size: BatchSize, count: int) -> BatchSize:
    """A batch size that many times as large, also where it changes."""
    if isinstance(batch_size, Schedule):
        return batch_size if count == 1 else Multiplied(batch_size, count)
    return batch_size * count


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
