"""The job that times operators through d5ray beside the native calls, and the contender: one fresh process"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from benchmarks.interleaved_job import InterleavedTiming
from d5ray.errors import ConfigurationError
from d5ray.metrics.definitions.operator_calls import OPERATOR_TIME
from d5ray.operators.framework import not_installed
from d5ray.ops.problem import Problem
from d5ray.recipes.engine.comparisons import processes
from d5ray.recipes.engine.comparisons.contenders import Contender, RankSeries

HASHED_AS = "d5ray.recipes.operator_overheads"  # where the first runs knew it

PROCESS_SECONDS: Final = 1800.0  # for one process to time all problems


@final
@dataclass(frozen=True, kw_only=True)
class OperatorOverheads(InterleavedTiming):
    """Frameworks under which operators are timed. Wrong values raise `ConfigurationError`.

    problems  products and convolutions of `d5ray.ops.deepbench.problems`
    seconds   about so long every problem is timed in each process
    """

    problems: tuple[Problem, ...]
    seconds: float = 0.5

    def check(self) -> None:
        super().check()
        known = isinstance(self.problems, tuple) and all(isinstance(each, Problem) for each in self.problems)
        names = [each.name for each in self.problems] if known else []
        if not names or len(set(names)) < len(names):
            raise ConfigurationError(
                f"problems is {self.problems!r}: it must be a tuple such as (gemm(512, 16, 512, 'NN'),), "
                "with none of them twice"
            )


@final
@dataclass(frozen=True)
class UnderFramework(Contender[OperatorOverheads]):
    """One process of its own that times all problems under a framework."""

    framework: str
    processes: int = field(default=1, init=False)

    @property
    def name(self) -> str:
        return f"{self.framework}[1]"

    def missing(self) -> str:
        return not_installed(self.framework)

    def measure(self, job: OperatorOverheads, folder: Path) -> list[RankSeries]:
        from benchmarks.operator_overhead.worker import OperatorTimes  # noqa: PLC0415 - only what is measured

        work = OperatorTimes(self.framework, job.problems, job.threads, job.seconds, job.seed)
        (found,) = processes.measured(work, folder, 1, PROCESS_SECONDS)
        return [
            RankSeries.in_turn(OPERATOR_TIME, f"{problem} {side}", times)
            for (problem, side), times in found.items()
        ]
