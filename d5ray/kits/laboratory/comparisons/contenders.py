"""Contenders: ways to do a job's work, each in processes of its own, and what their ranks measured"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, final

from d5ray.kits.laboratory.comparisons.timing import Times

Job = TypeVar("Job", contravariant=True)


@final
@dataclass(frozen=True)
class RankSeries:
    """The values that one rank measured, one a step.

    warmup  the number of values at the start that are warm-up
    at      the size, or the like, that they were measured at
    loops   the repetitions that each value is the mean of
    stop_reason  why there are not more of them; empty where that was planned
    """

    metric: str
    unit: str
    rank: int
    values: Sequence[float | None]
    warmup: int = 0
    phase: str = "train"
    at: str = ""
    loops: int = 1
    stop_reason: str = ""

    @classmethod
    def of(cls, times: Times, metric: str, at: str = "", *, rank: int = 0, warmup: int = 0) -> "RankSeries":
        """The times of an operation."""
        return cls(metric, "s", rank, times.seconds, warmup, "run", at, times.loops, times.stop_reason)


class Contender(ABC, Generic[Job]):
    """One way to do the work of a job. A frozen dataclass: recipes name contenders as data.

    is_peer: it is no part of d5ray. Where it fails in a round, its own figures are unavailable with the
    reason, and those of the others count; what is d5ray's ends the recipe with its error.
    """

    word: str  # what it is, unless `name` says so by its values
    processes: int  # that work together
    is_peer: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The name in tables and criteria: what it is, with the number of processes in brackets."""
        return f"{self.word}[{self.processes}]"

    def missing(self) -> str:
        """The package or tool that lacks on this machine, and how to get it; empty if nothing lacks."""
        return ""

    @abstractmethod
    def measure(self, job: Job, folder: Path) -> list[RankSeries]:
        """Do the work in processes that nothing else ran in before, and that end with this call.

        folder: for its files, removed with the run's other temporary ones.
        """


AnyContender = Contender[Any]
