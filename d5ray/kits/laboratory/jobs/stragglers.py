"""The job that compares training with one slow agent: how many samples a second all agents train together"""

import time
from abc import ABC
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, final

from d5ray.checks import check_count, check_kind, check_number
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.simulation.compute import ConstantTime
from d5ray.experiment import Experiment
from d5ray.frameworks.torch import from_model
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide
from d5ray.kits.laboratory.jobs.agent_rates import on_agents, rates, whole_batches
from d5ray.networks.executors.delayed import DelayedExecutor, Virtual
from d5ray.networks.executors.executor import Executor
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.stragglers import Slowdown


@final
@dataclass(frozen=True, kw_only=True)
class StragglerRates(SideBySide):
    """Contenders that train, their last agent slowly. Wrong values raise `ConfigurationError`.

    model, dataset, optimizer, batch_size, threads, seed: as in an `Experiment`
    factor          how many times as long as the others' the last agent's gradients take
    device_seconds  a gradient takes on a device of the agent's own
    steps           measured steps of every agent on devices and in the simulation
    core_steps      the same on cores, where a step is shorter
    warmup_steps    steps before them
    """

    model: str
    dataset: str
    optimizer: Optimizer
    batch_size: int = 32
    factor: float = 4.0
    device_seconds: float = 0.02
    steps: int = 100
    core_steps: int = 400
    warmup_steps: int = 10
    threads: int = 1

    def check(self) -> None:
        for name in ("steps", "core_steps"):
            check_count(name, getattr(self, name), 1)
        check_number("factor", self.factor, low=1.0, low_included=True)
        check_number("device_seconds", self.device_seconds, low=0.0, low_included=False)
        for name in ("model", "dataset"):
            check_kind(name, getattr(self, name), str, "a name, such as 'lenet' or 'digits'")
        for contender in self.contenders_of(Straggling, "one of OnCores, OnDevices, Simulated"):  # type: ignore[type-abstract]
            contender.experiment(self, self.dataset)  # checks the rest

    def experiment(self, dataset: str | Dataset, rule: DistributedOptimizer, agents: int) -> Experiment:
        """The experiment of agents by this rule, the last one slow."""
        return Experiment.from_values(
            model=self.model,
            dataset=dataset,
            optimizer=self.optimizer,
            distributed=rule,
            agents=agents,
            batch_size=self.batch_size,
            seed=self.seed,
            threads=self.threads,
            warmup_steps=self.warmup_steps,
            evaluate=False,
            slow=Slowdown(agents - 1, self.factor),
        )

    @cached_property
    def data(self) -> Dataset:
        """The data set, cut so that all steps have whole batches."""
        agents = max(contender.processes for contender in self.contenders())
        return whole_batches(load_dataset(self.dataset), agents * self.batch_size)


def on_device(model: Any, model_kwargs: dict[str, Any], *, seconds: float, **others: Any) -> Executor:
    """PyTorch's executor with a device of its own, as it were: it sleeps as if it waited for that."""
    return DelayedExecutor(from_model(model, model_kwargs, **others), Virtual(lambda: seconds, time.sleep))


@dataclass(frozen=True)
class Straggling(Contender[StragglerRates], ABC):
    """Agents that train by one rule, somewhere."""

    rule: DistributedOptimizer
    processes: int

    where: ClassVar[str]  # in the name

    @property
    def name(self) -> str:
        return f"{type(self.rule).__name__}{self.where}[{self.processes}]"

    def experiment(self, job: StragglerRates, dataset: str | Dataset) -> Experiment:
        """The experiment to run."""
        return job.experiment(dataset, self.rule, self.processes)


@final
@dataclass(frozen=True)
class OnCores(Straggling):
    """d5ray's agents, who compute at the same time; where there are fewer cores, they take turns on them."""

    where = ""

    def measure(self, job: StragglerRates, folder: Path) -> list[RankSeries]:
        return on_agents(self.experiment(job, job.data), job.warmup_steps + job.core_steps, folder)


@final
@dataclass(frozen=True)
class OnDevices(Straggling):
    """d5ray's agents, whose gradients take `device_seconds` more, in which the cores are free."""

    where = ", devices"

    def measure(self, job: StragglerRates, folder: Path) -> list[RankSeries]:
        experiment = self.experiment(job, job.data)
        device = {"seconds": job.device_seconds}
        experiment = replace(experiment, executor=on_device, executor_kwargs=device)
        return on_agents(experiment, job.warmup_steps + job.steps, folder)


@final
@dataclass(frozen=True)
class Simulated(Straggling):
    """The agents on the virtual clock, a gradient in `device_seconds`, over the default network."""

    where = ", simulated"

    def measure(self, job: StragglerRates, folder: Path) -> list[RankSeries]:
        from d5ray.simulator import simulate  # noqa: PLC0415 - only where something is simulated

        experiment = self.experiment(job, job.data)
        with simulate(experiment, compute=ConstantTime(job.device_seconds), root=folder) as group:
            group.train(job.warmup_steps + job.steps, progress=False)
            return rates(group.metrics())
