"""Decisions by a margin: a target so far from a run's steps that no dependence of theirs turns the verdict"""

import math
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Between the largest change of speed that was seen, 1.45, and what it leaves of a target that is three times
# away, 3/1.45 = 2.07: the first turns no verdict, and the second leaves none open.
MARGIN: Final = 2.0


@final
@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of a run one by one: they decide on a far target that the interval leaves open.

    Slow steps follow slow ones, and a run that lasts a few such moods gives no interval. But a mood changes a
    time by a factor that machines have: where the target is further than that from the statistic, and the
    steps agree, no other mood would turn the verdict. How often it is wrong is simulated:
    `python -m tests.metrics.statistics.decisions`.

    value: of the statistic; each: (n,), what it is of every step alone; unit: what is counted ("steps");
    below, above: the share of the steps that has to lie on the value's side, where that is below the target,
    and above. Half of them for a median; two thirds for a sum, which one long stall may move; for a high
    percentile all below it, as every burst that the run has missed would bring more to the other side.
    """

    value: float
    each: Floats
    unit: str
    below: float
    above: float

    def beside(self, target: float) -> str:
        """The reason for a verdict: the factor, and how many steps agree; empty where they do not decide.

        >>> Steps(1.2, np.array([1.0, 1.2, 70.0]), "steps", 0.5, 0.5).beside(50.0)
        'decided by its margin: 41.7 times below the target, and 2 of 3 steps ≤ 50'
        """
        if self.value <= 0 or target <= 0 or math.isinf(self.value):
            return ""  # a factor says nothing
        under = self.value < target
        times = target / self.value if under else self.value / target
        agree = self.each <= target if under else self.each >= target
        share = self.below if under else self.above
        if times < MARGIN or np.count_nonzero(agree) < share * len(self.each):
            return ""
        many = f"all {len(agree):,}" if agree.all() else f"{np.count_nonzero(agree):,} of {len(agree):,}"
        nearest = self.each.max() if under else self.each.min()
        side, sign = ("below", "≤") if under else ("above", "≥")
        bound = _short(nearest if agree.all() else target)
        return (
            f"decided by its margin: {_short(times)} times {side} the target, "
            f"and {many} {self.unit} {sign} {bound}"
        )


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
