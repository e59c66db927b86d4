"""The job that times simulations: beside the gradients that they compute, and of very many agents"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, final

from benchmarks.simulation_speed.worker import beside_gradients, whole_simulation
from d5ray.checks import check_count, check_number
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.topologies.topology import Complete, Topology
from d5ray.experiment import Experiment
from d5ray.kits.laboratory.comparisons import processes
from d5ray.kits.laboratory.comparisons.contenders import AnyContender, Contender, RankSeries
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide
from d5ray.kits.laboratory.jobs.agent_rates import whole_batches
from d5ray.kits.laboratory.metrics.simulations import (
    PEAK_MEMORY,
    PROCESSOR_TIME,
    TRAINING_TIME,
    WALL_TIME,
)
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.optimizers.optimizer import Optimizer

HASHED_AS = "d5ray.recipes.simulations"  # where the first runs knew it

PROCESS_SECONDS = 1800.0  # for one process to simulate everything it is to
WHOLE = ((WALL_TIME, "s"), (PROCESSOR_TIME, "s"), (PEAK_MEMORY, "B"))


@final
@dataclass(frozen=True, kw_only=True)
class Simulations(SideBySide):
    """Contenders that simulate. Wrong values raise `ConfigurationError`.

    model, dataset, optimizer, batch_size, seed: as in an `Experiment`
    steps              of every training that is timed beside its gradients
    seconds            about so long a process repeats them, at least five times
    many_model, many_model_kwargs, many_batch_size, many_steps: of the simulation of very many agents
    many_rounds        in how many of the rounds very many agents are simulated
    """

    model: str
    dataset: str
    optimizer: Optimizer
    many_model: str
    many_model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 32
    steps: int = 50
    seconds: float = 10.0
    many_batch_size: int = 1
    many_steps: int = 100
    many_rounds: int = 1

    cpus = 0  # outside Ray

    def check(self) -> None:
        for name in ("steps", "many_steps", "batch_size", "many_batch_size"):
            check_count(name, getattr(self, name), 1)
        check_count("many_rounds", self.many_rounds, 0)
        check_number("seconds", self.seconds, low=0.0, low_included=False)
        for contender in self.contenders_of(Simulating, "BesideGradients(...) or OfMany(...)"):  # type: ignore[type-abstract]
            contender.experiment(self)

    def interleaved(self) -> Iterator[tuple[int, AnyContender]]:
        """Very many agents take minutes: they are simulated in the first rounds alone."""
        for pair, contender in super().interleaved():
            if not isinstance(contender, OfMany) or pair < self.many_rounds:
                yield pair, contender


@dataclass(frozen=True)
class Simulating(Contender[Simulations], ABC):
    """Many agents of one training, all in one process. shards: of its parameter server, if it has one."""

    rule: DistributedOptimizer
    processes: int
    topology: Callable[[int], Topology] = Complete
    shards: int = 1

    @property
    def name(self) -> str:
        return f"{type(self.rule).__name__}[{self.processes}]"

    @abstractmethod
    def experiment(self, job: Simulations) -> Experiment:
        """What is simulated."""

    def _experiment(self, job: Simulations, batch_size: int, **values: Any) -> Experiment:
        return Experiment(
            dataset=whole_batches(load_dataset(job.dataset), self.processes * batch_size),
            optimizer=job.optimizer,
            distributed=self.rule,
            topology=self.topology(self.processes),
            batch_size=batch_size,
            seed=job.seed,
            evaluate=False,
            servers=Servers(shards=self.shards) if ExchangeVia.SERVERS in self.rule.exchange else None,
            **values,
        )


@final
@dataclass(frozen=True)
class BesideGradients(Simulating):
    """The simulation and the gradients in it by themselves, in turn: the same executors, the same batches."""

    def experiment(self, job: Simulations) -> Experiment:
        """What is simulated."""
        return self._experiment(job, job.batch_size, model=job.model)

    def measure(self, job: Simulations, folder: Path) -> list[RankSeries]:
        work = partial(beside_gradients, self.experiment(job), job.steps, job.seconds, folder)
        (found,) = processes.measured(work, folder, 1, PROCESS_SECONDS)
        return [RankSeries.of(times, TRAINING_TIME, side) for side, times in found.items()]


@final
@dataclass(frozen=True)
class OfMany(Simulating):
    """A whole simulation of very many agents, from nothing to its complete tables."""

    def experiment(self, job: Simulations) -> Experiment:
        """What is simulated."""
        return self._experiment(
            job, job.many_batch_size, model=job.many_model, model_kwargs=job.many_model_kwargs
        )

    def measure(self, job: Simulations, folder: Path) -> list[RankSeries]:
        work = partial(whole_simulation, self.experiment(job), job.many_steps, folder)
        (found,) = processes.measured(work, folder, 1, PROCESS_SECONDS)
        return [
            RankSeries(metric, unit, 0, [value], phase="run")
            for (metric, unit), value in zip(WHOLE, found, strict=True)
        ]
