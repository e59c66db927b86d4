"""The metric of how long checkpoints take, over the time to write as many bytes"""

from dataclasses import dataclass
from typing import Final, final

from d5ray.errors import ConfigurationError
from d5ray.metrics.definitions.side_by_side import scope_of, time_ratio
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.intervals import Estimate

CHECKPOINT_TIME: Final = "checkpoint_time"
SAVE, RESTORE, WRITE = "save", "restore", "write"


@final
@dataclass(frozen=True)
class CheckpointTimeRatio(Metric):
    """How many times saving or restoring takes as long as writing the bytes, in turn in one process."""

    contender: str
    what: str
    size: str

    name = "checkpoint_time_ratio"
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "median within each process, median of the log-ratio over processes"
    description = "the time to save, or to restore, over that of writing as many bytes to the disk"

    def __post_init__(self) -> None:
        if self.what not in (SAVE, RESTORE):
            raise ConfigurationError(f"what is {self.what!r}: it must be 'save' or 'restore'")

    def estimate(self, run: RunTables) -> Estimate:
        ours, base = (scope_of(self.contender, side) for side in (self.what, WRITE))
        return time_ratio(run, CHECKPOINT_TIME, ours, base, self.size)
