"""The first values of a network by name, in every framework: those that PyTorch gives with the same seed"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from d5ray.checks import check_count, check_items, check_kind
from d5ray.errors import ConfigurationError
from d5ray.networks.executors.framework_of_model import framework_of
from d5ray.networks.executors.labelled_network import LabelledNetwork, labelled
from d5ray.networks.layers.from_layers import network_from_layers
from d5ray.networks.layers.layer_shapes import Shape
from d5ray.networks.loading import as_network, holding, is_path
from d5ray.networks.network import Network
from d5ray.networks.zoo import catalogue
from d5ray.operators.loss import Loss


def network_by_name(
    name: str, options: dict[str, Any], sample_shape: Shape, classes: int, *, seed: int
) -> Network:
    """A network of the catalogue with the first parameters that PyTorch gives it. Imports PyTorch.

    Args: name: such as 'lenet' or 'mlp'. options: of this model, such as {"hidden": (64, 32)}. sample_shape:
    of an input without the batch. Wrong values raise `ConfigurationError`.
    """
    check_kind("options", options, Mapping, "a dictionary")
    for size in check_items("sample_shape", sample_shape, "sizes such as (1, 28, 28)"):
        check_count("a size in sample_shape", size)
    check_count("classes", classes)
    check_count("seed", seed, low=0)
    from d5ray.frameworks.torch import build  # noqa: PLC0415 - imports torch

    layers = catalogue.network(name, sample_shape, classes, **options)
    state = build.seeded(layers, sample_shape, seed).state_dict()
    values = {key: np.array(tensor.numpy()) for key, tensor in state.items()}
    return network_from_layers(layers, sample_shape, values, name=name)


def labelled_network(
    model: Any, options: dict[str, Any], sample_shape: Shape, classes: int, loss: Loss, *, seed: int
) -> LabelledNetwork:
    """The network with its loss that agents train: of a name of the catalogue, a Network, or an ONNX file."""
    return labelled(_network(model, options, sample_shape, classes, seed), loss, sample_shape)


def trainable_network(
    model: Any, options: dict[str, Any], sample_shape: Shape, classes: int, loss: Loss, *, seed: int
) -> LabelledNetwork:
    """The network with its loss that agents train, also of a class, function or module of PyTorch or Keras.

    It is the network as the model trains, with the parameters that it has; what a class or function of
    PyTorch's makes begins as the plain executor's would with this seed. What is a Network can be cut, split
    and changed. Raises `ConfigurationError` where the model cannot be one, or does not fit the loss.
    """
    if not (isinstance(model, (str, Network)) or is_path(model)):
        model, options = _exported(model, options, sample_shape, seed), {}
    made = labelled_network(model, options, sample_shape, classes, loss, seed=seed)
    known = made.network.descriptors.get(made.scores)
    if known is not None and known.shape is not None and None not in known.shape:
        loss.check(tuple(size if isinstance(size, int) else 2 for size in known.shape), classes)
    return made


def trained_network(
    model: Any,
    model_kwargs: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray[Any, Any]],
    *,
    sample_shape: Shape,
    classes: int,
    seed: int,
) -> Network:
    """The Network that agents train of a model, with these values of its parameters and state.

    For frameworks that run Networks alone; PyTorch has a `trained_model`. Raises `ConfigurationError` for
    tensors of another network.
    """
    return holding(_network(model, dict(model_kwargs), sample_shape, classes, seed), tensors)


def _exported(model: Any, options: dict[str, Any], sample_shape: Shape, seed: int) -> Network:
    """The Network of a model that is given as it is, or made now."""
    made = _made(model, options, seed)
    if isinstance(made, Network):
        return made
    adapter = framework_of(made)
    if not hasattr(made, "state_dict"):  # Keras's know their inputs
        own: Network = adapter.training_network_of(made)
        return own
    samples = np.zeros((2, *sample_shape), np.float32)
    try:
        own = adapter.training_network_of(made, samples)
    except ConfigurationError:
        if not any(type(part).__name__ == "Embedding" for part in made.modules()):
            raise
        own = adapter.training_network_of(made, samples.astype(np.int64))  # tokens
    return own


def _made(model: Any, options: dict[str, Any], seed: int) -> Any:
    if hasattr(model, "parameters") and not isinstance(model, type):  # a module as it is
        return model
    if hasattr(model, "trainable_variables") and not isinstance(model, type):  # a Keras model
        return model
    if not callable(model):
        return model  # which no framework knows
    from d5ray.frameworks.torch import build  # noqa: PLC0415 - imports torch

    with build.drawing_from(seed), drawing_from(seed):
        return model(**options)


@contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """A block whose random numbers of Python and NumPy follow from a seed; both go on afterwards as before.

    From Python's, initializers of Keras without a seed take theirs.
    """
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - what models may use
    try:
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002


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
