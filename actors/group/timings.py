"""The seconds that each part of a run's start takes"""

import time
from dataclasses import dataclass, field


@dataclass
class Timings:
    """Seconds from one point of the start to the next, in order."""

    seconds: dict[str, float] = field(default_factory=dict)
    _mark: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        """The time since the last lap belongs to `name`."""
        now = time.perf_counter()
        self.seconds[name] = now - self._mark
        self._mark = now
