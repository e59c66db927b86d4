"""Workloads: something to train with its target, and attempts of a process to reach it by one optimizer"""

import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter
from typing import Any, final

from d5ray.agent.building import whole_network
from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.metrics.definitions.catalogue import TestAccuracy, TestLoss
from d5ray.metrics.judge.criteria import Criterion
from d5ray.networks.executors.executor import Evaluation
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.samplers.shards import Shards


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


@final
@dataclass
class AttemptCurve:
    """Evaluations, each after that many steps, seconds and samples; seconds of training alone."""

    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    found: list[Evaluation] = field(default_factory=list)
    reached: bool = False  # by the last of them


def train_to_target(shipped: bytes, target: Criterion, steps: int, every: int, rank: int) -> AttemptCurve:
    """The work of the one process. shipped: the pickled `Experiment`, with whatever it needs of the user's.

    target, steps, every: as in a `Workload`. A loss that is not a number ends it: the target is missed.
    """
    experiment: Experiment = pickle.loads(shipped)
    data = experiment.load_dataset()
    executor = whole_network(experiment, data.sample_shape, len(data.classes))
    executor.draw_from(experiment.seed, rank)
    size = experiment.step_batch_size
    shards = Shards(len(data.train), 1, size, experiment.train_sampler, experiment.seed)
    optimizer = experiment.optimizer.timed(shards.epochs)
    x = executor.parameters
    state = optimizer.state_for(x, executor.slots)
    optimizer.begin_at(state, 0)
    curve, seconds, samples = AttemptCurve(), 0.0, 0
    begin = perf_counter()
    for step, draw in enumerate(islice(shards.draws(rank), steps), start=1):
        inputs, labels = data.train.inputs[draw.indices], data.train.labels[draw.indices]
        try:
            if optimizer.prepares:
                optimizer.prepare(x, state)
            loss = executor.inference_and_backprop(inputs, labels)
            optimizer.step(x, executor.gradients, state)
        except Exception as error:
            if not _numerical(error):
                raise
            loss = math.nan
        samples += len(labels)
        if math.isnan(loss):
            break
        if step % every == 0 or step == steps:
            seconds += perf_counter() - begin
            curve.steps.append(step)
            curve.seconds.append(seconds)
            curve.samples.append(samples)
            curve.found.append(executor.evaluate(data.test.inputs, data.test.labels))
            if meets(target, curve.found[-1]):
                curve.reached = True
                break
            begin = perf_counter()
    return curve


def _numerical(error: Exception) -> bool:
    """True if numbers were at fault, such as those of a matrix that has no roots since it is not finite."""
    return isinstance(error, ArithmeticError) or type(error).__name__.endswith(
        "LinAlgError"
    )  # any framework's
