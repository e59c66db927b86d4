"""The job that compares steps on whole batches with steps in micro-batches, and its two contenders"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, final

from benchmarks.microbatch_speed.metrics import STEP_PEAK_MEMORY
from d5ray.checks import check_count, check_share
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.comparisons import processes
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide
from d5ray.metrics.definitions.catalogue import StepTime

if TYPE_CHECKING:
    from benchmarks.microbatch_speed.worker import MicrobatchWork

HASHED_AS = "d5ray.recipes.microbatch_steps"  # where the first runs knew it

PROCESS_SECONDS = 1800.0  # for one process to measure its steps
MARGIN = 0.05  # of the share, that stays free when a size is chosen: so far apart are two processes' peaks


@final
@dataclass(frozen=True, kw_only=True)
class MicrobatchSteps(SideBySide):
    """A network whose steps are measured. Wrong values raise `ConfigurationError`.

    network, sample_shape   one of the catalogue's, for samples of this shape; its statistics are frozen
    share                   of the whole step's peak memory, within which the micro-batches must stay
    sizes                   of micro-batches, of which the quickest within that is chosen
    steps                   measured steps of every process; one comes before them
    """

    network: str
    sample_shape: tuple[int, ...]
    share: float = 0.25
    batch_size: int = 128
    sizes: tuple[int, ...] = (8, 16, 32)
    steps: int = 3
    threads: int = 1

    cpus = 0  # outside Ray

    def check(self) -> None:
        for name in ("batch_size", "steps", "threads"):
            check_count(name, getattr(self, name), 1)
        check_share("share", self.share)
        if not isinstance(self.sizes, tuple) or not self.sizes:
            raise ConfigurationError(
                f"sizes is {self.sizes!r}: it must be a tuple of sizes of micro-batches, such as (8, 16, 32)"
            )
        for size in self.sizes:
            check_count("a size of sizes", size, 1)
            if size >= self.batch_size:
                raise ConfigurationError(
                    f"sizes has {size}, and the batch {self.batch_size} samples: a micro-batch is smaller"
                )


@cache
def chosen_size(job: MicrobatchSteps) -> int:
    """The size that is measured beside the whole, found once in a run; it keeps `MARGIN` from the limit.

    Raises `ConfigurationError` where none does, with the least that there is.
    """
    from d5ray.networks.microbatch.measuring import fastest_within  # noqa: PLC0415 - loaded when needed

    found = _work(job, job.batch_size).costs(job.sizes)
    whole = found.pop(job.batch_size)
    return fastest_within(found, int((1 - MARGIN) * job.share * whole.peak_bytes))


def _work(job: MicrobatchSteps, size: int) -> "MicrobatchWork":
    from benchmarks.microbatch_speed.worker import MicrobatchWork  # noqa: PLC0415 - imports torch

    return MicrobatchWork(
        network=job.network,
        sample_shape=job.sample_shape,
        batch_size=job.batch_size,
        size=size,
        steps=job.steps,
        threads=job.threads,
        seed=job.seed,
    )


def _measured(job: MicrobatchSteps, size: int, folder: Path) -> list[RankSeries]:
    ((seconds, peak),) = processes.measured(_work(job, size), folder, 1, PROCESS_SECONDS)
    return [
        RankSeries(StepTime.name, "s", 0, seconds, warmup=1, phase="run"),
        RankSeries(STEP_PEAK_MEMORY, "B", 0, [peak], phase="run"),
    ]


@final
@dataclass(frozen=True)
class WholeBatches(Contender[MicrobatchSteps]):
    """The plain executor."""

    processes: int = field(default=1, init=False)
    word = "whole"

    def measure(self, job: MicrobatchSteps, folder: Path) -> list[RankSeries]:
        return _measured(job, job.batch_size, folder)


@final
@dataclass(frozen=True)
class InMicroBatches(Contender[MicrobatchSteps]):
    """The same executor in micro-batches of the size that was chosen."""

    processes: int = field(default=1, init=False)
    word = "micro"

    def measure(self, job: MicrobatchSteps, folder: Path) -> list[RankSeries]:
        return _measured(job, chosen_size(job), folder)
