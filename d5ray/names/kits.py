"""Entries that kits add to catalogues of the core, which knows no kit by name"""

import pkgutil
from functools import cache
from importlib import import_module
from typing import Final

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
