"""Metrics of the live page: what a viewer waits for"""

from dataclasses import dataclass
from typing import final

from d5ray.metrics.definitions.side_by_side import OF_TIMES, time_of
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.intervals import Estimate

PAGE_TIME = "page_time"


@final
@dataclass(frozen=True)
class PageTime(Metric):
    """From what a viewer does until the browser has drawn what was asked for, measured in the browser.

    what: "first view" (from the navigation), "zoom", "axis", or "view NAME"
    """

    contender: str
    what: str

    name = PAGE_TIME
    unit = "s"
    direction = "min"
    kind = "cost"
    aggregation = OF_TIMES
    description = "the time until the page's charts are drawn"

    def estimate(self, run: RunTables) -> Estimate:
        return time_of(run, self.name, self.contender, self.what)
