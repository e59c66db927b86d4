"""Entries that kits add to catalogues of the core, which knows no kit by name"""

import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
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


class _ModulesOfBefore(MetaPathFinder, Loader):
    """Finds modules that went into kits by their names of before, for one release and with a warning."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The spec of a module of d5ray that is not there, where a kit says that it has it."""
        if not name.startswith("d5ray.") or name.startswith(KITS) or self._now(name) is None:
            return None
        return ModuleSpec(name, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Put the module that is there now into the place of the one of before."""
        now = str(self._now(module.__name__))
        warnings.warn(
            f"{module.__name__} is {now} now, and the old name goes with the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        found = import_module(now)
        if hasattr(found, "__path__"):  # what is below is found here again, so that no class is made twice
            module.__dict__.update(__path__=[], __getattr__=lambda name: getattr(found, name))
        else:
            sys.modules[module.__name__] = found

    def _now(self, name: str) -> str | None:
        for before, now in brought("modules of before").items():
            if f"{name}.".startswith(f"{before}."):
                return now + name.removeprefix(before)
        return None


def answer_to_names_of_before() -> None:
    """Let modules that went into kits be imported by the names that they had in the core."""
    sys.meta_path.append(_ModulesOfBefore())


def missing_kit(error: ModuleNotFoundError) -> str:
    """The kit whose folder is not there; empty where another module is missing, as one that a kit imports."""
    place, _, kit = (error.name or "").rpartition(".")
    return kit if place == KITS else ""


@contextmanager
def kit_needed(by: str) -> Iterator[None]:
    """Raise `ConfigurationError` for a module of a kit that is not there. by: what needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not (kit := missing_kit(error)):
            raise
        raise ConfigurationError(
            f"{by} needs the kit {kit!r}, which this d5ray lacks: install one whose folder d5ray/kits has it"
        ) from error
