"""Stopping rules of a measurement: a reached precision, or a bound, with the reason"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from d5ray.checks import check_count, check_number, check_share
from d5ray.errors import ConfigurationError
from d5ray.metrics.statistics.dependence import FEWEST_TIMES
from d5ray.metrics.statistics.intervals import Values, quantile_interval_ranks
from d5ray.metrics.statistics.time_series import Quantile

PRECISE = "precise"  # how the reason begins where the precision was reached
MOST_MISSES = 0.05  # of an interval at confidence 95 %


@final
@dataclass(frozen=True)
class StoppingRule:
    """Repeat until the half-width of the median's 95 % interval is small against the median, or a bound.

    Looking at an interval after every value would stop when it happens to be narrow, and such intervals
    contain the true value less often. So looks are rare: each after half as many values again. And since
    repetitions are correlated, the interval is that of the effective number of independent values
    (`d5ray.metrics.statistics.dependence`); below 30 of them, nothing counts as precise. So it contains the
    true value in 93 to 98 of 100 cases, up to a correlation of 0.95 between neighbours
    (tests/metrics/statistics/test_sequential_stopping.py). It cannot detect changes that are slower than the
    whole measurement.

    fewest         values before the first look, at least 30
    growth         factor by which the number of values grows from look to look
    precision      half-width over median at which to stop
    most, seconds  maximal number of values, and maximal time
    """

    fewest: int = FEWEST_TIMES
    growth: float = 1.5
    precision: float = 0.05
    most: int = 1000
    seconds: float = 60.0

    def __post_init__(self) -> None:
        check_count("fewest", self.fewest, FEWEST_TIMES)
        check_number("growth", self.growth, low=1.2, low_included=True)
        check_count("most", self.most, 1)
        check_share("precision", self.precision)
        check_number("seconds", self.seconds, low=0.0, low_included=False)

    @cached_property
    def looks(self) -> frozenset[int]:
        """The numbers of values after which to look.

        >>> sorted(StoppingRule(most=200).looks)
        [30, 45, 68, 102, 153, 200]
        """
        numbers, n = {self.most}, self.fewest
        while n < self.most:
            numbers.add(n)
            n = math.ceil(self.growth * n)
        return frozenset(numbers)

    def reason(self, values: Values, elapsed_seconds: float) -> str:
        """The reason to stop after these values; empty to continue.

        >>> StoppingRule().reason([1.0] * 29, 0.1), StoppingRule().reason([1.0] * 30, 0.1)
        ('', 'precise: half-width 0 % of the median, 30 values')
        """
        n = len(values)
        if n in self.looks:
            found = half_width(values)
            if found <= self.precision:
                return f"{PRECISE}: half-width {100 * found:.2g} % of the median, {n} values"
        if n >= self.most:
            why_none = _series(values).interval()[2]
            width = f"the half-width is {100 * half_width(values):.2g} % of the median"
            return f"most: {n} values, {why_none or width}"
        if elapsed_seconds >= self.seconds:
            return f"time: {self.seconds:g} s have passed, {n} values"
        return ""


@final
@dataclass(frozen=True)
class SequentialStopping:
    """Sequential stopping: a look after each of these numbers of pairs of processes, until it is precise.

    A rank interval of few values misses the true value with a probability that depends only on their number:
    0.8 % with 8, 1.3 % with 14, 1.9 % with 27. By the union bound the interval at the last look, whatever the
    reason to stop, misses at most as often as all of them together, here in 4.0 % of cases, whatever the
    distribution. Numbers that sum to more than 5 % are refused.

    pairs      the numbers of rounds after which to look; the last is the maximum
    precision  half-width of every ratio's interval, relative to the ratio, at which to stop
    """

    pairs: tuple[int, ...] = (8, 14, 27)
    precision: float = 0.02

    def __post_init__(self) -> None:
        check_share("precision", self.precision)
        if not isinstance(self.pairs, tuple) or not self.pairs or list(self.pairs) != sorted(set(self.pairs)):
            raise ConfigurationError(
                f"pairs is {self.pairs!r}: it must be growing numbers of pairs such as (8, 14, 27)"
            )
        for number in self.pairs:
            check_count("pairs", number, 6)
        if self.misses > MOST_MISSES:
            raise ConfigurationError(
                f"looks after {self.pairs} pairs can miss in {100 * self.misses:.1f} % of cases, more than "
                f"{100 * MOST_MISSES:g} %: take fewer looks, or numbers such as 8, 11, 14, 19, 22, 27"
            )

    @property
    def misses(self) -> float:
        """The upper bound of the probability that the interval at the last look misses the true value."""
        return sum(missing(number) for number in self.pairs)

    def reason(self, pairs: int, half_widths: Sequence[float]) -> str:
        """The reason to stop after these pairs; empty to continue. half_widths: of all ratios, relative."""
        if pairs >= self.pairs[-1]:
            return f"most: {pairs} pairs"
        if pairs in self.pairs and half_widths and max(half_widths) <= self.precision:
            return f"{PRECISE}: half-width at most {100 * max(half_widths):.2g} %, {pairs} pairs"
        return ""


def half_width(values: Values) -> float:
    """Half the width of the median's interval over the median; infinite without an interval.

    >>> half_width([9, 10, 11] * 20), half_width([9, 10, 11])
    (0.0, inf)
    """
    series = _series(values)
    interval, _, _ = series.interval()
    if interval is None or not np.isfinite(interval).all():
        return math.inf
    if interval.high == interval.low:
        return 0.0
    middle = abs(series.of(slice(None)))
    return (interval.high - interval.low) / 2 / middle if middle else math.inf


def _series(values: Values) -> Quantile:
    return Quantile(np.asarray(values, dtype=np.float64))


def missing(n: int) -> float:
    """The probability that the exact 95 % interval of n values does not hold the median.

    >>> round(missing(8), 4), round(missing(10), 4)
    (0.0078, 0.0215)
    """
    ranks = quantile_interval_ranks(n)
    if ranks is None:
        return 1.0
    return float(1 - sum(math.comb(n, k) for k in range(*ranks)) / 2**n)
