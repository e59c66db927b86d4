"""The clock of a run: times of the wall that follow from its monotonic clock, whoever sets the machine's"""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final, final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def measured() -> int:
    """The nanoseconds between this machine's clock of the wall and its monotonic one, as they are now."""
    return time.time_ns() - time.perf_counter_ns()


@cache
def boot() -> str:
    """An identifier of this start of the machine, whose processes have one monotonic clock; "" if unknown."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


@final
@dataclass(frozen=True)
class RunClock:
    """The clocks of a machine as they were when a run began; on other machines each process has its own.

    The clock of the wall may be set meanwhile, by an hour or more. The times of a run then go on as if nobody
    had, also those of processes that are started later: they agree with each other, and with durations.
    """

    offset: int = field(default_factory=measured)  # ns
    boot: str = field(default_factory=boot)

    @property
    def wall_minus_mono(self) -> int:
        """The nanoseconds that a process of this machine adds to its monotonic clock."""
        return self.offset if self.boot and self.boot == boot() else measured()

    def time_ns(self) -> int:
        """The time of the wall now, in ns of Unix time."""
        return time.perf_counter_ns() + self.wall_minus_mono

    def now(self) -> datetime:
        """The time of the wall now."""
        return datetime.fromtimestamp(self.time_ns() / 1e9, UTC)
