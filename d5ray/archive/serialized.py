"""Parts of an experiment as JSON and arrays, which is no code: reading makes d5ray's own public parts alone

A class is written by its public name, an instance with its values, an array aside. What is the user's own,
such as a function or a class, cannot be written so, and is refused.
"""

import base64
import dataclasses
import io
import json
import math
import pkgutil
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any, Final, final

import numpy as np

from d5ray.distributed.buffers import BufferPolicy
from d5ray.distributed.compression.compressor import Compressor
from d5ray.distributed.compression.reductions import Reduction
from d5ray.distributed.compression.sparse_allreduce import ExchangeSchedule
from d5ray.distributed.faults.fault import Failure, Fault
from d5ray.distributed.faults.plan import Faults
from d5ray.distributed.group.late_agents import Late
from d5ray.distributed.group.policies import Elasticity, FaultPolicy
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.parameter_server.consistency import Consistency
from d5ray.distributed.parameter_server.server_rules import ServerRule
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.simulation.compute import ComputeTime
from d5ray.distributed.simulation.links import Links
from d5ray.distributed.topologies.mixing import Mixing
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.frameworks import FRAMEWORKS, executor_by_name
from d5ray.identity.fields import gathered
from d5ray.metrics.record.artifacts import arrays_in, sha256_of
from d5ray.names import namespaces
from d5ray.names.kits import brought
from d5ray.names.renamed import RENAMED
from d5ray.networks.device import BestDevice, CPUDevice, GPUDevice
from d5ray.networks.network import Network
from d5ray.operators.loss import Loss
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.samples import Samples
from d5ray.training.events.event import Event
from d5ray.training.optimizers.native import NativeOptimizer
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.recording import Recording
from d5ray.training.samplers.sampler import Sampler
from d5ray.training.schedules import Schedule
from d5ray.training.stragglers import StragglerModel
from d5ray.training.transformations.transformation import Sampled, Transformation

# What an experiment is made of. A file makes nothing else of d5ray: some classes hold code, or run it.
KINDS: Final = (
    Experiment, Optimizer, DistributedOptimizer, Topology, Mixing, Servers, ServerRule, Consistency, Late,
    StragglerModel, Event, Sampler, Loss, Transformation, Sampled, Schedule, Dataset, Samples, CPUDevice,
    GPUDevice, BestDevice, Compressor, Reduction, ExchangeSchedule, BufferPolicy, Links, ComputeTime, Failure,
    Fault, Faults, Elasticity, FaultPolicy, Recording,
    *map(pkgutil.resolve_name, brought("parts of an experiment").values()),
)  # fmt: skip
MODELS: Final = "d5ray.recipes.models"  # the networks of shipped recipes, which are public there
VERSION: Final = 1
MOST_ARRAY_BYTES: Final = 2**28  # of all arrays together
PLAIN_KINDS: Final = "biufc"  # of arrays: booleans and numbers


@final
@dataclasses.dataclass(frozen=True)
class Serialized:
    """An experiment as JSON text, and the arrays that it refers to, as .npz; None without any."""

    text: bytes
    arrays: bytes | None


def serialized(parts: Mapping[str, Any]) -> Serialized:
    """Parts of an experiment by name; raises `ConfigurationError` for what only code could make again."""
    writer = _Writer()
    written = {name: writer.write(value) for name, value in parts.items()}
    packed = None
    if writer.arrays:
        if sum(array.nbytes for array in writer.arrays) > MOST_ARRAY_BYTES:
            raise ConfigurationError(f"arrays of more than {MOST_ARRAY_BYTES >> 20} MiB are not kept")
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **{f"a{at}": array for at, array in enumerate(writer.arrays)})
        packed = file.getvalue()
    content = {"version": VERSION, "arrays": sha256_of(packed) if packed else None, "parts": written}
    return Serialized(json.dumps(content, indent=1, allow_nan=False).encode(), packed)


def deserialized(form: Serialized, origin: object) -> dict[str, Any]:
    """The parts again, by name. Nothing is imported or called by a name that the text gives.

    origin: what errors call it. Raises `ConfigurationError` for anything that `serialized` does not write.
    """
    try:
        content = json.loads(form.text)
        if content["version"] != VERSION:
            raise ConfigurationError(f"it has the version {content['version']!r}, this d5ray reads {VERSION}")
        arrays = _arrays(form.arrays, content["arrays"])
        reader = _Reader(arrays)
        return {str(name): reader.read(value) for name, value in content["parts"].items()}
    except ConfigurationError as error:
        raise ConfigurationError(f"{origin} cannot be read: {error}") from error
    except Exception as error:  # what made-up values raise in a class of d5ray is anything
        raise ConfigurationError(
            f"{origin} holds no experiment that d5ray wrote ({type(error).__name__}: {error}): take the run "
            "as it was made"
        ) from error


