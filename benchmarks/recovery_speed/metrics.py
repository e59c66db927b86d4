"""Metrics of recoveries: seconds until survivors and a newcomer train, steps done again, equal parameters"""

from dataclasses import dataclass
from typing import Final, final

from d5ray.metrics.definitions.side_by_side import OfAContender, RatioOfPairs

RECOVERY_TIME: Final = "recovery_time"
NEWCOMER_TIME: Final = "newcomer_time"
UNDONE_STEPS: Final = "undone_steps"
EQUAL: Final = "equal_at_the_end"
START_TIME: Final = "actor_start_time"
OF_ROUNDS: Final = "median over rounds of fresh processes"


@final
@dataclass(frozen=True)
class RecoveryTime(OfAContender):
    """The time from the kill of a process to the next committed step of the slowest survivor."""

    name = RECOVERY_TIME
    aggregation = OF_ROUNDS
    description = "from a kill to the next committed step of those that are left"


@final
@dataclass(frozen=True)
class NewcomerTime(OfAContender):
    """The time from the kill of a process to the first step of one that was started afterwards."""

    name = NEWCOMER_TIME
    aggregation = OF_ROUNDS
    description = "from a kill to the first step of a process that was started afterwards"


@final
@dataclass(frozen=True)
class UndoneSteps(OfAContender):
    """The number of steps that had been committed before the kill and are done again."""

    name = UNDONE_STEPS
    unit = "1"
    aggregation = OF_ROUNDS
    description = "committed steps that are done again after a kill"


@final
@dataclass(frozen=True)
class EqualAtTheEnd(OfAContender):
    """1 where all processes have the same parameters at the end, to the last bit; else 0."""

    name = EQUAL
    unit = "1"
    direction = "max"
    aggregation = OF_ROUNDS
    description = "1 where all processes end with the same parameters"


@final
@dataclass(frozen=True)
class StartTime(OfAContender):
    """The time in which Ray starts an actor that imports PyTorch."""

    name = START_TIME
    aggregation = OF_ROUNDS
    description = "until an actor of Ray has imported PyTorch"


@final
@dataclass(frozen=True)
class RecoveryTimeRatio(RatioOfPairs):
    """The recovery time of `ours` over that of `base`, measured in pairs."""

    name = "recovery_time_ratio"
    recorded = RECOVERY_TIME
    description = "from a kill to the next committed step, over that of the base"
