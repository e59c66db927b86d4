"""The job that times checkpoints: saved, restored, and as many bytes written, in turn in one process"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, final

import numpy as np

from benchmarks.checkpoint_speed.metrics import CHECKPOINT_TIME, RESTORE, SAVE, WRITE
from benchmarks.sizes import check_sizes, elements_of
from d5ray.checks import check_count
from d5ray.distributed.checkpoints.checkpoint import Checkpoints, Saved, restore, save
from d5ray.distributed.checkpoints.folder import CheckpointFolder
from d5ray.distributed.checkpoints.savers import Savers
from d5ray.distributed.communicators.simple.solo import Solo
from d5ray.distributed.group.group import Group
from d5ray.distributed.optimizers.allreduce import AllreduceSGD
from d5ray.distributed.topologies.topology import Complete
from d5ray.errors import AgentError
from d5ray.frameworks.torch import from_model
from d5ray.networks.executors.executor import Executor
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss
from d5ray.recipes.engine.comparisons import processes
from d5ray.recipes.engine.comparisons.contenders import Contender, RankSeries
from d5ray.recipes.engine.comparisons.side_by_side import SideBySide
from d5ray.training.optimizers.gradient_descent import Momentum

if TYPE_CHECKING:
    from d5ray.actors.session.session import Session

HASHED_AS = "d5ray.recipes.checkpoint_times"  # where the first runs knew it

PROCESS_SECONDS = 600.0
CLASSES = 10
Times = dict[str, dict[str, list[float]]]  # seconds by size and what was done


@final
@dataclass(frozen=True, kw_only=True)
class CheckpointTimes(SideBySide):
    """Checkpoints of networks of several sizes. Wrong values raise `ConfigurationError`.

    sizes         of the parameters, such as "100 MB"
    repetitions   of everything, at every size, in a process
    """

    sizes: tuple[str, ...]
    repetitions: int = 7

    def check(self) -> None:
        check_sizes(self.sizes)
        check_count("repetitions", self.repetitions)

    def connect(self, address: str | None, metadata: dict[str, str], quiet: bool) -> "Session":
        return processes.without_ray(address)


@final
@dataclass(frozen=True)
class SavedAndWritten(Contender[CheckpointTimes]):
    """Checkpoints of one agent, and files as large."""

    processes: int = field(default=1, init=False)

    @property
    def name(self) -> str:
        return "checkpoint[1]"

    def missing(self) -> str:
        return ""

    def measure(self, job: CheckpointTimes, folder: Path) -> list[RankSeries]:
        work = InTurn(job.sizes, job.repetitions, str(folder))
        (found,) = processes.measured(work, folder, 1, PROCESS_SECONDS)
        return [
            RankSeries(CHECKPOINT_TIME, "s", 0, seconds, phase="run", at=f"{what} {size}")
            for size, times in found.items()
            for what, seconds in times.items()
        ]


@final
@dataclass(frozen=True)
class InTurn:
    """The work of the one process."""

    sizes: tuple[str, ...]
    repetitions: int
    folder: str

    def __call__(self, rank: int) -> Times:
        return {size: self.of(size) for size in self.sizes}

    def of(self, size: str) -> dict[str, list[float]]:
        """Seconds to save, restore and write; the first turn is not counted."""
        executor, optimizer = _training(elements_of(size))
        rng = np.random.default_rng(1)
        place = Path(self.folder) / "saved"
        savers = Savers(optimizer.communication)
        here = Saved(step=1, epoch=0, settled=False, elapsed_seconds=0.0)
        written = save(str(place), 0, savers, optimizer, executor, (), here, {"experiment": {}})
        expected = executor.numpy_parameters()
        block = rng.bytes(written)  # zeros would all be one page of memory
        found: dict[str, list[float]] = {SAVE: [], RESTORE: [], WRITE: []}

        def saving() -> None:
            save(str(place), 0, savers, optimizer, executor, (), here, {"experiment": {}})

        def restoring() -> None:
            restore(Checkpoints(str(place), 1), savers, optimizer, executor, ())

        def writing() -> None:
            with (Path(self.folder) / "plain").open("wb", buffering=0) as file:
                file.write(block)
                os.fsync(file.fileno())

        turns: list[tuple[str, Callable[[], None]]] = [(SAVE, saving), (WRITE, writing), (RESTORE, restoring)]
        for turn in range(self.repetitions + 1):
            for what, do in turns if turn % 2 else reversed(turns):
                if what == SAVE:
                    CheckpointFolder(str(place)).forget(1)
                if what == WRITE:
                    (Path(self.folder) / "plain").unlink(missing_ok=True)
                if what == RESTORE:
                    executor.parameters[...] = 0
                begin = perf_counter()
                do()
                seconds = perf_counter() - begin
                if turn:
                    found[what].append(seconds)
                if what == RESTORE and executor.numpy_parameters().tobytes() != expected.tobytes():
                    raise AgentError(
                        f"what was restored at {size} is not what was saved: nothing is measured"
                    )
        return found


def _training(elements: int) -> tuple[Executor, AllreduceSGD]:
    """A network of about that many parameters, after a step of momentum."""
    width = max(1, math.isqrt(elements))
    executor = from_model(
        "mlp", {"hidden": (width,)}, sample_shape=(1, 1, width), classes=CLASSES,
        loss=SoftmaxCrossEntropyLoss(), seed=1, threads=1,
    )  # fmt: skip
    optimizer = AllreduceSGD()
    communication = Solo(Group("checkpoint", 0, 0, 1), Complete(1))
    rng = np.random.default_rng(1)
    optimizer.bind(executor=executor, base=Momentum(0.1, 0.9), communication=communication, rng=rng)
    optimizer.apply(executor.parameters * 1e-3)
    return executor, optimizer
