"""The description of a model that an agent trains, beside its tensors"""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from d5ray.distributed.checkpoints.named_tensors import NO_VALUES, values_of
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.metrics.record.model_state import ModelState
from d5ray.networks.executors.executor import FlatExecutor
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.transformations.composition import shape_after


def described(
    tensors: Mapping[str, np.ndarray[Any, Any]],
    experiment: Experiment,
    dataset: Dataset,
    executor: FlatExecutor,
    step: int,
    of: str,
) -> ModelState:
    """A model of tensors, with its framework, the shape of samples and the classes that it is made for.

    What it has beside its tensors is a part of it; where no checkpoint keeps it, the state says why.
    """
    values, lost = NO_VALUES, ""
    try:
        values = values_of(executor)
    except ConfigurationError as error:
        lost = str(error)
    return ModelState(
        tensors,
        executor.array_framework,
        shape_after(experiment.pipeline, dataset.sample_shape),
        len(dataset.classes),
        step,
        of,
        base64.b64encode(values.tobytes()).decode(),
        lost,
    )
