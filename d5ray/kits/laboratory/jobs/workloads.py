"""Workloads: something to train, the target that is to be reached, and the steps in which"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.metrics.definitions.catalogue import TestAccuracy, TestLoss
from d5ray.metrics.judge.criteria import Criterion
from d5ray.networks.executors.executor import Evaluation
from d5ray.training.optimizers.optimizer import Optimizer


@final
@dataclass(frozen=True, kw_only=True)
class Workload:
    """A network, its data, and a target on the test split. Wrong values raise `ConfigurationError`.

    target   a criterion such as `TestAccuracy() >= 0.97` or `TestLoss() <= 2.0`
    steps    in which it is to be reached
    every    the steps from one evaluation to the next; their time does not count
    model, model_kwargs, dataset, dataset_kwargs, batch_size: as in an `Experiment`
    """

    model: Any
    dataset: str
    target: Criterion
    steps: int
    every: int
    batch_size: int = 32
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    dataset_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_count("steps", self.steps, 1)
        check_count("every", self.every, 1)
        if not isinstance(self.target, Criterion) or not isinstance(
            self.target.metric, TestAccuracy | TestLoss
        ):
            raise ConfigurationError(
                f"target is {self.target!r}: it must be a criterion on TestAccuracy() or TestLoss(), such as "
                "TestAccuracy() >= 0.97"
            )
        if self.every > self.steps:
            raise ConfigurationError(
                f"every is {self.every}, more than the {self.steps} steps: nothing would be evaluated"
            )

    def experiment(self, optimizer: Optimizer, seed: int) -> Experiment:
        """The training of one agent by this optimizer."""
        return Experiment(
            model=self.model,
            model_kwargs=self.model_kwargs,
            dataset=self.dataset,
            dataset_kwargs=self.dataset_kwargs,
            optimizer=optimizer,
            agents=1,
            batch_size=self.batch_size,
            seed=seed,
        )


def meets(target: Criterion, found: Evaluation) -> bool:
    """True if an evaluation meets a workload's target; NaN does not."""
    value = found.accuracy if isinstance(target.metric, TestAccuracy) else found.loss
    return value >= target.target if target.relation == ">=" else value <= target.target
