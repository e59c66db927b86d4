"""A stable description of any part of an experiment as JSON, and its hash: equal parts, equal hashes."""

import copyreg
import dataclasses
import enum
import functools
import hashlib
import inspect
import io
import json
import math
import re
import sys
import types
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.identity import models, sources
from d5ray.identity.checkout import is_benchmark
from d5ray.identity.fields import values_of_fields
from d5ray.identity.models import attribute, is_of
from d5ray.identity.moved import first_name
from d5ray.identity.sources import Code

MOST_VALUES: Final = 100_000  # of an object's description; a larger one stands there by its hash
SAID: Final = (int, float, str, bytes, bytearray, memoryview, Mapping, list, tuple, set, frozenset, PurePath)
UNTOLD: Final = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


def canonical(value: Any) -> Any:
    """JSON data that is equal exactly when two values mean the same, in every process and on every machine.

    A class or function of d5ray or of an installed package is its name; one of the user's own is its name
    and the hash of its source and of what of the user's own it uses (see `d5ray.identity.sources`), so that
    an edit shows. An object is its class and its attributes. Of those with an underscore all count of an
    object of the user's, and else only plain data, since the others are caches and the like.

    Raises `ConfigurationError` for what cannot be described, by its place.

    >>> canonical({"rate": 0.1, "shape": (1, 8)})
    {'rate': 0.1, 'shape': [1, 8]}
    """
    description = _Description()
    try:
        return description.of(value)
    except RecursionError:
        raise ConfigurationError(
            f"{description.place} cannot be hashed: it nests too deep: keep it in a flat list or an array"
        ) from None


def digest(value: Any) -> str:
    """The SHA-256 of the canonical description, in hexadecimal."""
    return _sha256(_json(canonical(value)))


