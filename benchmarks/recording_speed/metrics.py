"""Metrics of recording itself: what a value costs, how quickly rows are stored, how quickly they are asked"""

from dataclasses import dataclass
from typing import final

from d5ray.kits.laboratory.metrics.rates import rate_of
from d5ray.kits.laboratory.metrics.side_by_side import OfAContender
from d5ray.metrics.judge.criteria import RunTables
from d5ray.metrics.statistics.intervals import Estimate

RECORDING_TIME = "recording_time"  # of one value, amortised over those that were recorded with it
STORING_RATE = "rows_stored_per_second"
QUERY_TIME = "query_time"


@final
class RecordingTime(OfAContender, name=RECORDING_TIME):
    """The time of an agent that one recorded value takes.

    To append it, and its share of making the batch.
    """


@final
@dataclass(frozen=True)
class RowsStored(OfAContender):
    """How many rows of `samples` a second the store takes from an agent's batches to its file."""

    name = STORING_RATE
    unit = "1/s"
    direction = "max"
    kind = "rate"
    aggregation = "mean over repetitions in each process, median over fresh processes"
    description = "rows that are expanded, checked and written in a second"

    def estimate(self, run: RunTables) -> Estimate:
        return rate_of(run, self.name, self.contender)


@final
class QueryTime(OfAContender, name=QUERY_TIME):
    """A median for each metric of a finished run, by SQL, from the query's text to its result."""
