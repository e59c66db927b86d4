"""The first values of a network by name, in every framework: those that PyTorch gives with the same seed"""

from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.networks import catalogue
from d5ray.networks.from_layers import network_from_layers
from d5ray.networks.labelled import LabelledNetwork, labelled
from d5ray.networks.loading import as_network, is_path
from d5ray.networks.network import Network
from d5ray.networks.shapes import Shape
from d5ray.operators.loss import Loss


def network_by_name(
    name: str, options: dict[str, Any], sample_shape: Shape, classes: int, *, seed: int
) -> Network:
    """A network of the catalogue with the first parameters that PyTorch gives it. Imports PyTorch."""
    from d5ray.frameworks.torch import build  # noqa: PLC0415 - imports torch

    layers = catalogue.network(name, sample_shape, classes, **options)
    state = build.seeded(layers, sample_shape, seed).state_dict()
    values = {key: np.array(tensor.numpy()) for key, tensor in state.items()}
    return network_from_layers(layers, sample_shape, values, name=name)


def labelled_network(
    model: Any, options: dict[str, Any], sample_shape: Shape, classes: int, loss: Loss, *, seed: int
) -> LabelledNetwork:
    """What agents train of a model: a name of the catalogue, a Network, or the path of an ONNX file."""
    return labelled(_network(model, options, sample_shape, classes, seed), loss, sample_shape)


def _network(model: Any, options: dict[str, Any], sample_shape: Shape, classes: int, seed: int) -> Network:
    if isinstance(model, Network) or is_path(model):
        return as_network(model)
    if isinstance(model, str):
        return network_by_name(model, options, sample_shape, classes, seed=seed)
    made = model(**options) if callable(model) and not hasattr(model, "state_dict") else model
    if isinstance(made, Network):
        return made
    raise ConfigurationError(
        f"the model {model!r} gives a {type(made).__name__}, and this executor runs Networks: give a name "
        "such as 'lenet', a Network (Network.from_model makes one of a PyTorch module), or the path of an "
        "ONNX file; d5ray.frameworks.torch.from_model runs PyTorch's modules as they are"
    )
