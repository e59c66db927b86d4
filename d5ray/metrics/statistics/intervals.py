"""Statistics that assume no distribution: exact rank intervals, paired ratios, outlier counts.

Intervals of quantiles from order statistics: Le Boudec, Performance Evaluation of Computer and
Communication Systems, section 2.2; their use for timings: Hoefler and Belli, Scientific Benchmarking of
Parallel Computing Systems, SC'15, doi 10.1145/2807591.2807644.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count, check_number, shown
from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.statistics.margin import Steps

Values = Sequence[float] | npt.NDArray[np.floating]

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A confidence interval [low, high], in the unit of the values it was made from."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """The value of one quantity, with its confidence interval.

    `value` is None if it is unavailable, and NaN if it was measured and is not a number. `exact` marks a
    fact of the run (a count, the accuracy on a fixed test set) that needs no interval. `n` is the number of
    samples of the interval, `sample_unit` the kind of sample, `reason` says why something is missing. `steps`
    are those of one run if they are enough to decide by a margin without an interval.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    sample_unit: str = ""
    exact: bool = False
    reason: str = ""
    steps: Steps | None = field(default=None, compare=False, repr=False)

    @property
    def known(self) -> float:
        """The value; raises `StorageError` where the rows have none."""
        if self.value is None:
            raise StorageError(
                f"the run's rows lack a value that must be there ({self.reason or 'none was measured'}): "
                "take the run as it was made"
            )
        return self.value


@dataclass(frozen=True)
class Ratio:
    """a/b of paired samples; `outliers` of the `n` pairs lie outside Tukey's fences and were kept."""

    value: float
    interval: Interval | None
    n: int
    outliers: int


@lru_cache(maxsize=4096)
def quantile_interval_ranks(n: int, q: float = 0.5, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """The ranks (from 1) of the two order statistics that enclose the q-quantile, or None if n is too small.

    K, the number of samples below the quantile, is Binomial(n, q), whatever the distribution. The low rank
    is the largest r with P(K <= r − 1) <= α/2, the high rank the smallest s with P(K >= s) <= α/2, where
    α = 1 − confidence. Nothing is approximated, so that the coverage is at least `confidence` for every n.

    >>> quantile_interval_ranks(10), quantile_interval_ranks(30), quantile_interval_ranks(5)
    ((2, 9), (10, 21), None)
    """
    if n < 1:
        return None
    if not (0 < q < 1 and 0 < confidence < 1):
        raise ConfigurationError(
            f"quantile_interval_ranks(q={q}, confidence={confidence}): both must lie between 0 and 1"
        )
    k = np.arange(n + 1)
    log_factorial = np.r_[0.0, np.cumsum(np.log(k[1:]))]
    log_binomial = log_factorial[n] - log_factorial - log_factorial[::-1]
    probability = np.exp(log_binomial + k * math.log(q) + (n - k) * math.log1p(-q))
    tail = (1 - confidence) / 2 * (1 + 1e-12)  # a tail that is equal but for rounding is allowed
    low = int(np.searchsorted(np.cumsum(probability), tail, side="right"))
    high = n + 1 - int(np.searchsorted(np.cumsum(probability[::-1]), tail, side="right"))
    return None if low < 1 or high > n else (low, high)


def median_interval(values: Values, confidence: float = CONFIDENCE) -> Interval | None:
    """The exact interval of the median of independent samples; None with fewer than 6 of them (at 95%).

    Infinite values are allowed (a run that missed its target counts as +∞). NaN raises ConfigurationError.

    >>> median_interval([5, 1, 4, 2, 3, 6])
    Interval(low=1.0, high=6.0)
    """
    return quantile_interval(values, 0.5, confidence)


def quantile_interval(
    values: Values, q: float, confidence: float = CONFIDENCE, samples: int | None = None
) -> Interval | None:
    """The exact interval of the q-quantile; None with too few: 36 for p90, 72 for p95, 368 for p99 (at 95%).

    samples: the effective number of independent values, if they are correlated: the ranks are those for
        this number, scaled to all values, and the interval is as wide as for this number.
    NaN raises ConfigurationError, infinity is allowed.

    >>> quantile_interval(range(1, 37), 0.9), quantile_interval(range(35), 0.9)
    (Interval(low=29.0, high=36.0), None)
    """
    for name, share in (("q", q), ("confidence", confidence)):
        check_number(name, share, low=0.0, low_included=False, high=1.0)
    ordered = np.sort(_vector(values))
    if np.isnan(ordered).any():
        raise ConfigurationError("found NaN among the values of an interval: it has no rank, remove it first")
    n = len(ordered)
    if samples is None:
        samples = n
    check_count("samples", samples, low=0, high=n)
    ranks = quantile_interval_ranks(samples, q, confidence)
    if ranks is None:
        return None
    low, high = (ranks[0] - 1) * n // samples, -(-ranks[1] * n // samples) - 1  # of the k-th: its n/samples
    return Interval(float(ordered[low]), float(ordered[high]))


def fewest_samples(q: float, confidence: float = CONFIDENCE) -> int:
    """The number of independent samples that an interval of the q-quantile needs.

    >>> [fewest_samples(q) for q in (0.5, 0.9, 0.95, 0.99)]
    [6, 36, 72, 368]
    """
    tail = (1 - confidence) / 2 * (1 + 1e-12)
    return math.ceil(math.log(tail) / math.log(max(q, 1 - q)))


@lru_cache(maxsize=64)
def student(degrees: float, confidence: float = CONFIDENCE) -> float:
    """Student's t, two-sided, for that many degrees of freedom; for infinitely many that of the normal curve.

    >>> round(student(5), 3), round(student(math.inf), 3)
    (2.571, 1.96)
    """
    from scipy.special import ndtri, stdtrit  # noqa: PLC0415 - loaded when asked for

    share = (1 + confidence) / 2
    return float(ndtri(share) if math.isinf(degrees) else stdtrit(degrees, share))


def median_log_ratio(a: Values, b: Values, confidence: float = CONFIDENCE) -> Ratio:
    """exp(median of log(a_i / b_i)): the ratio of a to b from paired samples.

    Alternating the two sides and comparing them in pairs cancels slow drift; the interval is the exact rank
    interval of the median. Raises ConfigurationError unless both have the same, positive
    length and every value is positive and finite.

    >>> median_log_ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]).value
    2.0
    """
    above, below = _vector(a), _vector(b)
    if len(above) != len(below) or not len(above):
        raise ConfigurationError(
            f"median_log_ratio() got {len(above)} and {len(below)} values: it needs pairs, at least one"
        )
    for side in (above, below):
        if not (np.isfinite(side).all() and (side > 0).all()):
            raise ConfigurationError("median_log_ratio() needs positive, finite values on both sides")
    logs = np.log(above / below)
    enclosing = median_interval(logs, confidence)
    interval = None if enclosing is None else Interval(math.exp(enclosing.low), math.exp(enclosing.high))
    return Ratio(math.exp(float(np.median(logs))), interval, len(logs), tukey_outliers(logs))


def tukey_outliers(values: Values) -> int:
    """The number of values over 1.5 interquartile ranges outside the quartiles: to flag, never to delete.

    >>> tukey_outliers([1, 2, 3, 4, 5, 100])
    1
    """
    data = _vector(values)
    if not len(data):
        return 0
    low, high = np.quantile(data, [0.25, 0.75])
    reach = 1.5 * (high - low)
    return int(np.count_nonzero((data < low - reach) | (data > high + reach)))


def _vector(values: Values) -> npt.NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"values are {shown(values)}: they must be a sequence of numbers") from error
