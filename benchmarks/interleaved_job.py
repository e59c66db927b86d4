"""What jobs share whose contenders are processes outside Ray, with interleaved timing of several sides"""

from dataclasses import dataclass

from d5ray.checks import check_count, check_number
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide


@dataclass(frozen=True, kw_only=True)
class InterleavedTiming(SideBySide):
    """seconds: about so long everything is timed in each process; threads: of its numerical libraries."""

    seconds: float = 1.0
    threads: int = 1

    cpus = 0  # outside Ray

    def check(self) -> None:
        check_count("threads", self.threads, 1)
        check_number("seconds", self.seconds, low=0.0, low_included=False)
