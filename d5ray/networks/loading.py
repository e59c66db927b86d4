"""Forms in which a network is given: a Network itself, or an ONNX file"""

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.networks.network import Network

SUFFIX = ".onnx"


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
