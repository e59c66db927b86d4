"""The job that measures the bubble of pipelines, and its contenders: schedules over stages with devices"""

from dataclasses import dataclass
from pathlib import Path
from typing import final

from benchmarks.trainers import of_steps
from d5ray.checks import check_count, check_number
from d5ray.distributed.mesh.mesh import Mesh
from d5ray.distributed.pipeline.schedule import PipelineSchedule
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.recipes.engine.comparisons.contenders import Contender, RankSeries
from d5ray.recipes.engine.comparisons.side_by_side import SideBySide
from d5ray.recipes.jobs import devices
from d5ray.training.optimizers.gradient_descent import SGD

HASHED_AS = "d5ray.recipes.pipeline_bubbles"  # where the first runs knew it

WIDTH = 16  # of the network's layers; there is one for every piece


@final
@dataclass(frozen=True, kw_only=True)
class PipelineBubbles(SideBySide):
    """Pipelines whose stages have a device each. Wrong values raise `ConfigurationError`.

    device_seconds  a stage's forward pass of a micro-batch takes, and so long its backward pass
    samples         of a micro-batch
    steps           measured of every process
    warmup_steps    steps before them
    """

    device_seconds: float = 0.01
    samples: int = 2
    steps: int = 10
    warmup_steps: int = 2

    def check(self) -> None:
        check_number("device_seconds", self.device_seconds, low=0.0, low_included=False)
        for name in ("samples", "steps"):
            check_count(name, getattr(self, name), 1)
        for contender in self.contenders():
            if not isinstance(contender, OnDevices):
                raise ConfigurationError(f"comparisons has {contender!r}: it must be an OnDevices(...)")
            contender.experiment(self)  # checks the rest


@final
@dataclass(frozen=True)
class OnDevices(Contender[PipelineBubbles]):
    """One schedule over this many stages and micro-batches."""

    schedule: PipelineSchedule
    processes: int  # the stages
    micro_batches: int

    @property
    def name(self) -> str:
        return f"{self.schedule!r}, {self.micro_batches} micro-batches[{self.processes}]"

    @property
    def formula(self) -> float:
        """Its bubble where stages take equally long and messages no time."""
        return self.schedule.bubble(self.processes, self.micro_batches)

    def on_paper(self, device_seconds: float, message_seconds: float) -> float:
        """Its bubble where a message takes so long; see `PipelineSchedule.predicted`."""
        pieces, chunks = self.processes * self.schedule.chunks, self.schedule.chunks
        times = [device_seconds / chunks] * pieces
        return self.schedule.predicted(
            self.processes, self.micro_batches, times, times, transfer_seconds=message_seconds
        ).bubble

    def missing(self) -> str:
        return ""

    def experiment(self, job: PipelineBubbles) -> Experiment:
        """What runs: a multilayer perceptron with a layer a piece, each as long on the device."""
        mesh = Mesh(1, self.processes, schedule=self.schedule, micro_batches=self.micro_batches)
        return Experiment(
            model="mlp",
            model_kwargs={"hidden": (WIDTH,) * (mesh.pieces - 1)},
            dataset="digits",
            optimizer=SGD(0.01),
            mesh=mesh,
            batch_size=self.micro_batches * job.samples,
            executor=devices.from_model,
            executor_kwargs={"seconds": job.device_seconds / self.schedule.chunks},
            threads=1,
            seed=job.seed,
            warmup_steps=job.warmup_steps,
            evaluate=False,
        )

    def measure(self, job: PipelineBubbles, folder: Path) -> list[RankSeries]:
        from d5ray.actors.launch import launch  # noqa: PLC0415 - imports Ray

        with launch(self.experiment(job), quiet=True, root=folder) as group:
            group.train(job.warmup_steps + job.steps, progress=False)
            return of_steps(group.metrics(), job.warmup_steps)
