"""The description of a model that an agent trains, beside its tensors"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from d5ray.experiment import Experiment
from d5ray.metrics.record.model_state import ModelState
from d5ray.networks.executors.executor import FlatExecutor
from d5ray.training.datasets import Dataset
from d5ray.training.transformations import shape_after


def described(
    tensors: Mapping[str, np.ndarray[Any, Any]],
    experiment: Experiment,
    dataset: Dataset,
    executor: FlatExecutor,
    step: int,
    of: str,
) -> ModelState:
    """A model of tensors, with its framework, the shape of samples and the classes that it is made for."""
    return ModelState(
        tensors,
        executor.array_framework,
        shape_after(experiment.pipeline, dataset.sample_shape),
        len(dataset.classes),
        step,
        of,
    )
