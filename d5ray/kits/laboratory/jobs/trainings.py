"""The job that compares whole trainings: the same data and epochs, another rule or batch size, equal seeds"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, final

from d5ray.checks import check_count
from d5ray.experiment import Experiment
from d5ray.kits.laboratory.comparisons.contenders import AnyContender, Contender, RankSeries
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide
from d5ray.kits.laboratory.metrics.simulations import TRAINING_TIME
from d5ray.kits.laboratory.metrics.trainings import UPDATES
from d5ray.metrics.definitions.catalogue import TestAccuracy
from d5ray.training.batches.epochs import BatchSize
from d5ray.training.optimizers.optimizer import Optimizer

if TYPE_CHECKING:
    from d5ray.agent.training_agent import TrainingAgent


@final
@dataclass(frozen=True, kw_only=True)
class Trainings(SideBySide):
    """Contenders that train to the end. Wrong values raise `ConfigurationError`.

    model, dataset, epochs, threads, seed: as in an `Experiment`; each round has the next seed
    """

    model: str
    dataset: str
    epochs: int
    threads: int = 1

    def check(self) -> None:
        check_count("epochs", self.epochs, 1)
        for contender in self.contenders_of(Training, "Training(...)"):
            contender.experiment(self)  # checks the rest

    def interleaved(self) -> Iterator[tuple[int, AnyContender]]:
        """The order of training; all contenders of a round have the same seed."""
        for pair, contender in super().interleaved():
            yield pair, replace(contender, round=pair)  # type: ignore[type-var]


@final
@dataclass(frozen=True)
class Training(Contender[Trainings]):
    """The agents that train by this rule with this batch size, by allreduce."""

    word: str
    optimizer: Optimizer
    batch_size: BatchSize
    processes: int = 2
    round: int = 0

    def experiment(self, job: Trainings) -> Experiment:
        """The experiment of this training."""
        return Experiment(
            model=job.model,
            dataset=job.dataset,
            optimizer=self.optimizer,
            batch_size=self.batch_size,
            agents=self.processes,
            epochs=job.epochs,
            threads=job.threads,
            seed=job.seed + self.round,
            evaluate=False,
            name=self.name,
        )

    def measure(self, job: Trainings, folder: Path) -> list[RankSeries]:
        from d5ray.actors.calls import CALL_SECONDS, get  # noqa: PLC0415 - imports Ray
        from d5ray.actors.launch import launch  # noqa: PLC0415 - imports Ray

        with launch(self.experiment(job), quiet=True, root=folder) as group:
            begin = perf_counter()
            outcome = group.train(progress=False)
            seconds = perf_counter() - begin
            (accuracy,) = get([group.agents[0].__ray_call__.remote(accuracy_now)], CALL_SECONDS, "evaluate")
        return [
            RankSeries(TRAINING_TIME, "s", 0, [seconds], phase="run"),
            RankSeries(UPDATES, "1", 0, [float(outcome.step)], phase="run"),
            RankSeries(TestAccuracy.name, TestAccuracy.unit, 0, [accuracy], phase="test"),
        ]


def accuracy_now(agent: "TrainingAgent") -> float:
    """The accuracy on the test split, with the agent's own parameters as they are now."""
    test = agent.data.dataset.test
    return float(agent.executor.evaluate(test.inputs, test.labels).accuracy)
