"""Entries that kits add to catalogues of the core, which knows no kit by name"""

import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, Final

from d5ray.errors import ConfigurationError

KITS: Final = "d5ray.kits"


@cache
def brought(catalogue: str) -> dict[str, str]:
    """The entries of all kits for a catalogue, by name: texts, or as `pkgutil.resolve_name` takes them.

    A kit is a package of `d5ray.kits`, and its `BRINGS` has a table for each catalogue.

    >>> brought("datasets that are made")["shapes"]
    'd5ray.kits.workloads.datasets.drawn_shapes:load_shapes'
    """
    folder = import_module(KITS).__path__
    tables = [import_module(f"{KITS}.{kit.name}").BRINGS for kit in pkgutil.iter_modules(folder)]
    return {name: what for table in tables for name, what in table.get(catalogue, {}).items()}


def found(catalogue: str, name: str) -> Any:
    """The object that a kit brings to a catalogue under this name; None where there is none."""
    place = brought(catalogue).get(name)
    return None if place is None else pkgutil.resolve_name(place)


def added(module: str) -> Callable[[str], Any]:
    """`__getattr__` of a module of the core: what kits add to it, which `BRINGS` has under its name."""

    def get(name: str) -> Any:
        if (thing := found(module, name)) is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return thing

    return get


@cache
def parts(catalogue: str) -> dict[str, Any]:
    """The classes and functions that kits add to a catalogue, by name; their modules are imported."""
    return {name: pkgutil.resolve_name(what) for name, what in brought(catalogue).items()}


@contextmanager
def kit_needed(by: str) -> Iterator[None]:
    """Raise `ConfigurationError` for a module of a kit that is not there. by: what needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(f"{KITS}."):
            raise
        kit = str(error.name).split(".")[2]
        raise ConfigurationError(
            f"{by} needs the kit {kit!r}, which this d5ray lacks: install one whose folder d5ray/kits has it"
        ) from error
