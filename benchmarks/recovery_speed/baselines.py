"""Contenders that are killed beside d5ray's agents: torchft, Ray Train, hivemind; and what a start takes"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, final

from benchmarks import torch_trainer
from benchmarks.recovery_speed.job import Recoveries
from benchmarks.recovery_speed.marks import VICTIM, noted, outcome
from benchmarks.recovery_speed.metrics import START_TIME
from d5ray.errors import AgentError
from d5ray.kits.laboratory.comparisons import processes
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries

TOLD_SECONDS = 60.0  # for a process to say where it is to be found


@final
@dataclass(frozen=True)
class TorchFT(Contender[Recoveries]):
    """Replicas of torchft with one process each, a lighthouse beside them; a dead one is started again."""

    processes: int
    is_peer: ClassVar[bool] = True
    word = "torchft"

    def missing(self) -> str:
        return torch_trainer.absent("torchft", "torchft==0.2.0")

    def measure(self, job: Recoveries, folder: Path) -> list[RankSeries]:
        from benchmarks.recovery_speed.worker import lighthouse, with_torchft  # noqa: PLC0415 - imports torch

        with workers(folder) as start:
            start(lighthouse, {"folder": str(folder), "processes": self.processes})
            given = {"lighthouse": told(folder, "lighthouse"), "processes": self.processes}
            return killed_and_replaced(self.processes, job, folder, with_torchft, given, start)


@final
@dataclass(frozen=True)
class Hivemind(Contender[Recoveries]):
    """Peers of hivemind, which average their gradients for every step; a dead one is started again."""

    processes: int
    is_peer: ClassVar[bool] = True
    word = "hivemind"

    def missing(self) -> str:
        return torch_trainer.absent("hivemind", "hivemind")

    def measure(self, job: Recoveries, folder: Path) -> list[RankSeries]:
        from benchmarks.recovery_speed.worker import with_hivemind  # noqa: PLC0415 - imports torch

        with workers(folder) as start:
            first: dict[str, Any] = {"peers": [], "late": False, "processes": self.processes}
            start(with_hivemind, of(job, folder, 0) | first)
            given = first | {"peers": json.loads(told(folder, "peers"))}
            return killed_and_replaced(self.processes, job, folder, with_hivemind, given, start, begun=1)


@final
@dataclass(frozen=True)
class RayTrainAgain(Contender[Recoveries]):
    """Workers of Ray Train's `TorchTrainer`, all of which start again from a checkpoint."""

    processes: int
    is_peer: ClassVar[bool] = True
    word = "ray.train"

    def missing(self) -> str:
        return torch_trainer.missing()

    def measure(self, job: Recoveries, folder: Path) -> list[RankSeries]:
        from benchmarks.recovery_speed.ray_train import MOST_FAILURES, from_checkpoints  # noqa: PLC0415
        from d5ray.actors.calls import get  # noqa: PLC0415 - imports Ray
        from d5ray.actors.remote import spawned  # noqa: PLC0415 - imports Ray

        with spawned(torch_trainer.TorchTrainerHost, [()], cpus=0.0) as (host,):
            training = host.train.remote(from_checkpoints, of(job, folder, 0), self.processes, MOST_FAILURES)
            moment, victim = job.kill(self.processes, self.processes).strike(folder)
            get([training], job.seconds, "train")
        return outcome(noted(folder), moment, victim)


@final
@dataclass(frozen=True)
class Start(Contender[Recoveries]):
    """An actor of Ray that imports PyTorch: what a newcomer takes before it can do anything."""

    processes: int = field(default=1, init=False)
    word = "start"

    def measure(self, job: Recoveries, folder: Path) -> list[RankSeries]:
        from benchmarks.recovery_speed.ray_train import ImportsTorch  # noqa: PLC0415 - imports Ray
        from d5ray.actors.calls import get  # noqa: PLC0415 - imports Ray
        from d5ray.actors.remote import SETUP_SECONDS, spawned  # noqa: PLC0415 - imports Ray

        begin = time.perf_counter()
        with spawned(ImportsTorch, [()]) as (actor,):
            get([actor.version.remote()], SETUP_SECONDS, "import PyTorch")
            seconds = time.perf_counter() - begin
        return [RankSeries(START_TIME, "s", 0, [seconds], phase="run")]


# --------------------------------------------------------------------------------------------------------


def of(job: Recoveries, folder: Path, rank: int) -> dict[str, Any]:
    """What every process is told."""
    told = {"model": job.model, "dataset": job.dataset, "batch_size": job.batch_size, "seed": job.seed}
    return told | {"folder": str(folder), "rank": rank}


def killed_and_replaced(
    count: int, job: Recoveries, folder: Path, train: Any, given: dict[str, Any], start: Any, begun: int = 0
) -> list[RankSeries]:
    """Start the processes that are not begun, kill one, start it again at once; gives rows of it."""
    for rank in range(begun, count):
        start(train, of(job, folder, rank) | given)

    def again() -> None:
        start(train, of(job, folder, VICTIM) | given | {"late": True})

    moment, victim = job.kill(count, count).strike(folder, killed=again)
    return outcome(noted(folder), moment, victim)


@contextmanager
def workers(folder: Path) -> Iterator[Any]:
    """Gives start(do, given), which has a fresh process do what `worker` says; all end with the context.

    An `AgentError` tells what the processes wrote last.
    """
    own: list[Path] = []
    with processes.starting() as starting:

        def start(do: Any, given: dict[str, Any]) -> None:
            own.append(folder / f"{do.__name__}-{len(own)}")
            own[-1].mkdir()
            starting(partial(do, given), own[-1], processes.plain(own[-1], 1))

        try:
            yield start
        except AgentError as error:
            raise AgentError("\n".join([str(error), *map(processes.tail, own)])) from error


def told(folder: Path, name: str) -> str:
    """What a process tells by this name; `AgentError` if it does not in time."""
    return processes.awaited(folder / f"{name}.told", TOLD_SECONDS, f"{name} was not told")
