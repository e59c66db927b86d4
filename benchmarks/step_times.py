"""The job that compares training steps: the same network, data and batches by every contender"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

from d5ray.checks import check_count, check_kind
from d5ray.experiment import Experiment
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide
from d5ray.kits.laboratory.jobs.agent_rates import whole_batches
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.optimizers.gradient_descent import Momentum
from d5ray.training.recording import Recording
from d5ray.training.samplers.sampler import Sampler, ShuffleSampler

if TYPE_CHECKING:
    from benchmarks.torch_loops import TorchTask

HASHED_AS = "d5ray.recipes.step_times"  # where the first runs knew it


@final
@dataclass(frozen=True, kw_only=True)
class StepTimes(SideBySide):
    """Contenders that train. Wrong values raise `ConfigurationError`.

    model, dataset, their kwargs, optimizer, batch_size, train_sampler, threads, seed: as in an `Experiment`
    steps         measured steps of every process
    warmup_steps  steps before them
    """

    model: str
    dataset: str
    optimizer: Momentum
    batch_size: int = 64
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    dataset_kwargs: Mapping[str, Any] = field(default_factory=dict)
    train_sampler: Sampler = field(default_factory=ShuffleSampler)
    steps: int = 630
    warmup_steps: int = 50
    threads: int = 1

    def check(self) -> None:
        check_count("steps", self.steps, 1)
        check_count("batch_size", self.batch_size, 1)
        for name in ("model", "dataset"):
            check_kind(name, getattr(self, name), str, "a name, such as 'lenet' or 'digits'")
        wanted = "a Momentum, which is what the loops in plain PyTorch use (torch.optim.SGD)"
        check_kind("optimizer", self.optimizer, Momentum, wanted)
        self.experiment(self.dataset, 1, "auto")  # checks the rest

    def experiment(self, dataset: str | Dataset, agents: int, communicator: str) -> Experiment:
        """What d5ray's side runs."""
        return Experiment(
            model=self.model,
            model_kwargs=self.model_kwargs,
            dataset=dataset,
            dataset_kwargs=self.dataset_kwargs if isinstance(dataset, str) else {},
            optimizer=self.optimizer,
            agents=agents,
            batch_size=self.batch_size,
            seed=self.seed,
            train_sampler=self.train_sampler,
            communicator=communicator,
            threads=self.threads,
            recording=Recording(warmup_steps=self.warmup_steps),
            evaluate=False,
            name=f"d5ray[{agents}]",
        )

    @property
    def task(self) -> "TorchTask":
        """What the loops in plain PyTorch run."""
        from benchmarks.torch_loops import TorchTask  # noqa: PLC0415 - imports torch

        return TorchTask(
            model=self.model,
            dataset=self.data,
            batch_size=self.batch_size,
            learning_rate=self.optimizer.learning_rate,
            momentum=self.optimizer.momentum,
            sampler=self.train_sampler,
            seed=self.seed,
            threads=self.threads,
        )

    @cached_property
    def data(self) -> Dataset:
        """The data set, cut so that an epoch has whole batches for every number of processes."""
        sizes = {contender.processes for contender in self.contenders()}
        return whole_batches(
            load_dataset(self.dataset, **self.dataset_kwargs), math.lcm(*sizes) * self.batch_size
        )

    @property
    def all_steps(self) -> int:
        """The steps of every process, with those for warming up."""
        return self.warmup_steps + self.steps
