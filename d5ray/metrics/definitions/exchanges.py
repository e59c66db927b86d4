"""Metrics of communication measured by itself: allreduces by size, exchanges of a gradient by network."""

from dataclasses import dataclass
from typing import final

from d5ray.metrics.definitions.side_by_side import OF_RATIOS, OF_TIMES, time_of, time_ratio
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.intervals import Estimate

ALLREDUCE_TIME = "allreduce_time"
GRADIENT_TIME = "gradient_exchange_time"


@final
@dataclass(frozen=True)
class AllreduceTime(Metric):
    """Seconds of an allreduce of `size` (such as '4 kB') by all members of a contender's group."""

    contender: str
    size: str

    name = ALLREDUCE_TIME
    unit = "s"
    direction = "min"
    kind = "cost"
    aggregation = OF_TIMES
    description = "one allreduce of this size"

    def estimate(self, run: RunTables) -> Estimate:
        return time_of(run, self.name, self.contender, self.size)


@final
@dataclass(frozen=True)
class AllreduceSpeedup(Metric):
    """The time that `base` takes to reduce arrays of `size` over that of `ours`, measured in pairs."""

    ours: str
    base: str
    size: str

    name = "allreduce_speedup"
    unit = "1"
    direction = "max"
    kind = "ratio"
    aggregation = OF_RATIOS
    description = "the base's time of an allreduce over ours"

    def estimate(self, run: RunTables) -> Estimate:
        return time_ratio(run, ALLREDUCE_TIME, self.base, self.ours, self.size)


@final
@dataclass(frozen=True)
class AllreduceTimeRatio(Metric):
    """The time of an allreduce of `ours` over that of `base`, measured in pairs."""

    ours: str
    base: str
    size: str

    name = "allreduce_time_ratio"
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = OF_RATIOS
    description = "our time of an allreduce over the base's"

    def estimate(self, run: RunTables) -> Estimate:
        return time_ratio(run, ALLREDUCE_TIME, self.ours, self.base, self.size)


@final
@dataclass(frozen=True)
class GradientExchangeTime(Metric):
    """Seconds from every member's gradient to the mean of all, compressed or not."""

    contender: str
    gradient: str

    name = GRADIENT_TIME
    unit = "s"
    direction = "min"
    kind = "cost"
    aggregation = OF_TIMES
    description = "one exchange of this gradient"

    def estimate(self, run: RunTables) -> Estimate:
        return time_of(run, self.name, self.contender, self.gradient)


@final
@dataclass(frozen=True)
class GradientExchangeSpeedup(Metric):
    """The time that `base` takes to exchange this gradient over that of `ours`, measured in pairs."""

    ours: str
    base: str
    gradient: str

    name = "gradient_exchange_speedup"
    unit = "1"
    direction = "max"
    kind = "ratio"
    aggregation = OF_RATIOS
    description = "the base's time of an exchange over ours"

    def estimate(self, run: RunTables) -> Estimate:
        return time_ratio(run, GRADIENT_TIME, self.base, self.ours, self.gradient)
