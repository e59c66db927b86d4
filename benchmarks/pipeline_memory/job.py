"""The job that trains one network within a limit of memory, and its contenders: whole, and in stages"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from benchmarks.microbatch_speed.metrics import STEP_PEAK_MEMORY
from benchmarks.pipeline_memory.metrics import OUT_OF_MEMORY
from benchmarks.trainers import of_steps
from d5ray.checks import check_count
from d5ray.distributed.mesh.mesh import Mesh
from d5ray.errors import ConfigurationError, D5Error
from d5ray.experiment import Experiment
from d5ray.networks.stages.balanced import Balanced
from d5ray.recipes.engine.comparisons.contenders import Contender, RankSeries
from d5ray.recipes.engine.comparisons.side_by_side import SideBySide
from d5ray.training.optimizers.optimizer import Optimizer

HASHED_AS = "d5ray.recipes.limited_trainings"  # where the first runs knew it

NOTE = "out_of_memory"  # the file that a process leaves that has held too much


@final
@dataclass(frozen=True, kw_only=True)
class LimitedTrainings(SideBySide):
    """A training whose processes have a limit of memory each. Wrong values raise `ConfigurationError`.

    model, dataset, optimizer, batch_size, threads, seed: as in an `Experiment`
    limit_bytes    for parameters, gradients, the optimizer's state and activations of one process
    copies         of a parameter, by which stages are cut: as it came, as it trains, gradient, velocity
    micro_batches  into which stages divide a batch
    steps          of every process
    """

    model: str
    dataset: str
    optimizer: Optimizer
    limit_bytes: int
    model_kwargs: dict[str, Any] = field(default_factory=dict)
    copies: int = 4
    batch_size: int = 32
    micro_batches: int = 4
    steps: int = 30
    threads: int = 1

    def check(self) -> None:
        for name in ("limit_bytes", "steps", "copies"):
            check_count(name, getattr(self, name), 1)
        for contender in self.contenders():
            if not isinstance(contender, WholeNetwork | LimitedStages):
                raise ConfigurationError(
                    f"comparisons has {contender!r}: it must be one of WholeNetwork, LimitedStages"
                )
            contender.experiment(self, Path())  # checks the rest

    def experiment(self, mesh: Mesh | None, limited: bool, folder: Path) -> Experiment:
        """What runs, on as many agents as the mesh has. folder: for the note of who has held too much."""
        from benchmarks.pipeline_memory import memory_limits  # noqa: PLC0415 - imports torch

        return Experiment(
            model=self.model,
            model_kwargs=self.model_kwargs,
            dataset=self.dataset,
            optimizer=self.optimizer,
            mesh=mesh,
            agents=None if mesh is not None else 1,
            batch_size=self.batch_size,
            executor=memory_limits.from_model,
            executor_kwargs={
                "limit_bytes": self.limit_bytes if limited else 0,
                "note": str(folder / NOTE),
            },
            threads=self.threads,
            seed=self.seed,
            warmup_steps=0,
            evaluate=False,
        )


@final
@dataclass(frozen=True)
class WholeNetwork(Contender[LimitedTrainings]):
    """One executor; limited: to the job's memory."""

    limited: bool = False
    processes: int = field(default=1, init=False)

    @property
    def name(self) -> str:
        return "whole, limited[1]" if self.limited else "whole[1]"

    def missing(self) -> str:
        return ""

    def experiment(self, job: LimitedTrainings, folder: Path) -> Experiment:
        """What runs."""
        return job.experiment(None, self.limited, folder)

    def measure(self, job: LimitedTrainings, folder: Path) -> list[RankSeries]:
        return _trained(job, self.experiment(job, folder), folder)


@final
@dataclass(frozen=True)
class LimitedStages(Contender[LimitedTrainings]):
    """A network in this many stages, each in the job's memory, which the cut respects."""

    processes: int

    @property
    def name(self) -> str:
        return f"stages, limited[{self.processes}]"

    def missing(self) -> str:
        return ""

    def experiment(self, job: LimitedTrainings, folder: Path) -> Experiment:
        """What runs."""
        cut = Balanced(self.processes, limit_bytes=job.limit_bytes, copies=job.copies)
        mesh = Mesh(1, self.processes, cut=cut, micro_batches=job.micro_batches)
        return job.experiment(mesh, True, folder)

    def measure(self, job: LimitedTrainings, folder: Path) -> list[RankSeries]:
        return _trained(job, self.experiment(job, folder), folder)


def _trained(job: LimitedTrainings, experiment: Experiment, folder: Path) -> list[RankSeries]:
    """What the agents recorded, and their peaks; that memory was used up, where it was."""
    from benchmarks.pipeline_memory.memory_limits import peak_bytes  # noqa: PLC0415 - imports torch
    from d5ray.actors.calls import CALL_SECONDS, get  # noqa: PLC0415 - imports Ray
    from d5ray.actors.launch import launch  # noqa: PLC0415 - imports Ray

    try:
        with launch(experiment, quiet=True, root=folder) as group:
            group.train(job.steps, progress=False)
            asked = [agent.__ray_call__.remote(peak_bytes) for agent in group.agents]
            peaks = get(asked, CALL_SECONDS, "tell how much memory they took")
            samples = group.metrics()
    except D5Error:
        if not (folder / NOTE).exists():
            raise
        return [RankSeries(OUT_OF_MEMORY, "1", 0, [1.0], phase="run")]
    return [
        *of_steps(samples, 0),
        *(
            RankSeries(STEP_PEAK_MEMORY, "B", rank, [float(peak)], phase="run")
            for rank, peak in enumerate(peaks)
        ),
        RankSeries(OUT_OF_MEMORY, "1", 0, [0.0], phase="run"),
    ]
