"""Schedules: hyperparameters as functions of the step or the epoch, and a rate that follows the batch"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, final

from d5ray.checks import KnownKeywords, check_count, check_kind, check_number, check_rate
from d5ray.errors import ConfigurationError

UNITS: Final = ("epoch", "step")


@dataclass(frozen=True)
class Schedule(KnownKeywords, ABC):
    """A hyperparameter as a function of time, counted from 0 in whole epochs, or in steps.

    unit: "epoch" or "step".
    """

    unit: str = field(default="epoch", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.unit, str) or self.unit not in UNITS:
            raise ConfigurationError(f"unit is {self.unit!r}: it must be 'epoch' or 'step'")

    @final
    def at(self, step: int, epoch: int) -> float:
        """The value at a step of the training in this epoch; both from 0."""
        return float(self.value(epoch if self.unit == "epoch" else step))

    @abstractmethod
    def value(self, time: int) -> float:
        """The value at a time, from 0, in the schedule's unit."""

    @property
    def changes(self) -> tuple[int, ...]:
        """The times of planned changes; those after the end of a run never happen."""
        return ()


@final
@dataclass(frozen=True)
class Piecewise(Schedule):
    """`start`, then from each of the times on the value given for it: Piecewise(0.1, {30: 0.01})."""

    start: float
    values: Mapping[int, float]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rate("start", self.start, zero=True)
        if not isinstance(self.values, Mapping) or not self.values:
            raise ConfigurationError(
                f"values is {self.values!r}: it must be times and numbers, such as {{30: 0.01, 60: 0.001}}"
            )
        for time, value in self.values.items():
            check_count("a time of values", time)
            check_rate(f"values[{time}]", value, zero=True)

    def value(self, time: int) -> float:
        passed = [at for at in self.values if at <= time]
        return self.values[max(passed)] if passed else self.start

    @property
    def changes(self) -> tuple[int, ...]:
        return tuple(sorted(self.values))


@dataclass(frozen=True)
class _Way(Schedule):
    """A way from one value to another, where it stays."""

    start: float
    length: int
    final: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rate("start", self.start, zero=True)
        check_count("length", self.length)
        check_rate("final", self.final, zero=True)

    @property
    def changes(self) -> tuple[int, ...]:
        return (self.length,)


@final
@dataclass(frozen=True)
class Cosine(_Way):
    """final + ½ (start − final) (1 + cos(π t / length)), and final afterwards   (arXiv:1608.03983)."""

    def value(self, time: int) -> float:
        share = min(time, self.length) / self.length
        return self.final + 0.5 * (self.start - self.final) * (1 + math.cos(math.pi * share))


@final
@dataclass(frozen=True)
class Polynomial(_Way):
    """final + (start − final) (1 − t / length)^power, and final afterwards; power 1 is a straight line."""

    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rate("power", self.power)

    def value(self, time: int) -> float:
        left = 1 - min(time, self.length) / self.length
        return self.final + (self.start - self.final) * math.pow(left, self.power)


@final
@dataclass(frozen=True)
class OneCycle(Schedule):
    """A cycle: peak / `start_divisor` to peak in `rise` of the length, then to the start / `final_divisor`.

    Both parts are half a cosine (Smith and Topin, arXiv:1708.07120, as in PyTorch). By default by steps.
    """

    peak: float
    length: int
    rise: float = 0.3
    start_divisor: float = 25.0
    final_divisor: float = 1e4
    unit: str = field(default="step", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rate("peak", self.peak)
        check_count("length", self.length, low=2)
        check_number("rise", self.rise, low=0.0, low_included=False, high=1.0)
        check_rate("start_divisor", self.start_divisor)
        check_rate("final_divisor", self.final_divisor)

    def value(self, time: int) -> float:
        start, top, last = self.peak / self.start_divisor, self.rise * self.length - 1, self.length - 1
        if time <= top:
            return _half_cosine(start, self.peak, time / top if top else 1.0)
        return _half_cosine(self.peak, start / self.final_divisor, min(1.0, (time - top) / (last - top)))

    @property
    def changes(self) -> tuple[int, ...]:
        return (self.length,)


@final
@dataclass(frozen=True)
class WarmUp(Schedule):
    """A linear warm-up from `start` to what follows: a number, or a schedule that continues from there.

    It has covered t / length at time t; `after` counts its own time from the beginning of the run, as in
    warm-ups of large batches (Goyal et al., arXiv:1706.02677).
    """

    after: float | Schedule
    length: int
    start: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.after, Schedule):
            check_rate("after", self.after)
        elif self.after.unit != self.unit:
            raise ConfigurationError(
                f"{self.after!r} counts by {self.after.unit}, its warm-up by {self.unit}: give both the same "
                "unit"
            )
        check_count("length", self.length)
        check_rate("start", self.start, zero=True)

    def value(self, time: int) -> float:
        after = self.after.value(time) if isinstance(self.after, Schedule) else self.after
        if time >= self.length:
            return after
        target = self.after.value(self.length) if isinstance(self.after, Schedule) else self.after
        return self.start + (target - self.start) * time / self.length

    @property
    def changes(self) -> tuple[int, ...]:
        return (self.length, *(self.after.changes if isinstance(self.after, Schedule) else ()))


