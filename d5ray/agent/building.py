"""The executor of an agent, made of its experiment, and the sizes of what it trains"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from d5ray.distributed.model_parallelism import NetworkShares
from d5ray.distributed.world import World
from d5ray.experiment import Experiment
from d5ray.frameworks.initial_values import trainable_network
from d5ray.networks.executors.accumulating import AccumulatingExecutor
from d5ray.networks.executors.executor import Executor
from d5ray.networks.layers.layer_shapes import Shape
from d5ray.training.batches.epochs import Epochs
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.schedules import Schedule
from d5ray.training.transformations.composition import shape_after


@dataclass(frozen=True)
class BuiltSizes:
    """The sizes of an agent's training: its parameters, their bytes, and its epochs."""

    parameters: int
    parameter_bytes: int
    epochs: Epochs

    @property
    def steps_per_epoch(self) -> int:
        """The steps of the first epoch; of all, where the batch size stays."""
        return self.epochs.steps(0)


def load_framework(experiment: Experiment) -> float:
    """Import the framework of the experiment's executors; returns the seconds it took."""
    begin = perf_counter()
    module = sys.modules.get(experiment.make_executor.__module__)  # a function of the user's may have none
    load: Callable[[], None] | None = getattr(module, "load", None)
    if load is not None:
        load()
    return perf_counter() - begin


def shares_of(experiment: Experiment, dataset: Dataset) -> NetworkShares:
    """The shares of its network that the agents of a mesh get."""
    assert experiment.mesh is not None
    whole = trainable_network(
        experiment.model,
        dict(experiment.model_kwargs),
        shape_after(experiment.pipeline, dataset.sample_shape),
        len(dataset.classes),
        experiment.loss,
        seed=experiment.seed,
    )
    return experiment.mesh.shares(whole)


def executor_of(experiment: Experiment, dataset: Dataset, rank: int, share: Any, world: World) -> Executor:
    """The executor of an agent: of the whole network, or of its share of it in a mesh."""
    if share is not None:
        assert experiment.mesh is not None
        options = {"threads": experiment.threads} | experiment.executor_arguments
        executor = experiment.mesh.executor(share, experiment.make_executor, experiment.loss, options)
        executor.draw_from(experiment.seed, rank // experiment.agents_per_replica)
        return executor
    shape = shape_after(experiment.pipeline, dataset.sample_shape)
    executor = whole_network(experiment, shape, len(dataset.classes))
    executor.draw_from(experiment.seed, rank)
    return world.delayed(executor, experiment.straggler_delay(rank))


def whole_network(experiment: Experiment, sample_shape: Shape, classes: int) -> Executor:
    """The executor of the whole network, in pieces of the batch where its gradients are accumulated."""
    executor = experiment.make_executor(
        experiment.model,
        dict(experiment.model_kwargs),
        sample_shape=sample_shape,
        classes=classes,
        loss=experiment.loss,
        seed=experiment.seed,
        threads=experiment.threads,
        **experiment.executor_options.options,
        **experiment.executor_arguments,
    )
    if experiment.accumulate == 1:
        return executor
    size = experiment.batch_size
    at_most = None if isinstance(size, Schedule) else size
    return AccumulatingExecutor(executor, experiment.loss, experiment.accumulate, at_most)


def sizes_of(experiment: Experiment, executor: Executor, epochs: Epochs) -> BuiltSizes:
    """The sizes of what an agent has built; `ConfigurationError` where they do not fit the experiment."""
    parameters = executor.parameters
    count = int(parameters.shape[0])
    experiment.distributed_optimizer.check(count)
    if experiment.resolved_servers is not None:
        experiment.resolved_servers.servers.check_parameters(count)
    return BuiltSizes(count, int(parameters.nbytes), epochs)
