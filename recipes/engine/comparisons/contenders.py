"""What a contender is: one way to do a job's work, in processes of its own, and what its ranks measured"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, final

from d5ray.recipes.engine.comparisons.timing import Times

Job = TypeVar("Job", contravariant=True)


@final
@dataclass(frozen=True)
class Series:
    """What one rank measured, one value a step.

    warmup  so many values at the start are warm-up
    at      the size, or the like, that they were measured at
    loops   so many repetitions each value is the mean of
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
    def in_turn(cls, metric: str, at: str, times: Times) -> "Series":
        """What one side took in a process that times several in turn; the first value is warm-up."""
        return cls(metric, "s", 0, times.seconds, warmup=1, phase="run", at=at, loops=times.loops)


class Contender(ABC, Generic[Job]):
    """One way to do the work of a job. A frozen dataclass: recipes name contenders as data."""

    processes: int  # that work together

    @property
    @abstractmethod
    def name(self) -> str:
        """In tables and criteria: what it is, with the number of processes in brackets."""

    @abstractmethod
    def missing(self) -> str:
        """What it lacks on this machine, and how to get it; empty if nothing."""

    @abstractmethod
    def measure(self, job: Job, folder: Path) -> list[Series]:
        """Do the work in processes that nothing else ran in before, and that end with this call.

        folder: for its files, removed with the run's other temporary ones.
        """


AnyContender = Contender[Any]
