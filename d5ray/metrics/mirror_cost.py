"""Metrics of what showing a run in Ray's metrics costs its agents"""

from dataclasses import dataclass
from typing import Final, final

from d5ray.metrics.criteria import Metric, RunTables
from d5ray.metrics.side_by_side import time_of, time_ratio
from d5ray.metrics.statistics import Estimate

TURN_TIME: Final = "turn_step_time"  # the mean over the steps of a turn
MIRROR_SHARE: Final = "mirror_share"
WITH, WITHOUT = "with mirror", "without"  # the sides


@final
@dataclass(frozen=True)
class MirrorTimeRatio(Metric):
    """How many times as long a step takes with the mirror as without; both in one process, in turn.

    Means, not medians, within a turn: the mirror looks once a second, and most steps know nothing of it.
    """

    contender: str

    name = "mirror_time_ratio"
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "mean over a turn, median over turns, median of the log-ratio over pairs in fresh processes"
    description = "a step's time while Ray's metrics show the agents, over its time without"

    def estimate(self, run: RunTables) -> Estimate:
        return time_ratio(run, TURN_TIME, *(f"{self.contender} {side}" for side in (WITH, WITHOUT)))


@final
@dataclass(frozen=True)
class MirrorShare(Metric):
    """The processor's time of the mirror's thread, as a share of the time of the steps meanwhile.

    What a step can lose at most where the thread shares the agent's core, measured without the noise of two
    step times.
    """

    contender: str

    name = MIRROR_SHARE
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "sum over sum of all turns, largest over ranks, median over fresh processes"
    description = "time of the mirror's thread over time of the steps"

    def estimate(self, run: RunTables) -> Estimate:
        return time_of(run, self.name, self.contender)
