"""Models as they are given: Networks, ONNX files, a framework's own; who can run them; values for them"""

from collections.abc import Collection, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.framework_of_model import packages_of
from d5ray.networks.network import Network

SUFFIX = ".onnx"
JAX: Final = "jax"
MOST_NAMED: Final = 5
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


def check_tensors(
    model: str, own: Mapping[str, Any], tensors: Mapping[str, Any], missing: Collection[str] | None = None
) -> None:
    """Raise `ConfigurationError` for tensors that are another model's.

    own, tensors: what have shapes, by name. missing: those without a value; None: all of own that are not
    among the tensors.
    """
    absent = [name for name in own if name not in tensors] if missing is None else list(missing)
    wrong = {
        "lacks": [name for name in tensors if name not in own],
        "has no value for": absent,
        "has": [
            f"{name} {tuple(value.shape)} where it is {tuple(own[name].shape)}"
            for name, value in tensors.items()
            if name in own and tuple(own[name].shape) != tuple(value.shape)
        ],
    }
    if said := "; ".join(
        f"it {what} {', '.join(names[:MOST_NAMED])}" for what, names in wrong.items() if names
    ):
        raise ConfigurationError(
            f"the tensors are not those of the model, {model}: {said}: give the experiment that trained them"
        )


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
