"""The job that times executors beside models written by hand, and the contender: one fresh process"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from benchmarks.executor_overhead.measured_network import MeasuredNetwork
from benchmarks.executor_overhead.metrics import EXECUTOR_TIME
from benchmarks.interleaved_timing import InterleavedTiming
from d5ray.kits.laboratory.comparisons import processes
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries
from d5ray.operators.framework import not_installed

HASHED_AS = "d5ray.recipes.executor_overheads"  # where the first runs knew it

PROCESS_SECONDS: Final = 1800.0  # for one process to time both passes


@final
@dataclass(frozen=True, kw_only=True)
class ExecutorOverheads(InterleavedTiming):
    """Networks whose passes are timed. Wrong values raise `ConfigurationError`.

    seconds   about so long each kind of pass is timed in each process
    """

    seconds: float = 2.0


@final
@dataclass(frozen=True)
class HandWrittenNetwork(MeasuredNetwork, Contender[ExecutorOverheads]):
    """One process of its own that times a network of which there is a model written by hand."""

    processes: int = field(default=1, init=False)

    @property
    def name(self) -> str:
        return f"{self.framework} {self.network}[1]"

    def missing(self) -> str:
        return not_installed(self.framework)

    def measure(self, job: ExecutorOverheads, folder: Path) -> list[RankSeries]:
        from benchmarks.executor_overhead.worker import ExecutorTimes  # noqa: PLC0415 - only what is measured

        work = ExecutorTimes(self, job.threads, job.seconds, job.seed)
        (found,) = processes.measured(work, folder, 1, PROCESS_SECONDS)
        return [
            RankSeries.of(times, EXECUTOR_TIME, f"{kind} {side}", warmup=1)
            for (kind, side), times in found.items()
        ]
