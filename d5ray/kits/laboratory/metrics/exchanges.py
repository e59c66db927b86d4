"""Metrics of communication measured by itself: allreduces by size, exchanges of a gradient by network."""

from dataclasses import dataclass
from typing import final

from d5ray.kits.laboratory.metrics.side_by_side import OfAContender, RatioOfPairs, SpeedupOfPairs

ALLREDUCE_TIME = "allreduce_time"
GRADIENT_TIME = "gradient_exchange_time"


@final
@dataclass(frozen=True)
class AllreduceTime(OfAContender, name=ALLREDUCE_TIME):
    """One allreduce of this size.

    By all members of a contender's group; size: such as '4 kB'.
    """

    size: str


@final
@dataclass(frozen=True)
class AllreduceSpeedup(SpeedupOfPairs, name="allreduce_speedup", recorded=ALLREDUCE_TIME):
    """The base's time of an allreduce over ours."""

    size: str


@final
@dataclass(frozen=True)
class AllreduceTimeRatio(RatioOfPairs, name="allreduce_time_ratio", recorded=ALLREDUCE_TIME):
    """Our time of an allreduce over the base's."""

    size: str


@final
@dataclass(frozen=True)
class GradientExchangeTime(OfAContender, name=GRADIENT_TIME):
    """One exchange of this gradient.

    From every member's gradient to the mean of all, compressed or not.
    """

    gradient: str


@final
@dataclass(frozen=True)
class GradientExchangeSpeedup(SpeedupOfPairs, name="gradient_exchange_speedup", recorded=GRADIENT_TIME):
    """The base's time of an exchange over ours."""

    gradient: str
