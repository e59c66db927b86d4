"""Metrics of simulations: how long they take in real time, and whether virtual times are those of formulas"""

from abc import ABC
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from d5ray.kits.laboratory.metrics.side_by_side import OfAContender, RatioOfSides, why_not_measured
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
class SimulationOverhead(RatioOfSides, name="simulation_overhead", recorded=TRAINING_TIME):
    """The real time of a simulated training over that of its gradients."""

    sides = (SIMULATED, BARE)
    aggregation = "median over repetitions in each process, median of the log-ratio over processes"


@final
class WallTime(OfAContender, name=WALL_TIME):
    """The real time of a whole simulation.

    From nothing to its complete tables; the longest of all counts.
    """

    aggregation = "largest over processes"

    def estimate(self, run: RunTables) -> Estimate:
        seconds = values_by_scope(run, WALL_TIME).get(self.contender)
        if seconds is None:
            return Estimate(None, reason=why_not_measured(run, self.contender))
        unit = "simulation" if len(seconds) == 1 else "simulations"
        return Estimate(float(seconds.max()), n=len(seconds), sample_unit=unit, exact=True)


@dataclass(frozen=True)
class PredictionRatio(Metric, ABC):
    """The simulated time of an exchange over that of its formula, one extreme of all that were compared.

    contender: how the name of those that count begins. Virtual times are exact.
    """

    contender: str

    unit = "1"
    kind = "ratio"

    @final
    def estimate(self, run: RunTables) -> Estimate:
        ratios = [
            simulated / predicted
            for scope, (simulated, predicted) in prediction_ratios(run).items()
            if scope.startswith(f"{self.contender}, ") and predicted
        ]
        if not ratios:
            return Estimate(None, reason=why_not_measured(run, self.contender))
        extreme = min(ratios) if self.direction == "max" else max(ratios)
        return Estimate(extreme, n=len(ratios), sample_unit="exchanges", exact=True)


@final
class LowestPredictionRatio(PredictionRatio, name="lowest_simulated_over_predicted", direction="max"):
    """An exchange's simulated time over the closed form's, where it is smallest."""

    aggregation = "smallest over networks and numbers of agents"


@final
class HighestPredictionRatio(PredictionRatio, name="highest_simulated_over_predicted", direction="min"):
    """An exchange's simulated time over the closed form's, where it is largest."""

    aggregation = "largest over networks and numbers of agents"


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
