"""Contenders that train: d5ray's agents, a loop by hand, DistributedDataParallel, Ray Train's TorchTrainer"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import torch_trainer
from benchmarks.step_times import StepTimes
from d5ray.distributed.optimizers.local_sgd import LocalSGD
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries
from d5ray.kits.laboratory.jobs.trainings import accuracy_now
from d5ray.metrics.definitions.catalogue import StepTime, TestAccuracy, Throughput, TrainingLoss
from d5ray.training.events.event import Event

if TYPE_CHECKING:
    from benchmarks.torch_loops import Trained

HASHED_AS = "d5ray.recipes.trainers"  # where the first runs knew it

TRAINING_SECONDS = 3600.0  # for a loop in plain PyTorch, which shows no sign of life while it runs


@final
@dataclass(frozen=True)
class Agents(Contender[StepTimes]):
    """d5ray's agents, launched and recorded as every experiment is.

    apart   each trains a model of its own and hears nothing of the others: what computing side by side costs
    events  what happens around the training
    """

    processes: int
    communicator: str = "auto"
    apart: bool = False
    events: tuple[Event, ...] = ()

    @property
    def name(self) -> str:
        by = "" if self.communicator == "auto" else f" {self.communicator}"
        how = " apart" * self.apart + " with events" * bool(self.events)
        return f"d5ray{by}{how}[{self.processes}]"

    def measure(self, job: StepTimes, folder: Path) -> list[RankSeries]:
        from d5ray.actors.calls import CALL_SECONDS, get  # noqa: PLC0415 - imports Ray
        from d5ray.actors.launch import launch  # noqa: PLC0415 - imports Ray

        experiment = job.experiment(job.data, self.processes, self.communicator)
        if self.events:
            experiment = replace(experiment, events=self.events)
        if self.apart:
            experiment = replace(experiment, distributed=LocalSGD(period=job.all_steps + 1))
        with launch(experiment, quiet=True, root=folder) as group:
            group.train(job.all_steps, progress=False)
            evaluating = [agent.__ray_call__.remote(accuracy_now) for agent in group.agents]
            accuracies = get(evaluating, CALL_SECONDS, "evaluate")
            samples = group.metrics()
        return of_steps(samples, job.warmup_steps) + _of_evaluations(accuracies)


@final
@dataclass(frozen=True)
class HandWritten(Contender[StepTimes]):
    """A loop in plain PyTorch, in one process."""

    processes: int = field(default=1, init=False)
    word = "pytorch"

    def measure(self, job: StepTimes, folder: Path) -> list[RankSeries]:
        from benchmarks.torch_loops import HandWrittenLoop  # noqa: PLC0415 - imports torch
        from d5ray.actors.calls import get  # noqa: PLC0415 - imports Ray
        from d5ray.actors.remote import SETUP_SECONDS, spawned  # noqa: PLC0415 - imports Ray

        with spawned(HandWrittenLoop, [(job.task,)]) as loops:
            get([loops[0].parameters.remote()], SETUP_SECONDS, "build the model")
            training = loops[0].train.remote(job.all_steps)
            return _of_loops(get([training], TRAINING_SECONDS, "train"), job)


@final
@dataclass(frozen=True)
class DataParallel(Contender[StepTimes]):
    """Processes of PyTorch's own `DistributedDataParallel`, over gloo."""

    processes: int
    is_peer: ClassVar[bool] = True
    word = "ddp"

    def measure(self, job: StepTimes, folder: Path) -> list[RankSeries]:
        from benchmarks.torch_loops import DistributedDataParallelLoop  # noqa: PLC0415 - imports torch
        from d5ray.actors.calls import CALL_SECONDS, get  # noqa: PLC0415 - imports Ray
        from d5ray.actors.remote import SETUP_SECONDS, spawned  # noqa: PLC0415 - imports Ray

        members = [(job.task, rank, self.processes) for rank in range(self.processes)]
        with spawned(DistributedDataParallelLoop, members) as loops:
            port = get([loops[0].host_store.remote()], SETUP_SECONDS, "open the store")[0]
            get([loop.join.remote(port) for loop in loops], SETUP_SECONDS, "join the group")
            training = [loop.train.remote(job.all_steps) for loop in loops]
            trained = get(training, TRAINING_SECONDS, "train")
            get([loop.close.remote() for loop in loops], CALL_SECONDS, "leave the group")
            return _of_loops(trained, job)


@final
@dataclass(frozen=True)
class RayTrain(Contender[StepTimes]):
    """Workers of Ray Train's `TorchTrainer`, over gloo: `prepare_model` makes a DistributedDataParallel."""

    processes: int
    is_peer: ClassVar[bool] = True
    word = "ray.train"

    def missing(self) -> str:
        return torch_trainer.missing()

    def measure(self, job: StepTimes, folder: Path) -> list[RankSeries]:
        from d5ray.actors.calls import get  # noqa: PLC0415 - imports Ray
        from d5ray.actors.remote import spawned  # noqa: PLC0415 - imports Ray

        given = {"task": job.task, "steps": job.all_steps, "folder": str(folder)}
        with spawned(torch_trainer.TorchTrainerHost, [()], cpus=0.0) as (host,):
            training = host.train.remote(torch_trainer.loop_by_hand, given, self.processes)
            get([training], TRAINING_SECONDS, "train")
        files = (folder / f"{rank}.pickle" for rank in range(self.processes))
        return _of_loops([pickle.loads(file.read_bytes()) for file in files], job)


def of_steps(samples: pa.Table, warmup: int) -> list[RankSeries]:
    """What agents recorded at every step, by metric and rank."""
    of_steps = samples.filter(pc.is_in(samples["phase"], pa.array(["warmup", "train"]))).sort_by("seq")
    columns = (of_steps[name].to_pylist() for name in ("metric", "unit", "rank", "value"))
    values: dict[tuple[str, str, int], list[float | None]] = {}
    for metric, unit, rank, value in zip(*columns, strict=True):
        values.setdefault((metric, unit, rank), []).append(value)
    return [RankSeries(*key, values=found, warmup=warmup) for key, found in values.items()]


def _of_evaluations(accuracies: Sequence[float]) -> list[RankSeries]:
    return [
        RankSeries(TestAccuracy.name, "1", rank, [accuracy], phase="test")
        for rank, accuracy in enumerate(accuracies)
    ]


def _of_loops(trained: "Sequence[Trained]", job: StepTimes) -> list[RankSeries]:
    """What the loops in plain PyTorch noted, by rank."""
    seconds = [np.diff(own.marks) * 1e-9 for own in trained]
    derived: dict[tuple[str, str], Callable[[int], Any]] = {
        (StepTime.name, StepTime.unit): lambda rank: seconds[rank],
        (Throughput.name, Throughput.unit): lambda rank: job.batch_size / seconds[rank],
        (TrainingLoss.name, TrainingLoss.unit): lambda rank: np.array(trained[rank].losses),
    }
    return [
        RankSeries(*key, rank, values(rank).tolist(), warmup=job.warmup_steps)
        for rank in range(len(trained))
        for key, values in derived.items()
    ] + _of_evaluations([own.accuracy for own in trained])
