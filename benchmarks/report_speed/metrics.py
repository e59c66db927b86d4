"""Metrics of what people look at: how long a report takes, from the command to its end"""

from dataclasses import dataclass
from typing import Final, final

from d5ray.metrics.definitions.side_by_side import OF_TIMES, time_of
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.intervals import Estimate

REPORT_TIME: Final = "report_time"


@final
@dataclass(frozen=True)
class ReportTime(Metric):
    """The whole command `d5ray report`, on runs of this size each; the start of Python is part of it."""

    contender: str
    size: str

    name = REPORT_TIME
    unit = "s"
    direction = "min"
    kind = "cost"
    aggregation = OF_TIMES
    description = "the command d5ray report, from its start to its end"

    def estimate(self, run: RunTables) -> Estimate:
        return time_of(run, self.name, self.contender, self.size)
