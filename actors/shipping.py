"""Sends the user's own code along: what a script, a notebook or a file beside it defines."""

import functools
import inspect
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle
import ray

from d5ray.errors import ConfigurationError

INSTALLED = {"site-packages", "dist-packages"}  # folders of packages, the user's own and Debian's too


def ship(experiment: Any, called: str = "the experiment") -> bytes:
    """See to it that every class and function of the experiment can be made on an agent; gives its pickle.

    experiment: or something else that actors are sent, and what errors call it.
    What an installed package defines is imported there; everything else, with the modules that lie in its
    folder, is sent by value. What `__main__` defines always is.
    """
    for module in _own_modules(experiment):
        for shipped in _beside(module):
            cloudpickle.register_pickle_by_value(shipped)
            ray.cloudpickle.register_pickle_by_value(shipped)
    try:
        pickled: bytes = ray.cloudpickle.dumps(experiment)
    except Exception as error:  # whatever an object of the user's raises when it is pickled
        raise ConfigurationError(
            f"{called} cannot be sent to the agents, since a part of it cannot be pickled: {error}; "
            "make such objects (files, locks, connections) on the agent, for example in `start`"
        ) from error
    return pickled


def _own_modules(experiment: Any) -> Iterator[ModuleType]:
    for value in _parts(experiment, set()):
        for thing in _classes(value):
            module = sys.modules.get(getattr(thing, "__module__", ""))
            if module is not None and module.__name__ != "__main__" and not _installed(module):
                yield module


def _parts(value: Any, seen: set[int]) -> Iterator[Any]:
    """The value, what lies in it, and so on."""
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value
    inner: list[Any] = []
    if isinstance(value, Mapping):
        inner = list(value.values())
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = list(value)
    elif isinstance(value, functools.partial):
        inner = [value.func, value.args, value.keywords]
    elif not isinstance(value, type | FunctionType | ModuleType):
        inner = list(getattr(value, "__dict__", {}).values())
    for part in inner:
        yield from _parts(part, seen)


def _classes(value: Any) -> tuple[Any, ...]:
    if inspect.isclass(value):
        return value.__mro__
    if inspect.isfunction(value):
        return (value,)
    return type(value).__mro__


def _installed(module: ModuleType) -> bool:
    """True if the agents can import the module: part of Python, of d5ray, or of an installed package."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__.partition(".")[0] == "d5ray":
        return True
    if INSTALLED.intersection(Path(file).parts):  # also another environment's, whose packages this one sees
        return True
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(Path(file).is_relative_to(place) for place in places)


def _beside(module: ModuleType) -> list[ModuleType]:
    folder = Path(str(module.__file__)).resolve().parent
    return [
        other
        for other in list(sys.modules.values())
        if other is module
        or (
            getattr(other, "__file__", None)
            and other.__name__ != "__main__"
            and Path(str(other.__file__)).resolve().parent == folder
            and not _installed(other)
        )
    ]
