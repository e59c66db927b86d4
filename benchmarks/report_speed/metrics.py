"""Metrics of what people look at: how long a report takes, from the command to its end"""

from dataclasses import dataclass
from typing import Final, final

from d5ray.metrics.definitions.side_by_side import OfAContender

REPORT_TIME: Final = "report_time"


@final
@dataclass(frozen=True)
class ReportTime(OfAContender):
    """The whole command `d5ray report`, on runs of this size each; the start of Python is part of it."""

    size: str

    name = REPORT_TIME
    description = "the command d5ray report, from its start to its end"
