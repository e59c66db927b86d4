"""Metrics of what showing a run in Ray's metrics costs its agents"""

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from d5ray.metrics.definitions.side_by_side import OfAContender, over_processes, rows_of, scope_of
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.intervals import Estimate

TURN_TIME: Final = "turn_step_time"  # the mean over the steps of a turn
MIRROR_SHARE: Final = "mirror_share"
WITH, WITHOUT = "with mirror", "without"  # the sides


@final
@dataclass(frozen=True)
class MirrorTimeRatio(Metric):
    """How many times as long a step takes with the exporter as without; both in one process, in turn.

    Means, not medians, within a turn: the exporter looks once a second: most steps know nothing of it. Each
    turn is compared with the one beside it, since the machine changes its speed meanwhile.
    """

    contender: str

    name = "mirror_time_ratio"
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "mean over a turn, median of the ratios of turns side by side, median over fresh processes"
    description = "a step's time while Ray's metrics show the agents, over its time without"

    def estimate(self, run: RunTables) -> Estimate:
        above, below = (_turns(run, scope_of(self.contender, side)) for side in (WITH, WITHOUT))
        ratios: dict[int, list[float]] = {}
        for (process, turn), seconds in above.items():
            if (process, turn) in below:
                ratios.setdefault(process, []).append(seconds / below[process, turn])
        medians = {process: float(np.median(found)) for process, found in ratios.items()}
        return over_processes(run, medians, self.contender)


def _turns(run: RunTables, scope: str) -> dict[tuple[int, int], float]:
    """The mean step of every process's every turn."""
    columns = (rows_of(run, TURN_TIME, scope)[name].to_pylist() for name in ("rep", "step", "value"))
    return {(rep, step): value for rep, step, value in zip(*columns, strict=True)}


@final
@dataclass(frozen=True)
class MirrorShare(OfAContender):
    """The processor's time of the exporter's thread, as a share of the time of the steps meanwhile.

    What a step can lose at most where the thread shares the agent's core, measured without the noise of two
    step times.
    """

    name = MIRROR_SHARE
    unit = "1"
    kind = "ratio"
    aggregation = "sum over sum of all turns, largest over ranks, median over fresh processes"
    description = "time of the mirror's thread over time of the steps"
