"""A stable description of any part of an experiment as JSON, and its hash: equal parts, equal hashes."""

import dataclasses
import hashlib
import json
import math
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from d5ray.identity import sources
from d5ray.identity.checkout import is_benchmark
from d5ray.identity.moved import first_name

LATER: Final[Mapping[str, Any]] = {"later": True}  # metadata of a field that its class did not always have


def canonical(value: Any) -> Any:
    """JSON data that is equal exactly when two values mean the same, in every process and on every machine.

    A class or function of d5ray or of an installed package is its name; one of the user's own is its name
    and the hash of its source and of what of the user's own it uses (see `d5ray.identity.sources`), so that
    an edit shows. An object is its class and its attributes; of those with an underscore only plain data
    count, since the others are caches and the like.

    >>> canonical({"rate": 0.1, "shape": (1, 8)})
    {'rate': 0.1, 'shape': [1, 8]}
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, np.generic) and isinstance(value, (np.integer, np.floating, np.bool_)):
        return canonical(value.item())  # NumPy's numbers mean what Python's do
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)  # 1 and 1.0 mean the same
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}  # JSON has no infinity
    if isinstance(value, Mapping):
        return {str(key): canonical(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((canonical(item) for item in value), key=repr)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": hashlib.sha256(value).hexdigest()}
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return _name(value)
    fingerprint = getattr(value, "fingerprint", None)
    if isinstance(fingerprint, str):
        return {"class": _name(type(value)), "fingerprint": fingerprint}
    if isinstance(value, types.ModuleType):
        return value.__name__
    return {"class": _name(type(value)), **canonical(_attributes(value))}


def values_of_fields(value: Any) -> dict[str, Any]:
    """The fields of a data class and their values, but for defaults of fields that came later.

    So what was described before a field came is described, and hashed, as it was.
    """
    values = {field: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {f.name: own for f, own in values.items() if f.metadata != LATER or own != f.default}


def digest(value: Any) -> str:
    """The SHA-256 of the canonical description, in hexadecimal."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _name(thing: type | types.FunctionType | types.BuiltinFunctionType) -> str:
    """`module.name` of what is installed; `name#hash of the sources` of what is the user's own."""
    told = None if isinstance(thing, types.BuiltinFunctionType) else sources.told(thing)
    if told is None:  # installed, or typed into an interpreter that keeps no source
        return _installed(thing.__module__ or "builtins", thing.__qualname__)
    return f"{thing.__qualname__}#{hashlib.sha256(_told(told).encode()).hexdigest()[:16]}"


def _installed(module: str, name: str) -> str:
    """`module.name` as runs knew it first; a benchmark that moved says its first module by HASHED_AS."""
    if is_benchmark(module):
        return f"{getattr(sys.modules.get(module), 'HASHED_AS', module)}.{name}"
    return first_name(f"{module}:{name}").replace(":", ".")


def _told(told: sources.Told) -> str:
    """The text that stands for the user's own code: alone where it needs nothing else of his."""
    if not told.values and len(told.texts) == 1:
        return told.texts[0]
    values = {name: canonical(value) for name, value in told.values.items()}
    return json.dumps([told.texts, values], sort_keys=True, allow_nan=False)


def _attributes(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value):
        return values_of_fields(value)
    state_dict = getattr(value, "state_dict", None)
    if callable(state_dict) and hasattr(type(value), "row"):  # a run that is kept, which may hold a model
        return {"run": value.name}
    if callable(state_dict):  # a PyTorch module given as it is: its text and its parameters
        parameters = hashlib.sha256()
        for name, tensor in state_dict().items():
            parameters.update(name.encode() + tensor.detach().cpu().numpy().tobytes())
        return {"text": repr(value), "parameters": parameters.hexdigest()}
    if hasattr(value, "trainable_variables") and hasattr(value, "get_weights"):  # a Keras model
        weights = hashlib.sha256(b"".join(weight.tobytes() for weight in value.get_weights()))
        return {
            "text": json.dumps(value.get_config(), sort_keys=True, default=repr),
            "weights": weights.hexdigest(),
        }
    if hasattr(value, "detach"):  # a PyTorch tensor: its pickle is never twice the same
        values = digest(value.detach().cpu().tolist())
        return {"dtype": str(value.dtype), "shape": list(value.shape), "values": values}
    if callable(getattr(value, "get_raw_value", None)):  # a variable of Flax's
        return {"value": value.get_raw_value()}
    kind: Any = type(value)
    ordinary = kind.__reduce__ is object.__reduce__ and kind.__reduce_ex__ is object.__reduce_ex__
    if ordinary and hasattr(value, "__dict__"):
        return {k: v for k, v in vars(value).items() if not k.startswith("_") or sources.is_plain(v)}
    try:  # a partial function, a NumPy scalar, an enumeration, slots: what pickle would make it from
        parts = value.__reduce_ex__(4)
    except TypeError:  # a lock, a file: no agent can get it
        return {}
    if isinstance(parts, tuple):
        parts = [list(part) if isinstance(part, Iterator) else part for part in parts]
    return {"made_from": parts}
