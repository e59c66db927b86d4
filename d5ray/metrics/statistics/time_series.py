"""Statistics of a series in time, and the interval of each: quantiles, and sums over sums such as means"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from d5ray.metrics.statistics.dependence import FEWEST_TIMES, EffectiveSamples, Floats, worth
from d5ray.metrics.statistics.intervals import (
    CONFIDENCE,
    Interval,
    fewest_samples,
    quantile_interval,
    student,
)
from d5ray.metrics.statistics.margin import Steps


class OverTime(ABC):
    """A statistic of values (n,) in the order in which they were measured; one function judges them all."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of values."""

    @abstractmethod
    def of(self, part: slice) -> float:
        """The statistic of the values of this part."""

    @property
    @abstractmethod
    def worth(self) -> EffectiveSamples:
        """The number of independent samples that the values are worth."""

    @abstractmethod
    def enclosed(self, found: EffectiveSamples) -> Interval | None:
        """The 95 % interval, where the values last long enough to know their dependence."""

    @abstractmethod
    def steps(self, unit: str) -> Steps:
        """The values one by one, as they decide where there is no interval. unit: what they are ("steps")."""

    @property
    def needed(self) -> int:
        """The number of independent samples that an interval needs."""
        return FEWEST_TIMES

    @final
    def interval(self, unit: str = "values") -> tuple[Interval | None, int, str]:
        """The interval, the independent samples behind it, and why there is none: found, needed, what to do.

        unit: what the values are ("steps").
        """
        n, found = len(self), self.worth
        independent = min(n, int(found.samples))
        interval = self.enclosed(found) if found.blocks else None
        if interval is not None:
            return interval, independent, ""
        needed = self.needed
        if independent == n:
            worth_ = f"{n:,} measured {unit} are too few, it needs {needed}"
        else:
            worth_ = (
                f"{n:,} measured {unit} are worth {independent:,} independent ones, it needs {needed} (what "
                f"slows one slows its neighbours, over {found.time:.3g} {unit})"
            )
        more = max(needed - independent, 1) * n / max(found.samples, 1)
        return None, independent, f"no interval: {worth_}: run {math.ceil(more):,} more"


@final
@dataclass(frozen=True, eq=False)
class Quantile(OverTime):
    """The q-quantile, with the exact ranks of as many independent samples as the values (n,) are worth.

    method: NumPy's; "linear" is the median as everyone knows it, "inverted_cdf" always one of the values
    """

    values: Floats
    q: float = 0.5
    method: Literal["linear", "inverted_cdf"] = "linear"

    def __len__(self) -> int:
        return len(self.values)

    def of(self, part: slice) -> float:
        if self.q == 0.5 and self.method == "linear":
            return float(np.median(self.values[part]))  # which takes infinity
        return float(np.quantile(self.values[part], self.q, method=self.method))

    @property
    def worth(self) -> EffectiveSamples:
        middle = self.of(slice(None))
        below = ((self.values < middle) + (self.values <= middle)) / 2  # what is equal counts as half
        return worth(self.values, below - below.mean())

    def steps(self, unit: str) -> Steps:
        below, above = (1.0 if beyond else 0.5 for beyond in (self.q > 0.5, self.q < 0.5))
        return Steps(self.of(slice(None)), self.values, unit, below, above)

    @property
    def needed(self) -> int:
        return max(FEWEST_TIMES, fewest_samples(self.q))

    def enclosed(self, found: EffectiveSamples) -> Interval | None:
        known = (
            student(math.inf) / student(found.blocks - 1)
        ) ** 2  # that a variance is estimated costs samples
        return quantile_interval(self.values, self.q, CONFIDENCE, min(len(self), int(known * found.samples)))


@final
@dataclass(frozen=True, eq=False)
class Quotient(OverTime):
    """Σ above / Σ below, such as work over time, with Student's interval, which skewness makes uneven.

    Hall's transformation: On the Removal of Skewness by Transformation, J. R. Statist. Soc. B 54 (1992).

    above, below: (n,); otherwise: the value where the sum below is zero
    """

    above: Floats
    below: Floats
    otherwise: float = math.inf

    def __len__(self) -> int:
        return len(self.above)

    def of(self, part: slice) -> float:
        below = float(self.below[part].sum())
        return float(self.above[part].sum()) / below if below else self.otherwise

    def steps(self, unit: str) -> Steps:
        return Steps(self.of(slice(None)), self._each, unit, 2 / 3, 2 / 3)

    @property
    def influence(self) -> Floats:
        """(n,), how far each value moves the quotient."""
        scale = float(self.below.mean())
        if not scale:
            return np.zeros(len(self))
        moved: Floats = (self.above - self.of(slice(None)) * self.below) / scale
        return moved

    @property
    def worth(self) -> EffectiveSamples:
        return worth(self.influence, self.influence)

    def enclosed(self, found: EffectiveSamples) -> Interval | None:
        value, moved = self.of(slice(None)), self.influence
        spread = float(np.sqrt(np.mean(moved**2)))
        if not spread:
            return Interval(value, value)
        skewness = float(np.mean((moved / spread) ** 3))
        reach = student(found.blocks - 1) / math.sqrt(found.samples)
        low, high = (value - spread * _unskewed(t, skewness, found.samples) for t in (reach, -reach))
        each = self._each  # outside of all of them no quotient of sums lies
        return Interval(max(low, float(each.min())), min(high, float(each.max())))

    @property
    def _each(self) -> Floats:
        there = self.below > 0
        each: Floats = self.above[there] / self.below[there]
        return each


def mean(values: Floats) -> Quotient:
    """The arithmetic mean of values (n,)."""
    return Quotient(values, np.ones(len(values)))


def _unskewed(t: float, skewness: float, samples: float) -> float:
    """The inverse of Hall's transformation, with which the mean of skewed values is no longer skewed."""
    if abs(skewness) < 1e-6:
        return t
    return 3 / skewness * (float(np.cbrt(1 + skewness * (t - skewness / (6 * samples)))) - 1)
