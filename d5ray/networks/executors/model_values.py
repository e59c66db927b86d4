"""The values beside its tensors that a model's own code changes in training, such as a counter of steps"""

import hashlib
import io
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from inspect import getgeneratorstate
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType
from typing import Any, Final

from d5ray.errors import ConfigurationError

PLAIN: Final = (bool, int, float, str, type(None))
CODE: Final = (type, FunctionType, BuiltinFunctionType, MethodType)
FIXED: Final = (*CODE, Enum, complex, bytes)
GONE: Final = object()  # what an attribute is that is not there
Place = tuple[
    str, Any, Callable[[Any], object]
]  # the name of a value, the value, what puts another one there


class ModelValues(ABC):
    """A model's values by name, and which are others than when it was made; each framework finds its own."""

    @abstractmethod
    def places(self) -> Iterator[Place]:
        """All values of the model now."""

    def suspects(self) -> Iterator[Place]:
        """Those values that may be others than at first, found quickly."""
        return self.places()

    @abstractmethod
    def stand_ins(self) -> Callable[[Any], Any]:
        """A function that gives plain values for what is not pickled, or is no part of a value; else None."""

    @abstractmethod
    def copy(self, value: Any) -> Any:
        """A value to be had again, whatever the model does to this one."""

    @abstractmethod
    def put_new(self, name: str, value: Any) -> None:
        """Have a value that is not there, because no pass has made it yet."""

    def note_first(self) -> None:
        """Take notice of the values as they are when the model has been made."""
        self._first = {
            name: (mark, value if mark is value else self.copy(value))
            for name, value, _, mark in self._marked(self.places())
        }

    def changed(self) -> dict[str, Any]:
        """The values that are others now, by name; an object that stands twice has one of its names.

        Raises `ConfigurationError` for a function or class in another one's place.
        """
        found: dict[str, Any] = {}
        seen: set[int] = set()
        for name, value, _, mark in self._marked(self.suspects()):
            if mark != self._first.get(name, (GONE,))[0] and id(value) not in seen:
                if isinstance(value, FIXED):
                    raise ConfigurationError(
                        f"the model's {name} has become {value!r} in training, which no checkpoint keeps: "
                        "let a number or a text say which one is meant"
                    )
                if not isinstance(value, PLAIN):
                    seen.add(id(value))
                found[name] = value
        return found

    def current(self, names: Collection[str]) -> dict[str, Any]:
        """The values of these names, as they are; some may not be there."""
        return {name: value for name, value, _ in self.places() if name in names}

    def put(self, values: Mapping[str, Any]) -> None:
        """Have the values that `changed` gave of this model or one made alike, and all others as at first."""
        marked = list(self._marked(self.places()))
        named = {name: value for name, value, *_ in marked if name in values}
        again = {id(value): name for name, value in named.items() if not isinstance(value, PLAIN)}
        for name, value, take, mark in marked:
            first, before = self._first.get(name, (GONE, GONE))
            if (same := name if name in values else again.get(id(value))) is not None:
                take(values[same])
            elif mark != first:
                take(GONE if before is GONE else self.copy(before))
        for name in values.keys() - named.keys():
            self.put_new(name, values[name])

    def _marked(self, places: Iterator[Place]) -> Iterator[tuple[*Place, Any]]:
        """The places, each with what tells its value from others."""
        stand_in: Callable[[Any], Any] | None = None
        for name, value, take in places:
            if isinstance(value, (*PLAIN, *FIXED)):
                yield name, value, take, value
            else:
                stand_in = stand_in or self.stand_ins()
                yield name, value, take, _mark(value, stand_in)


def put_attribute(values: dict[str, Any], key: str, value: Any) -> None:
    """Have an attribute's value, or none, among an object's."""
    if value is GONE:
        del values[key]
    else:
        values[key] = value


def _mark(value: Any, stand_in: Callable[[Any], Any]) -> Any:
    """A hash of a value; None where it cannot be looked into, as a file cannot."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)

    def of_others(value: Any) -> Any:
        if isinstance(value, GeneratorType):
            return getgeneratorstate(value)  # which tells whether it has begun
        return id(value) if isinstance(value, CODE) else stand_in(value)

    pickler.persistent_id = of_others  # type: ignore[method-assign]
    try:
        pickler.dump(value)
    except Exception:  # whatever its own methods raise
        return None
    return hashlib.sha256(stream.getbuffer()).digest()
