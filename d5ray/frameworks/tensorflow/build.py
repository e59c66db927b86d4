"""Build of a checked executor on a device from a model as data: a Keras model's, or a Network's"""

import copy
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.frameworks.arrays.library import NumPy
from d5ray.frameworks.initial_values import trained_network
from d5ray.frameworks.labelled_executor import LabelledExecutor, labelled_executor
from d5ray.frameworks.tensorflow import keras_models
from d5ray.frameworks.tensorflow.graph_executor import TensorFlowGraphExecutor
from d5ray.frameworks.tensorflow.keras_executor import KerasExecutor
from d5ray.frameworks.tensorflow.library import chosen
from d5ray.networks.device import Device
from d5ray.networks.executors.trees import is_inner, mapped
from d5ray.networks.layers.layer_shapes import Shape
from d5ray.networks.loading import is_path
from d5ray.networks.network import Network
from d5ray.operators.loss import Loss

REFUSALS = (ValueError, TypeError, IndexError, KeyError, RuntimeError, AttributeError)  # of Keras's layers


def executor(
    model: Any,
    options: Mapping[str, Any],
    sample_shape: Any,
    classes: int,
    loss: Loss,
    seed: int,
    device: Device,
    precision: str,
) -> LabelledExecutor | KerasExecutor:
    """The executor, after a trial of two samples whose output must fit the loss."""
    found = _found(model, options, seed, precision, sample_shape)
    if not keras_models.is_keras(found):
        products = "bfloat16" if precision == "bfloat16" else None
        return labelled_executor(
            lambda network: TensorFlowGraphExecutor(network, device, products=products),
            NumPy(),
            found,
            options,
            sample_shape,
            classes,
            loss,
            seed,
            precision,
        )
    keras_models.check_trained_as_compiled(found)
    made = KerasExecutor(found, loss, chosen(device))
    made.draw_from(seed, rank=0)
    loss.check(made.inference(_samples(sample_shape)).shape, classes)
    return made


def trained(
    model: Any,
    options: Mapping[str, Any],
    tensors: Mapping[str, Any],
    sample_shape: Any,
    classes: int,
    seed: int,
) -> Any:
    """The model, Keras's or a Network, with these tensors, by its own names."""
    wide = any(np.asarray(value).dtype == np.float64 for value in tensors.values())
    if not keras_models.is_keras(model):
        model = _found(model, options, seed, "float64" if wide else "float32", sample_shape)
    else:
        model = copy.deepcopy(model)
        _build(model, sample_shape)
    if keras_models.is_keras(model):
        return keras_models.loaded(model, tensors)
    return trained_network(model, options, tensors, sample_shape=sample_shape, classes=classes, seed=seed)


def _found(model: Any, options: Mapping[str, Any], seed: int, precision: str, sample_shape: Any) -> Any:
    """A Keras model with its weights; or a Network in any of its forms."""
    if isinstance(model, (str, Network)) or is_path(model):
        return model
    build = partial(_build, sample_shape=sample_shape)
    found = keras_models.made(model, options, build, seed=seed, precision=precision)
    if not isinstance(found, Network):
        keras_models.check_is_keras(found, model)
    return found


def _build(model: Any, sample_shape: Any) -> None:
    """Have the model make its weights; what it raises for samples of this shape is for its maker."""
    try:
        model(_samples(sample_shape), training=False)
    except REFUSALS as error:
        raise ConfigurationError(
            f"the Keras model {model.name!r} does not take samples of shape {sample_shape} ({_said(error)}): "
            "let it begin with what they are; images of d5ray's own data sets are (channels, height, width), "
            "which keras.layers.Permute((2, 3, 1)) turns"
        ) from error


def _said(error: BaseException) -> str:
    """The one line of Keras's message that says what is wrong, without its colours."""
    text = re.sub(r"\x1b\[\d*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [
        line for line in lines if not line.startswith(("Exception encountered", "Arguments received", "•"))
    ]
    return " ".join((own or lines or [type(error).__name__])[:1])


def _samples(sample_shape: Any) -> Any:
    if not is_inner(sample_shape):
        return _zeros(sample_shape)
    found = mapped(_zeros, sample_shape)
    return list(found) if isinstance(found, tuple) else found


def _zeros(shape: Shape) -> np.ndarray[Any, Any]:
    return np.zeros((2, *shape), np.float32)
