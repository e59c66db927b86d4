"""Metrics of simulations: how long they take in real time, and whether virtual times are those of formulas"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from d5ray.kits.laboratory.metrics.side_by_side import scope_of, time_ratio, why_not_measured
from d5ray.metrics.definitions.catalogue import ExchangeTime, PredictedExchangeTime
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.intervals import Estimate

Floats = npt.NDArray[np.float64]

TRAINING_TIME = "training_time"  # of several steps of all agents, or of their gradients alone
SIMULATED, BARE = "simulated", "gradients alone"  # the two sides of `TRAINING_TIME`
WALL_TIME = "wall_time"  # of a whole simulation
PROCESSOR_TIME = "processor_time"
PEAK_MEMORY = "peak_memory"  # of its process
ELAPSED_TIME = "elapsed_time"  # virtual, since the training began
TIME_TO_ACCURACY = "time_to_accuracy"  # virtual; infinite where it was not reached


@final
@dataclass(frozen=True)
class SimulationOverhead(Metric):
    """The time of a simulated training over that of its gradients alone, in turn in one process."""

    contender: str

    name = "simulation_overhead"
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "median over repetitions in each process, median of the log-ratio over processes"
    description = "the real time of a simulated training over that of its gradients"

    def estimate(self, run: RunTables) -> Estimate:
        simulated, bare = (scope_of(self.contender, side) for side in (SIMULATED, BARE))
        return time_ratio(run, TRAINING_TIME, simulated, bare)


@final
@dataclass(frozen=True)
class WallTime(Metric):
    """The real time of a whole simulation, from nothing to its complete tables; the longest of all counts."""

    contender: str

    name = WALL_TIME
    unit = "s"
    direction = "min"
    kind = "cost"
    aggregation = "largest over processes"
    description = "the real time of a whole simulation"

    def estimate(self, run: RunTables) -> Estimate:
        seconds = values_by_scope(run, WALL_TIME).get(self.contender)
        if seconds is None:
            return Estimate(None, reason=why_not_measured(run, self.contender))
        unit = "simulation" if len(seconds) == 1 else "simulations"
        return Estimate(float(seconds.max()), n=len(seconds), sample_unit=unit, exact=True)


@final
@dataclass(frozen=True)
class LowestPredictionRatio(Metric):
    """The simulated time of an exchange over that of its formula, the lowest of all that were compared.

    contender: how the name of those that count begins. Virtual times are exact.
    """

    contender: str

    name = "lowest_simulated_over_predicted"
    unit = "1"
    direction = "max"
    kind = "ratio"
    aggregation = "smallest over networks and numbers of agents"
    description = "an exchange's simulated time over the closed form's, where it is smallest"

    def estimate(self, run: RunTables) -> Estimate:
        return _extreme(run, self.contender, min)


@final
@dataclass(frozen=True)
class HighestPredictionRatio(Metric):
    """The simulated time of an exchange over that of its formula, the highest of all that were compared."""

    contender: str

    name = "highest_simulated_over_predicted"
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "largest over networks and numbers of agents"
    description = "an exchange's simulated time over the closed form's, where it is largest"

    def estimate(self, run: RunTables) -> Estimate:
        return _extreme(run, self.contender, max)


def values_by_scope(run: RunTables, metric: str) -> dict[str, Floats]:
    """All values of a metric by whom they are about, in order of appearance."""
    rows = run["samples"].filter(pc.equal(run["samples"]["metric"], metric))
    rows = rows.filter(pc.is_valid(rows["value"]))
    values = rows["value"].to_numpy()
    where: dict[str, list[int]] = {}
    for place, scope in enumerate(rows["scope"].to_pylist()):
        where.setdefault(scope, []).append(place)
    return {scope: values[places] for scope, places in where.items()}


def prediction_ratios(run: RunTables) -> dict[str, tuple[float, float]]:
    """The median time of an exchange and that of its formula, by scope, where both were written."""
    found = values_by_scope(run, ExchangeTime.name)
    predicted = values_by_scope(run, PredictedExchangeTime.name)
    return {
        scope: (float(np.median(found[scope])), float(np.median(predicted[scope])))
        for scope in found
        if scope in predicted
    }


def _extreme(run: RunTables, contender: str, of: Callable[[list[float]], float]) -> Estimate:
    ratios = [
        simulated / predicted
        for scope, (simulated, predicted) in prediction_ratios(run).items()
        if scope.startswith(f"{contender}, ") and predicted
    ]
    if not ratios:
        return Estimate(None, reason=why_not_measured(run, contender))
    return Estimate(of(ratios), n=len(ratios), sample_unit="exchanges", exact=True)
