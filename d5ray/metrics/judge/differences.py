"""Differences of metrics between two groups of runs: each by itself, and all together"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, final

import numpy as np
import numpy.typing as npt

from d5ray.metrics.definitions.catalogue import metric_named
from d5ray.metrics.judge.criteria import Metric
from d5ray.metrics.statistics.estimates import FEWEST_RUNS
from d5ray.metrics.statistics.familywise import FAMILY_LEVEL, adjusted_levels
from d5ray.metrics.statistics.intervals import Values, median_interval, median_log_ratio
from d5ray.names.kits import brought, parts

Together = Literal["worse", "not worse", "inconclusive"]
Floats = npt.NDArray[np.float64]
Word = Literal["better", "worse", "faster", "slower", "differs", "same", "equal", "different", "inconclusive"]
GOOD: Final = ("better", "faster")
BAD: Final = ("worse", "slower")
DECIDED: Final = ("same", "equal", "differs", *GOOD)
TOLERANCE = 0.02  # ratios this near to 1 make no difference


@final
@dataclass(frozen=True)
class MetricDifference:
    """A metric on both sides; ratio: of the second side over the first, with its 95 % interval.

    Where a value is not positive there is no ratio; n counts pairs of runs. An exact count, such as of bytes,
    is equal where it is so in every pair, and different where it is not, however few they are.
    """

    metric: str
    unit: str
    first: float
    second: float
    ratio: float | None
    low: float | None
    high: float | None
    n: int
    verdict: Word  # of the second side
    reason: str = ""
    adjusted_level: float | None = None  # at which it is better or worse among all metrics together
    estimator: str = ""  # of a run's value; of several runs it is the median over them

    @property
    def sure(self) -> bool:
        """True if the verdict holds among all metrics; only better and worse depend on the others."""
        return self.verdict not in (*GOOD, *BAD) or (self.adjusted_level or 0.0) <= FAMILY_LEVEL


def together(
    first: Sequence[Mapping[str, float]], second: Sequence[Mapping[str, float]], tolerance: float = TOLERANCE
) -> tuple[tuple[MetricDifference, ...], Together, tuple[str, ...]]:
    """The metrics of both sides' runs, each by itself; the verdict of all; the metrics by which it is worse.

    first, second: of each run its metrics' values, in the order in which the runs started; a pair of runs
    counts for a metric that both of them have. A metric decides where its own verdict is better or worse, and
    is so at the level of 5 % among all metrics that could be: `d5ray.metrics.statistics.familywise`.
    """
    paired = list(zip(first, second, strict=False))
    differences, placed, columns = [], [], []
    for metric in dict.fromkeys(label for pair in paired for of in pair for label in of):
        there = [metric in a and metric in b for a, b in paired]
        if not any(there):
            continue
        one, other = (
            np.array([of.get(metric, math.nan) for of in side]) for side in zip(*paired, strict=True)
        )
        each = judged(metric, one[there], other[there], tolerance)
        each = replace(each, estimator=_kind(metric).aggregation)
        differences.append(each)
        could_be = not each.reason and each.n >= FEWEST_RUNS and _kind(metric).direction != "target"
        if could_be and not np.array_equal(one[there], other[there]):
            placed.append(len(differences) - 1)
            columns.append(_towards_worse(metric, one, other, as_ratio=each.ratio is not None))
    if columns:
        towards_worse = np.array(columns).T
        of_worse, of_better = adjusted_levels(towards_worse), adjusted_levels(-towards_worse)
        for place, worse, better in zip(placed, of_worse, of_better, strict=True):
            level = better if differences[place].verdict in GOOD else worse
            differences[place] = replace(differences[place], adjusted_level=float(level))
    decided_by = tuple(each.metric for each in differences if each.verdict in BAD and each.sure)
    decided = any(each.verdict in DECIDED and each.sure for each in differences)
    word: Together = "worse" if decided_by else "not worse" if decided else "inconclusive"
    return tuple(differences), word, decided_by


def _towards_worse(metric: str, one: Floats, other: Floats, as_ratio: bool) -> Floats:
    """(pairs,), by how much the second side is worse, as log-ratios where there are any."""
    apart = np.log(other / one) if as_ratio else other - one
    return apart if _kind(metric).direction == "min" else -apart


def _kind(metric: str) -> Metric:
    """The metric with this name, or of a contender with this label, `operator_time(contender=torch …)`."""
    name, called, rest = metric.partition("(contender=")
    if called and name in brought("metrics of contenders"):
        kind: Metric = parts("metrics of contenders")[name](rest.removesuffix(")"))
        return kind
    return metric_named(metric)


def judged(metric: str, first: Values, second: Values, tolerance: float) -> MetricDifference:
    """One metric's values of the runs of both sides, in the order in which they started."""
    kind = _kind(metric)
    pairs = min(len(first), len(second))
    a, b = np.array(first[:pairs]), np.array(second[:pairs])
    medians = float(np.median(a)), float(np.median(b))
    counted = kind.kind == "count"
    if np.array_equal(a, b):
        word: Word = "equal" if counted else "same"
        return MetricDifference(metric, kind.unit, *medians, 1.0, 1.0, 1.0, pairs, word)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        reason = "a value is not a finite number"
        return MetricDifference(metric, kind.unit, *medians, None, None, None, pairs, "inconclusive", reason)
    if (a > 0).all() and (b > 0).all():
        found = median_log_ratio(b, a)
        ratio: float | None = found.value
        interval, neutral = found.interval, (1 / (1 + tolerance), 1.0, 1 + tolerance)
    else:
        ratio, interval, neutral = None, median_interval(b - a), (0.0, 0.0, 0.0)
    if interval is None and counted:
        return MetricDifference(metric, kind.unit, *medians, ratio, None, None, pairs, "different")
    if interval is None:
        too_few = "1 pair of runs is" if pairs == 1 else f"{pairs} pairs of runs are"
        reason = f"{too_few} too few, it needs {FEWEST_RUNS}: make {FEWEST_RUNS - pairs} more"
        return MetricDifference(metric, kind.unit, *medians, ratio, None, None, pairs, "inconclusive", reason)
    verdict = _word(kind, *interval, *neutral)
    if counted and verdict not in (*GOOD, *BAD):
        verdict = "different"
    low, high = interval if ratio is not None else (None, None)
    return MetricDifference(metric, kind.unit, *medians, ratio, low, high, pairs, verdict)


def _word(kind: Any, low: float, high: float, nothing: float, equal: float, little: float) -> Word:
    """The second side's verdict, its interval being [low, high] and no difference [nothing, little]."""
    if nothing <= low and high <= little:
        return "same"
    if low <= equal <= high:
        return "inconclusive"
    if kind.direction == "target":
        return "differs"
    good = (high < equal) == (kind.direction == "min")
    if kind.unit == "s" and kind.kind == "cost":
        return "faster" if good else "slower"
    return "better" if good else "worse"
