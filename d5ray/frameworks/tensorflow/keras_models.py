"""Models of Keras that agents train: made alike in every process, and loaded with tensors by name"""

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from d5ray.checks import shown
from d5ray.errors import ConfigurationError
from d5ray.networks.executors.named_tensors import check_tensors
from d5ray.ops.tensorflow.library import tf

# Keras's policy for what is computed in which type; weights are float32 under the second.
POLICIES: Final = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float64": "float64"}
SEEDS: Final = "seed_generator_state"  # of what layers draw, such as Dropout: no part of the trained model


def is_keras(model: Any) -> bool:
    """True for a model of Keras's, as it is."""
    return isinstance(model, tf.keras.Layer)


def made(model: Any, options: Mapping[str, Any], *, seed: int, precision: str) -> Any:
    """Make the model of a class or function, seeded; layers have the names of a process that made no other.

    A model that is given as it is has its own weights, and its own types.
    """
    if is_keras(model):
        _check_policy(model, precision)
        return model
    return _seeded(lambda: model(**options), seed, POLICIES[precision])


def loaded(model: Any, tensors: Mapping[str, Any]) -> Any:
    """The model with these tensors, by its own names.

    Raises `ConfigurationError` for tensors that are another model's.
    """
    own = named(model)
    check_tensors(model.name, own, tensors)
    for name, value in tensors.items():
        own[name].assign(value)
    return model


def named(model: Any) -> dict[str, Any]:
    """The variables of a model by their names below the model's, but for the seeds of what its layers draw.

    Such as "block/dense/kernel": those of layers within layers, and the variable's own. They are the same in
    a copy, where Keras's own paths depend on how a model came to be. Raises `ConfigurationError` where two
    have one name.
    """
    names: dict[int, str] = {}
    _name(model, "", names)
    found: dict[str, Any] = {}
    for variable in model.variables:
        name = names[id(variable)]
        if variable.name == SEEDS:
            continue
        if name in found:
            raise ConfigurationError(
                f"the model {model.name!r} has two variables called {name!r}: give its layers names of their "
                "own"
            )
        found[name] = variable
    return found


def _name(layer: Any, before: str, names: dict[int, str]) -> None:
    for part in layer._flatten_layers(include_self=False, recursive=False):
        _name(part, f"{before}{part.name}/", names)
    for variable in layer.variables:
        names.setdefault(id(variable), f"{before}{variable.name}")


def _check_policy(model: Any, precision: str) -> None:
    policy = model.dtype_policy
    if precision != "float32" and policy.name != POLICIES[precision]:
        raise ConfigurationError(
            f"precision is {precision!r}, and the model {model.name!r} is made for {policy.name}: give the "
            "class or a function that makes it, or make it under "
            f"keras.config.set_dtype_policy({POLICIES[precision]!r})"
        )


def _seeded(make: Callable[[], Any], seed: int, policy: str) -> Any:
    """What a function makes in a thread of its own, since Keras counts its layers' names by thread.

    Initializers of Keras without a seed take one from Python's generator.
    """
    found: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            tf.keras.config.set_dtype_policy(policy)
            found.append(make())
        except BaseException as error:
            errors.append(error)

    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - what models may use
    try:
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        thread = threading.Thread(target=run, name="model")
        thread.start()
        thread.join()
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
    if errors:
        raise errors[0]
    return found[0]


def check_is_keras(model: Any, given: Any) -> None:
    """Raise `ConfigurationError` for what is neither a Keras model nor a Network."""
    if not is_keras(model):
        raise ConfigurationError(
            f"the model {shown(given)} gives a {type(model).__name__}, and TensorFlow trains Keras models "
            "and Networks: return one; PyTorch's modules train under executor='torch'"
        )