@final
@dataclass(frozen=True)
class InverseTo(Schedule):
    """start · other(0) / other(t), at most `limit`: a batch size that grows where a rate would decay.

    It has the unit of the other schedule (Smith, Kindermans, Ying, Le, arXiv:1711.00489).
    """

    start: float
    other: Schedule
    limit: float = math.inf

    def __post_init__(self) -> None:
        check_rate("start", self.start)
        if not isinstance(self.other, Schedule):
            raise ConfigurationError(
                f"other is {self.other!r}: it must be a Schedule such as Piecewise(0.1, {{30: 0.02}})"
            )
        object.__setattr__(self, "unit", self.other.unit)
        check_kind("limit", self.limit, float | int, "a number")
        if self.limit != math.inf:
            check_rate("limit", self.limit)
        if self.limit < self.start:
            raise ConfigurationError(
                f"limit is {self.limit!r}: it must be a number of at least start, {self.start}"
            )

    def value(self, time: int) -> float:
        now = self.other.value(time)
        return min(self.limit, self.start * self.other.value(0) / now if now else math.inf)

    @property
    def changes(self) -> tuple[int, ...]:
        return self.other.changes


@final
@dataclass(frozen=True)
class Multiplied(Schedule):
    """factor · other(t): a learning rate scaled to another batch size than the one it was chosen for."""

    other: Schedule
    factor: float

    def __post_init__(self) -> None:
        if not isinstance(self.other, Schedule):
            raise ConfigurationError(
                f"other is {self.other!r}: it must be a Schedule such as Cosine(0.1, 90)"
            )
        object.__setattr__(self, "unit", self.other.unit)
        check_rate("factor", self.factor)

    def value(self, time: int) -> float:
        return self.factor * self.other.value(time)

    @property
    def changes(self) -> tuple[int, ...]:
        return self.other.changes


@final
@dataclass(frozen=True)
class Computed(Schedule):
    """The value of any function(t)."""

    function: Callable[[int], float]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise ConfigurationError(f"function is {self.function!r}: it must be one of the time")

    def value(self, time: int) -> float:
        return self.function(time)


def never(schedule: Schedule, steps: int, epochs: int) -> tuple[int, ...]:
    """The planned changes that a run of that many steps, in that many epochs, does not reach."""
    return tuple(time for time in schedule.changes if time > (epochs if schedule.unit == "epoch" else steps))


def _half_cosine(begin: float, end: float, share: float) -> float:
    return end + 0.5 * (begin - end) * (1 + math.cos(math.pi * share))


def rate_factor(rule: str, batch: float) -> float:
    """The learning rate relative to the planned one, for a global batch relative to the planned one.

    'none': 1. 'linear': B / B₀, which keeps the step a sample makes (Goyal et al., arXiv:1706.02677).
    'sqrt': √(B / B₀), which keeps the variance of a step (Krizhevsky, arXiv:1404.5997).

    >>> rate_factor("none", 0.25), rate_factor("linear", 0.25), rate_factor("sqrt", 0.25)
    (1.0, 0.25, 0.5)
    """
    return {"none": 1.0, "linear": batch, "sqrt": math.sqrt(batch)}[rule]
