"""Metrics of how much several agents do in a second, whether they wait for each other or not.

Every agent writes how much it did in a second while all of them worked; what they do together is the sum. A
ratio of two contenders is over pairs of fresh processes, see `side_by_side`.
"""

from abc import ABC
from dataclasses import dataclass
from typing import final

import pyarrow as pa

from d5ray.kits.laboratory.metrics.side_by_side import (
    ByPair,
    RatioOfPairs,
    RatioOfSides,
    measured_at,
    over_processes,
    ratio_of_pairs,
    rows_of,
    scope_of,
    time_ratio,
)
from d5ray.metrics.judge.criteria import RunTables
from d5ray.metrics.statistics.intervals import Estimate

SAMPLE_RATE = "samples_per_second"  # of one agent
AGENT_STEP_TIME = "agent_step_time"  # of one agent, whatever the others do meanwhile
UPDATE_RATE = "updates_per_second"  # of one agent: pushes with the pull that follows
SERVICE_TIME = "service_time"  # of one push in a shard, or of the bare update that it makes

IN_THE_SHARD, BARE = "in the shard", "bare update"  # the two sides of `SERVICE_TIME`


@dataclass(frozen=True)
class RateRatio(RatioOfPairs, ABC):
    """What all agents of `ours` do in a second over what those of `base` do, in pairs."""

    direction = "max"
    aggregation = "sum over agents, median of the log-ratio over pairs of processes"

    @final
    def estimate(self, run: RunTables) -> Estimate:
        sides, at = (self.ours, self.base), measured_at(self, 2)
        above, below = (rates_by_pair(run, self.recorded, contender, at) for contender in sides)
        return ratio_of_pairs(run, above, below, *sides)


@final
class SampleRateRatio(RateRatio, name="sample_rate_ratio", recorded=SAMPLE_RATE):
    """Our samples a second, of all agents together, over the base's."""


@final
@dataclass(frozen=True)
class UpdateRateRatio(RateRatio, name="update_rate_ratio", recorded=UPDATE_RATE):
    """Our pushes with pulls a second, of all agents together, over the base's."""

    size: str


@final
@dataclass(frozen=True)
class ServiceTimeRatio(RatioOfSides, name="service_time_ratio", recorded=SERVICE_TIME):
    """A push's time in the shard over that of the update's own arithmetic."""

    size: str

    sides = (IN_THE_SHARD, BARE)
    aggregation = "median over blocks in each process, median of the log-ratio over processes"

    def estimate(self, run: RunTables) -> Estimate:
        served, bare = (scope_of(self.contender, side) for side in self.sides)
        return time_ratio(run, SERVICE_TIME, served, bare, self.size)


def rates_by_pair(run: RunTables, metric: str, contender: str, at: str = "") -> ByPair:
    """The rate of all agents together in each pair: the sum over ranks of their own means, per second."""
    rows = rows_of(run, metric, scope_of(contender, at))
    means = rows.group_by(["rep", "rank"]).aggregate([("value", "mean")])
    sums = pa.table(means).group_by("rep").aggregate([("value_mean", "sum")])
    return dict(zip(sums["rep"].to_pylist(), sums["value_mean_sum"].to_pylist(), strict=True))


def rate_of(run: RunTables, metric: str, contender: str, at: str = "") -> Estimate:
    """The median of the rate over fresh processes."""
    return over_processes(run, rates_by_pair(run, metric, contender, at), contender)
