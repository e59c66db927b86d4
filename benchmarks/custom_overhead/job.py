"""The job that times custom operators beside PyTorch's own function, and the contender: one fresh process"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from benchmarks.interleaved_job import InterleavedTiming
from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.metrics.definitions.operator_calls import OPERATOR_TIME
from d5ray.operators.custom.cpp import compilers
from d5ray.recipes.engine.comparisons import processes
from d5ray.recipes.engine.comparisons.contenders import Contender, RankSeries

HASHED_AS = "d5ray.recipes.custom_overheads"  # where the first runs knew it

PROCESS_SECONDS: Final = 600.0  # for one process to compile, and to time everything


@final
@dataclass(frozen=True, kw_only=True)
class CustomOverheads(InterleavedTiming):
    """Cubes of float32 numbers, by operators of the user's own. Wrong values raise `ConfigurationError`.

    elements  of the tensor
    seconds   about so long each pass of each operator is timed in each process
    """

    elements: int = 1
    seconds: float = 0.5

    def check(self) -> None:
        super().check()
        check_count("elements", self.elements, 1)


@final
@dataclass(frozen=True)
class CustomOperator(Contender[CustomOverheads]):
    """One process of its own that times an operator written in Python or in C++, under PyTorch."""

    language: str
    processes: int = field(default=1, init=False)

    @property
    def name(self) -> str:
        return f"custom {self.language}[1]"

    def missing(self) -> str:
        if self.language == "C++":
            try:
                compilers.find()
            except ConfigurationError as error:
                return str(error)
        return ""

    def measure(self, job: CustomOverheads, folder: Path) -> list[RankSeries]:
        from benchmarks.custom_overhead.worker import CustomTimes  # noqa: PLC0415 - imports torch

        work = CustomTimes(self.language, job.elements, job.threads, job.seconds, job.seed)
        (found,) = processes.measured(work, folder, 1, PROCESS_SECONDS)
        return [
            RankSeries.in_turn(OPERATOR_TIME, f"{what} {side}", times)
            for (what, side), times in found.items()
        ]
