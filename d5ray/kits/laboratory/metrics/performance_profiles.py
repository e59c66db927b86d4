"""Performance profiles: which optimizer is first at its target how often, and how far behind it is elsewhere

With t the median over seeds of what an optimizer needed on a workload, infinite where it missed the target,
r = t / min t over all optimizers, and infinite where it exceeds 4; ρ(τ) is the share of workloads with r ≤ τ
(Dolan and Moré, arXiv:cs/0102001). The score ∫₁⁴ ρ(τ) dτ / 3 is AlgoPerf's (Dahl et al., arXiv:2306.07179).
It compares those that were run together: who is added or left out can change everybody's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.checks import check_choice
from d5ray.kits.laboratory.metrics.side_by_side import UNAVAILABLE
from d5ray.kits.laboratory.metrics.simulations import values_by_scope
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.intervals import Estimate

STEPS_TO_TARGET = "steps_to_target"  # infinite where it was not reached; so are the others
TIME_TO_TARGET = "time_to_target"
SAMPLES_TO_TARGET = "samples_to_target"
MEASURES = {"steps": STEPS_TO_TARGET, "seconds": TIME_TO_TARGET, "samples": SAMPLES_TO_TARGET}
EVALUATED_STEP = "evaluated_step"  # of the learning curve: after that many steps,
TRAINED_TIME = "trained_time"  # and that many seconds of training, without the evaluations
WORST_RATIO = 4.0

Medians = Mapping[str, Mapping[str, float]]  # by optimizer, then by workload


@final
@dataclass(frozen=True)
class PerformanceScore(Metric):
    """∫₁⁴ ρ(τ) dτ / 3 of one optimizer among those of the run: 1 where it is first everywhere.

    0 where it is within four times the best nowhere. by: 'steps', 'seconds' or 'samples'; steps and samples
    do not depend on how fast a machine is.
    """

    optimizer: str
    by: str = "steps"

    name = "performance_score"
    unit = "1"
    direction = "max"
    kind = "ratio"
    aggregation = "median over seeds, share of workloads, mean over ratios from 1 to 4"
    description = "how near the best an optimizer reaches the targets of all workloads"

    def __post_init__(self) -> None:
        check_choice("by", self.by, MEASURES)

    def estimate(self, run: RunTables) -> Estimate:
        ratios = ratios_of(medians_of(run, MEASURES[self.by]))
        own = ratios.get(self.optimizer)
        if not own:
            return Estimate(None, reason=f"{UNAVAILABLE}: {self.optimizer} was not measured")
        return Estimate(score(own), n=len(own), sample_unit="workloads", exact=True)


def medians_of(run: RunTables, metric: str) -> dict[str, dict[str, float]]:
    """t by optimizer and workload; of those workloads alone on which every optimizer was measured.

    Rows are about `optimizer, workload[1]`, one value a seed. Where as many seeds missed the target as
    reached it, the median is infinite.
    """
    found: dict[str, dict[str, float]] = {}
    for scope, values in values_by_scope(run, metric).items():
        optimizer, _, workload = scope.rpartition("[")[0].partition(", ")
        found.setdefault(optimizer, {})[workload] = float(np.median(values))
    common = set.intersection(*map(set, found.values())) if found else set()
    return {
        optimizer: {workload: t for workload, t in own.items() if workload in common}
        for optimizer, own in found.items()
    }


def ratios_of(medians: Medians) -> dict[str, dict[str, float]]:
    """r by optimizer and workload; where nobody reached the target, infinite for all.

    >>> ratios_of({"A": {"w": 10.0, "v": math.inf}, "B": {"w": 15.0, "v": math.inf}})
    {'A': {'w': 1.0, 'v': inf}, 'B': {'w': 1.5, 'v': inf}}
    """
    made: dict[str, dict[str, float]] = {}
    for optimizer, own in medians.items():
        made[optimizer] = {}
        for workload, t in own.items():
            best = min(other[workload] for other in medians.values())
            ratio = t / best if math.isfinite(t) else math.inf
            made[optimizer][workload] = ratio if ratio <= WORST_RATIO else math.inf
    return made


def share(ratios: Mapping[str, float], tau: float) -> float:
    """ρ(τ) of one optimizer, of its ratios by workload.

    >>> share({"w": 1.0, "v": 2.0}, 1.5)
    0.5
    """
    return sum(ratio <= tau for ratio in ratios.values()) / len(ratios)


def score(ratios: Mapping[str, float]) -> float:
    """∫₁⁴ ρ(τ) dτ / 3, exactly: a workload counts from its ratio on.

    >>> score({"w": 1.0, "v": 2.5, "u": math.inf})
    0.5
    """
    counted = (max(0.0, WORST_RATIO - ratio) / (WORST_RATIO - 1) for ratio in ratios.values())
    return sum(counted) / len(ratios)
