"""Metrics of recoveries: seconds until survivors and a newcomer train, steps done again, equal parameters"""

from abc import ABC
from dataclasses import dataclass
from typing import Final, final

from d5ray.kits.laboratory.metrics.side_by_side import OfAContender, RatioOfPairs

RECOVERY_TIME: Final = "recovery_time"
NEWCOMER_TIME: Final = "newcomer_time"
UNDONE_STEPS: Final = "undone_steps"
EQUAL: Final = "equal_at_the_end"
START_TIME: Final = "actor_start_time"


@dataclass(frozen=True)
class OfRounds(OfAContender, ABC):
    """A number of each round; every round has processes of its own."""

    aggregation = "median over rounds of fresh processes"


@final
class RecoveryTime(OfRounds, name=RECOVERY_TIME):
    """From a kill to the next committed step of those that are left."""


@final
class NewcomerTime(OfRounds, name=NEWCOMER_TIME):
    """From a kill to the first step of a process that was started afterwards."""


@final
class UndoneSteps(OfRounds, name=UNDONE_STEPS, unit="1"):
    """Committed steps that are done again after a kill."""


@final
class EqualAtTheEnd(OfRounds, name=EQUAL, unit="1", direction="max"):
    """1 where all processes end with the same parameters, to the last bit; else 0."""


@final
class StartTime(OfRounds, name=START_TIME):
    """The time until an actor of Ray has imported PyTorch."""


@final
class RecoveryTimeRatio(RatioOfPairs, name="recovery_time_ratio", recorded=RECOVERY_TIME):
    """From a kill to the next committed step, over that of the base."""
