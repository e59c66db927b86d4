"""Metrics of communication measured by itself: allreduces by size, exchanges of a gradient by network."""

from dataclasses import dataclass
from typing import final

from d5ray.metrics.definitions.side_by_side import OfAContender, RatioOfPairs, SpeedupOfPairs

ALLREDUCE_TIME = "allreduce_time"
GRADIENT_TIME = "gradient_exchange_time"


@final
@dataclass(frozen=True)
class AllreduceTime(OfAContender):
    """Seconds of an allreduce of `size` (such as '4 kB') by all members of a contender's group."""

    size: str

    name = ALLREDUCE_TIME
    description = "one allreduce of this size"


@final
@dataclass(frozen=True)
class AllreduceSpeedup(SpeedupOfPairs):
    """The time that `base` takes to reduce arrays of `size` over that of `ours`, measured in pairs."""

    size: str

    name = "allreduce_speedup"
    recorded = ALLREDUCE_TIME
    description = "the base's time of an allreduce over ours"


@final
@dataclass(frozen=True)
class AllreduceTimeRatio(RatioOfPairs):
    """The time of an allreduce of `ours` over that of `base`, measured in pairs."""

    size: str

    name = "allreduce_time_ratio"
    recorded = ALLREDUCE_TIME
    description = "our time of an allreduce over the base's"


@final
@dataclass(frozen=True)
class GradientExchangeTime(OfAContender):
    """Seconds from every member's gradient to the mean of all, compressed or not."""

    gradient: str

    name = GRADIENT_TIME
    description = "one exchange of this gradient"


@final
@dataclass(frozen=True)
class GradientExchangeSpeedup(SpeedupOfPairs):
    """The time that `base` takes to exchange this gradient over that of `ours`, measured in pairs."""

    gradient: str

    name = "gradient_exchange_speedup"
    recorded = GRADIENT_TIME
    description = "the base's time of an exchange over ours"
