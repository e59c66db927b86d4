"""Entries that kits add to catalogues of the core, which knows no kit by name"""

import pkgutil
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

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
