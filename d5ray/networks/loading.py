"""Models as they are given: a Network, an ONNX file, or a framework's own; and which executor can run them"""

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.framework_of_model import packages_of
from d5ray.networks.network import Network

SUFFIX = ".onnx"
JAX: Final = "jax"
FRAMEWORKS_OF: Final = {"torch": "torch", "keras": "tensorflow", "flax": JAX, "equinox": JAX}  # of packages


def is_path(model: object) -> bool:
    """True if this is the path of an ONNX file.

    >>> is_path("lenet"), is_path("models/lenet.onnx")
    (False, True)
    """
    return isinstance(model, (str, PathLike)) and str(fspath(model)).endswith(SUFFIX)


def as_network(source: Any) -> Network:
    """The Network, or that of an ONNX file, of its bytes or of a model in memory."""
    if isinstance(source, Network):
        return source
    if isinstance(source, (str, PathLike)) and not Path(fspath(source)).is_file():
        raise ConfigurationError(
            f"there is no ONNX file {fspath(source)!r} (looked in {Path.cwd()}): give the path of one, or a "
            "Network"
        )
    return Network.from_onnx(source)


def holding(network: Network, tensors: Mapping[str, np.ndarray[Any, Any]]) -> Network:
    """The network with these tensors, in float64 where they are."""
    double = any(each.dtype == np.float64 for each in tensors.values())
    single = any(each.dtype == np.float32 for each in network.parameters.values())
    return (network.in_float64() if double and single else network).with_values(tensors)


def check_executor(model: Any, framework: str) -> None:
    """Raise `ConfigurationError` where the executor of this framework runs no such models.

    JAX's runs no names and Networks, others none of JAX. What a function makes is seen when it is called.
    """
    if framework == JAX and (isinstance(model, (str, Network)) or is_path(model)):
        raise ConfigurationError(
            f"the model is {model!r}, a network of d5ray's, and executor='jax' runs models of Flax and "
            "Equinox, and functions of parameters: give one of those, or set executor='torch'"
        )
    packages = packages_of(model)
    written = next((own for package, own in FRAMEWORKS_OF.items() if package in packages), framework)
    if framework != written and JAX in (framework, written):
        raise ConfigurationError(
            f"the model {getattr(model, '__name__', None) or model!r} is written for {written}, and executor "
            f"is {framework!r}: set executor={written!r}"
        )
