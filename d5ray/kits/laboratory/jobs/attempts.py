"""Attempts to reach a workload's target: a process trains by one optimizer, and evaluates"""

import math
import pickle
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter
from typing import final

from d5ray.agent.building import whole_network
from d5ray.experiment import Experiment
from d5ray.kits.laboratory.jobs.workloads import meets
from d5ray.metrics.judge.criteria import Criterion
from d5ray.networks.executors.executor import Evaluation
from d5ray.training.samplers import Shards


@final
@dataclass
class AttemptCurve:
    """Evaluations, each after that many steps, seconds and samples; seconds of training alone."""

    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    found: list[Evaluation] = field(default_factory=list)
    reached: bool = False  # by the last of them


@final
@dataclass(frozen=True)
class Attempt:
    """The work of the one process. shipped: the pickled `Experiment`, with whatever it needs of the user's.

    target, steps, every: as in a `Workload`. A loss that is not a number ends it: the target is missed.
    """

    shipped: bytes
    target: Criterion
    steps: int
    every: int

    def __call__(self, rank: int) -> AttemptCurve:
        experiment: Experiment = pickle.loads(self.shipped)
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
        for step, draw in enumerate(islice(shards.draws(rank), self.steps), start=1):
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
            if step % self.every == 0 or step == self.steps:
                seconds += perf_counter() - begin
                curve.steps.append(step)
                curve.seconds.append(seconds)
                curve.samples.append(samples)
                curve.found.append(executor.evaluate(data.test.inputs, data.test.labels))
                if meets(self.target, curve.found[-1]):
                    curve.reached = True
                    break
                begin = perf_counter()
        return curve


def _numerical(error: Exception) -> bool:
    """True if numbers were at fault, such as those of a matrix that has no roots since it is not finite."""
    return isinstance(error, ArithmeticError) or type(error).__name__.endswith(
        "LinAlgError"
    )  # any framework's
