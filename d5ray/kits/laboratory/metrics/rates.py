"""Metrics of how much several agents do in a second, whether they wait for each other or not.

Every agent writes how much it did in a second while all of them worked; what they do together is the sum. A
ratio of two contenders is over pairs of fresh processes, see `side_by_side`.
"""

from dataclasses import dataclass
from typing import final

import pyarrow as pa

from d5ray.kits.laboratory.metrics.side_by_side import (
    ByPair,
    over_processes,
    ratio_of_pairs,
    rows_of,
    scope_of,
    time_ratio,
)
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.intervals import Estimate

SAMPLE_RATE = "samples_per_second"  # of one agent
AGENT_STEP_TIME = "agent_step_time"  # of one agent, whatever the others do meanwhile
UPDATE_RATE = "updates_per_second"  # of one agent: pushes with the pull that follows
SERVICE_TIME = "service_time"  # of one push in a shard, or of the bare update that it makes

OF_RATES = "sum over agents, median of the log-ratio over pairs of processes"
IN_THE_SHARD, BARE = "in the shard", "bare update"  # the two sides of `SERVICE_TIME`


@final
@dataclass(frozen=True)
class SampleRateRatio(Metric):
    """The samples a second that all agents of `ours` train over those of `base`, in pairs."""

    ours: str
    base: str

    name = "sample_rate_ratio"
    unit = "1"
    direction = "max"
    kind = "ratio"
    aggregation = OF_RATES
    description = "our samples a second, of all agents together, over the base's"

    def estimate(self, run: RunTables) -> Estimate:
        return rate_ratio(run, SAMPLE_RATE, self.ours, self.base)


@final
@dataclass(frozen=True)
class UpdateRateRatio(Metric):
    """The updates of `size` a second that all agents of `ours` make over those of `base`."""

    ours: str
    base: str
    size: str

    name = "update_rate_ratio"
    unit = "1"
    direction = "max"
    kind = "ratio"
    aggregation = OF_RATES
    description = "our pushes with pulls a second, of all agents together, over the base's"

    def estimate(self, run: RunTables) -> Estimate:
        return rate_ratio(run, UPDATE_RATE, self.ours, self.base, self.size)


@final
@dataclass(frozen=True)
class ServiceTimeRatio(Metric):
    """The time of serving a push over that of the update alone, alternately in one process."""

    contender: str
    size: str

    name = "service_time_ratio"
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "median over blocks in each process, median of the log-ratio over processes"
    description = "a push's time in the shard over that of the update's own arithmetic"

    def estimate(self, run: RunTables) -> Estimate:
        served, bare = (scope_of(self.contender, side) for side in (IN_THE_SHARD, BARE))
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


def rate_ratio(run: RunTables, metric: str, ours: str, base: str, at: str = "") -> Estimate:
    """ours over base, in pairs; unavailable with the reason where one of them could not be measured."""
    above, below = (rates_by_pair(run, metric, contender, at) for contender in (ours, base))
    return ratio_of_pairs(run, above, below, ours, base)
