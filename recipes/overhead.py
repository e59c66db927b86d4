"""The job that measures d5ray's own overhead: the same training by d5ray's agents and in plain PyTorch."""

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from d5ray.canonical import canonical
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment, check_whole
from d5ray.training.datasets import Dataset, Split
from d5ray.training.optimizers import Momentum
from d5ray.training.samplers import Sampler, ShuffleSampler

if TYPE_CHECKING:
    from d5ray.actors.run_row import RunOrigin
    from d5ray.recipes.recipe import Recipe, Result

MOST_AGENTS = 2


@dataclass(frozen=True)
class Overhead:
    """Four contenders that do the same work, in pairs of fresh processes.

    Wrong values raise `ConfigurationError`.

    d5ray[1]    one agent                         against  pytorch[1]  a loop written by hand
    d5ray[2]    two agents, AllreduceSGD on gloo  against  ddp[2]      two `DistributedDataParallel` processes

    model, dataset, optimizer, batch_size, train_sampler, threads, seed: as in an `Experiment`
    steps         measured steps of every process
    warmup_steps  steps before them
    pairs         how often both sides of a comparison are started afresh; an interval needs 6
    """

    model: str
    dataset: str
    optimizer: Momentum
    batch_size: int = 64
    train_sampler: Sampler = field(default_factory=ShuffleSampler)
    steps: int = 630
    warmup_steps: int = 50
    pairs: int = 10
    threads: int = 1
    seed: int = 0
    name: str = "overhead"

    def __post_init__(self) -> None:
        check_whole("steps", self.steps, 1)
        check_whole("pairs", self.pairs, 1)
        for name in ("model", "dataset"):
            if not isinstance(getattr(self, name), str):
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)!r}: it must be a name, such as 'lenet' or 'digits'"
                )
        if not isinstance(self.optimizer, Momentum):
            raise ConfigurationError(
                f"optimizer is {self.optimizer!r}: it must be a Momentum, which is what the loops in plain "
                "PyTorch use (torch.optim.SGD)"
            )
        self.experiment(self.dataset, MOST_AGENTS)  # checks the rest

    def experiment(self, dataset: str | Dataset, agents: int) -> Experiment:
        """What d5ray's side runs."""
        return Experiment(
            model=self.model,
            dataset=dataset,
            optimizer=self.optimizer,
            agents=agents,
            batch_size=self.batch_size,
            seed=self.seed,
            train_sampler=self.train_sampler,
            communicator="gloo",
            threads=self.threads,
            warmup_steps=self.warmup_steps,
            evaluate=False,
            name=f"d5ray[{agents}]",
        )

    def describe(self) -> dict[str, Any]:
        """The job as JSON data."""
        return {f.name: canonical(getattr(self, f.name)) for f in fields(self)}

    def run(self, recipe: "Recipe", origin: "RunOrigin", address: str | None, quiet: bool) -> "Result":
        """Measure and judge."""
        from d5ray.recipes import side_by_side  # noqa: PLC0415 - imports Ray

        return side_by_side.run(self, recipe, origin, address, quiet)


def whole_batches(dataset: Dataset, batch: int) -> Dataset:
    """The data set with as many training samples as fill whole batches, so that all steps are equal."""
    samples = len(dataset.train) // batch * batch
    if samples == 0:
        raise ConfigurationError(
            f"the data set {dataset.name!r} has {len(dataset.train)} training samples, one step of all "
            f"agents takes {batch}: choose a smaller batch_size"
        )
    train = Split(dataset.train.inputs[:samples], dataset.train.labels[:samples])
    return Dataset(dataset.name, train, dataset.test, dataset.classes)