@final
class _Description:
    """One description under way: what it has said, and what it is saying."""

    def __init__(self) -> None:
        self._said: dict[int, tuple[Any, Any, int]] = {}  # a value, its description, how many values it has
        self._names: dict[int, tuple[Any, str]] = {}  # a class or function, and what stands for it
        self._texts: dict[int, str] = {}  # of a class of the user's
        self._open: dict[int, int] = {}  # what is being said, by its depth
        self._path: list[str] = []
        self._count = 0

    @property
    def place(self) -> str:
        """Where the description is, for people."""
        return " → ".join(self._path[:4]) or "this"

    def of(self, value: Any, name: str = "") -> Any:
        """The description of a value, and what it is called in the one that holds it.

        A value that holds itself is said once; one that many share is walked once.
        """
        self._count += 1
        if value is None or type(value) in (bool, int, str):
            return value
        key = id(value)
        if key in self._open:
            return {"cycle": len(self._open) - self._open[key]}
        if key in self._said:
            _, found, count = self._said[key]
            self._count += count
            shared = is_of(value, "torch.nn", "Parameter") or is_of(value, "torch.nn", "Module")
            return {"again": list(self._said).index(key)} if shared else found
        before, self._open[key] = self._count, len(self._open)
        if name:
            self._path.append(name)
        found = self._of(value)
        if name:
            self._path.pop()
        del self._open[key]
        count = self._count - before
        if count > MOST_VALUES:
            found, count = {"sha256": _sha256(_json(found))}, 1
            self._count = before + 1
        self._said[key] = value, found, count
        return found

    def _of(self, value: Any) -> Any:
        if isinstance(value, np.generic) and isinstance(value, (np.integer, np.floating, np.bool_)):
            return self.of(value.item())  # NumPy's numbers mean what Python's do
        if isinstance(value, Code | types.BuiltinFunctionType):
            return self._name(value)
        if isinstance(value, SAID) and not isinstance(value, enum.Enum):
            if type(value) is defaultdict and value.default_factory is not None:
                return {"default": self.of(value.default_factory), "value": self._plain(value)}
            if not sources.is_own(type(value)):
                return self._plain(value)
            return {"class": self._name(type(value)), "value": self._plain(value), **self._held(value)}
        fingerprint = attribute(value, "fingerprint")
        if isinstance(fingerprint, str):
            return {"class": self._name(type(value)), "fingerprint": fingerprint}
        if isinstance(value, types.ModuleType):
            return value.__name__
        if isinstance(value, UNTOLD):
            raise ConfigurationError(
                f"{self.place} is a {type(value).__name__}, and what it will give cannot be hashed: make a "
                "list of it, or a function that begins it"
            )
        return {"class": self._name(type(value)), **self._mapping(self._attributes(value))}

    def _plain(self, value: Any) -> Any:
        """What a number, a text or a container says, whatever its class."""
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, (list, tuple)):
            return [self.of(item) for item in value]
        if isinstance(value, (set, frozenset)):
            return sorted((self.of(item) for item in value), key=repr)
        if isinstance(value, PurePath):
            return str(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return {"bytes": hashlib.sha256(value).hexdigest()}
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            return int(value)  # 1 and 1.0 mean the same
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": repr(value)}  # JSON has no infinity
        return value

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        """A dictionary by the texts of its keys, or its pairs where texts do not tell the keys apart."""
        items = {str(key): item for key, item in value.items() if sources.is_plain(key)}
        if len(items) == len(value):
            return {key: self.of(items[key], key) for key in sorted(items)}
        return {"pairs": sorted(([self.of(k), self.of(v, str(k))] for k, v in value.items()), key=repr)}

    # -- classes and functions -------------------------------------------------------------------------

    def _name(self, thing: Any) -> str:
        """`module.name` of what is installed; `name#hash of the sources` of what is the user's own."""
        if id(thing) in self._names:
            return self._names[id(thing)][1]
        told = sources.told(thing) if isinstance(thing, Code) else None
        name = _installed(thing)
        text = None
        self._names[id(thing)] = thing, (thing.__qualname__ if told else name)  # what it uses may use it
        if told is not None:
            name, text = thing.__qualname__, self._told(told)
            self._texts[id(thing)] = "\n".join(told.texts)
        elif isinstance(thing, types.FunctionType) and thing.__closure__ and not sources.is_named(thing):
            text = _json(self._apart(dict(sources.kept(thing))))
        name += "" if text is None else f"#{_sha256(text)[:16]}"
        self._names[id(thing)] = thing, name
        return name

    def _told(self, told: sources.SourceTexts) -> str:
        """The text that stands for the user's own code: alone where it needs nothing else of his."""
        if not told.values and len(told.texts) == 1:
            return told.texts[0]
        return json.dumps([told.texts, self._apart(told.values)], sort_keys=True, allow_nan=False)

    def _apart(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values that a class or function uses, said as if nothing else were: it may be used anywhere."""
        outer, self._open = self._open, {}
        found = {name: self.of(value, name) for name, value in values.items()}
        self._open = outer
        return found

    # -- objects ---------------------------------------------------------------------------------------

    def _attributes(self, value: Any) -> dict[str, Any]:
        kind: Any = type(value)
        own = self._held(value)
        if dataclasses.is_dataclass(value):
            fields = values_of_fields(value)
            return {**own, **fields} if sources.is_own(kind) else fields
        if (found := models.held(value, own)) is not None:
            return found
        if isinstance(value, io.IOBase) and attribute(value, "name") is not None:
            return {"file": str(attribute(value, "name")), "mode": str(attribute(value, "mode"))}
        ordinary = kind.__reduce__ is object.__reduce__ and kind.__reduce_ex__ is object.__reduce_ex__
        if ordinary and hasattr(value, "__dict__"):
            return own
        if (inner := sources.wrapped(value)) is not None:
            return {"wraps": inner}
        return _made_from(value)

    def _held(self, value: Any) -> dict[str, Any]:
        """An object's attributes; with an underscore data, and what the text of the user's class names."""
        self._name(type(value))
        text = self._texts.get(id(type(value)), "")
        return {
            name: each
            for name, each in _own_attributes(value).items()
            if not name.startswith("_") or sources.is_plain(each) or _names(text, type(value), name)
        }


def _own_attributes(value: Any) -> dict[str, Any]:
    """What an object's dictionary and slots hold, but for what is computed when it is first asked for."""
    found: dict[str, Any] = {}
    for kind in type(value).__mro__:
        slots = vars(kind).items() if "__slots__" in vars(kind) else ()
        found |= {n: attribute(value, n) for n, each in slots if isinstance(each, types.MemberDescriptorType)}
    given = attribute(value, "__dict__")
    found |= given if isinstance(given, dict) else {}
    return {
        name: each
        for name, each in found.items()
        if not isinstance(inspect.getattr_static(type(value), name, None), functools.cached_property)
    }


def _names(text: str, kind: type, name: str) -> bool:
    plain = re.sub(rf"^_{kind.__name__.lstrip('_')}(?=__)", "", name)  # Python's name of `self.__rate`
    return re.search(rf"\b({re.escape(name)}|{re.escape(plain)})\b", text) is not None


def _made_from(value: Any) -> dict[str, Any]:
    """What pickle would make an object from: a partial function, an array, an enumeration, slots."""
    registered = copyreg.dispatch_table.get(type(value))  # as the pattern of a regular expression is
    try:
        parts = value.__reduce_ex__(4) if registered is None else registered(value)
    except RecursionError:
        raise
    except Exception:  # a lock, a socket, or whatever the user's raises: no agent can get it
        return {}
    if isinstance(parts, tuple):
        parts = [list(part) if isinstance(part, Iterator) else part for part in parts]
    return {"made_from": parts}


def _installed(thing: Any) -> str:
    """`module.name` as runs knew it first; a benchmark's module or class may say what it was by HASHED_AS."""
    module, name = sources.module_of(thing), thing.__qualname__
    if is_benchmark(module):
        first = vars(thing).get("HASHED_AS", name)
        return f"{getattr(sys.modules.get(module), 'HASHED_AS', module)}.{first}"
    return first_name(f"{module}:{name}").replace(":", ".")


def _json(description: Any) -> str:
    return json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