class _Writer:
    def __init__(self) -> None:
        self.arrays: list[np.ndarray[Any, Any]] = []

    def write(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is list:
            return [self.write(item) for item in value]
        if type(value) is tuple:
            return {"tuple": [self.write(item) for item in value]}
        if type(value) is dict:
            return {"dict": [[self.write(key), self.write(item)] for key, item in value.items()]}
        if type(value) in (set, frozenset):
            return {type(value).__name__: [self.write(item) for item in sorted(value, key=repr)]}
        if type(value) is bytes:
            return {"bytes": base64.b64encode(value).decode()}
        if isinstance(value, PurePath):
            return {"path": str(value)}
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(value)
        if isinstance(value, np.dtype) and value.kind in PLAIN_KINDS:
            return {"dtype": value.str}
        if isinstance(value, Network):
            data = np.frombuffer(value.to_onnx().SerializeToString(deterministic=True), np.uint8)
            return {"network": self._array(data)["array"]}
        if isinstance(value, type):
            return {"class": _name_of(value)}
        for framework in FRAMEWORKS:
            if value is getattr(sys.modules.get(f"d5ray.frameworks.{framework}"), "from_model", _MISSING):
                return {"executor": framework}
        return self._instance(value)

    def _array(self, value: Any) -> dict[str, Any]:
        array = np.asarray(value)
        if array.dtype.kind not in PLAIN_KINDS:
            raise ConfigurationError(f"an array of {array.dtype} has no form without code")
        self.arrays.append(array)
        return {"array" if isinstance(value, np.ndarray) else "scalar": len(self.arrays) - 1}

    def _instance(self, value: Any) -> dict[str, Any]:
        kind: Any = type(value)
        made: dict[str, Any] = {"make": _name_of(kind)}
        if _takes_its_fields(kind):
            given = [field.name for field in dataclasses.fields(value) if field.init]
            return made | {"with": {name: self.write(getattr(value, name)) for name in given}}
        if kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__:
            raise _own(value)
        state = value.__getstate__() or {}
        if not isinstance(state, dict):
            raise _own(value)
        return made | {"state": {k: self.write(v) for k, v in state.items() if not _cached(kind, k)}}


class _Reader:
    def __init__(self, arrays: list[np.ndarray[Any, Any]]) -> None:
        self._arrays = arrays

    def read(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.read(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "make" in value:
            return self._instance(value)
        ((tag, content),) = value.items()
        return getattr(self, _READERS[tag])(content)

    def _tuple(self, content: list[Any]) -> tuple[Any, ...]:
        return tuple(self.read(item) for item in content)

    def _dict(self, content: list[Any]) -> dict[Any, Any]:
        return {self.read(key): self.read(item) for key, item in content}

    def _set(self, content: list[Any]) -> set[Any]:
        return set(self._tuple(content))

    def _frozenset(self, content: list[Any]) -> frozenset[Any]:
        return frozenset(self._tuple(content))

    def _float(self, content: str) -> float:
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content]

    def _bytes(self, content: str) -> bytes:
        return base64.b64decode(content, validate=True)

    def _path(self, content: str) -> Path:
        return Path(content)

    def _array(self, content: int) -> Any:
        return self._arrays[content]

    def _scalar(self, content: int) -> Any:
        return self._arrays[content][()]

    def _dtype(self, content: str) -> Any:
        found = np.dtype(content)
        if found.kind not in PLAIN_KINDS:
            raise ValueError(f"{content!r} is no type of numbers")
        return found

    def _network(self, content: int) -> Network:
        return Network.from_onnx(self._arrays[content].tobytes())

    def _class(self, content: str) -> type:
        return _class_named(content)

    def _executor(self, content: str) -> Callable[..., Any]:
        return executor_by_name(content)

    def _instance(self, value: dict[str, Any]) -> Any:
        kind = _class_named(value["make"])
        if _takes_its_fields(kind):
            return kind(**gathered(kind, {name: self.read(item) for name, item in value["with"].items()}))
        if not issubclass(kind, KINDS):
            raise ValueError(f"{kind.__name__} is a model, of which there is no instance here")
        made: Any = object.__new__(kind)
        state = {name: self.read(item) for name, item in value["state"].items()}
        shadowed = [name for name in state if callable(getattr(kind, name, None))]
        if shadowed:
            raise ValueError(f"{kind.__name__} has the method {shadowed[0]}, which is no value")
        restore = getattr(made, "__setstate__", made.__dict__.update)
        restore(state)
        return made


_MISSING: Final = object()
_READERS: Final = {
    name: f"_{name}"
    for name in (
        "tuple", "dict", "set", "frozenset", "float", "bytes", "path", "array", "scalar", "dtype", "network",
        "class", "executor",
    )
}  # fmt: skip


def _name_of(kind: type) -> str:
    """The public name by which `_class_named` finds the class."""
    public = kind.__name__ in namespaces.places() and namespaces.public(kind.__name__) is kind
    if not public and kind.__module__ != MODELS:
        raise _own(kind)
    name = kind.__name__ if public else f"{MODELS}.{kind.__name__}"
    _class_named(name)
    return name


def _class_named(name: str) -> type:
    """The class that a file may name: public, and a part of an experiment."""
    if name.startswith(f"{MODELS}."):
        found = getattr(import_module(MODELS), name.removeprefix(f"{MODELS}."), None)
        if isinstance(found, type) and found.__module__ == MODELS:
            return found
    elif (now := RENAMED.get(name, name)) in namespaces.places():
        found = namespaces.public(now)
        if isinstance(found, type) and issubclass(found, KINDS) and not issubclass(found, NativeOptimizer):
            return found
    raise ConfigurationError(f"{name!r} is no public class of d5ray that an experiment is made of")


def _takes_its_fields(kind: Any) -> bool:
    """True if the class is made of its fields, by a constructor that checks them."""
    return hasattr(kind, "__dataclass_params__") and bool(kind.__dataclass_params__.init)


def _cached(kind: type, name: str) -> bool:
    return isinstance(getattr(kind, name, None), cached_property)


def _own(value: Any) -> ConfigurationError:
    return ConfigurationError(f"{value!r} has no form without code")


def _arrays(packed: bytes | None, sha256: object) -> list[np.ndarray[Any, Any]]:
    if sha256 is None:
        return []
    if packed is None or sha256_of(packed) != sha256:
        raise ConfigurationError("its arrays are missing, or others than were written with it")
    kept = arrays_in(packed, 2 * MOST_ARRAY_BYTES)
    return [kept[f"a{at}"] for at in range(len(kept))]
