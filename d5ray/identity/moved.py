"""Modules and names of d5ray that have moved: where runs knew them first, and where they are now

Hashes, descriptions and pickles of runs name modules, and classes and functions in them. So a name that once
stood in a run stays its name in all of these: `moved_modules.txt` has a line for each module that moved, with
its first name and its name now, and one for each `module:Name` that was renamed or went to another module.
"""

import pickle
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Any, Final, final

TABLE: Final = "moved_modules.txt"


@cache
def moved() -> dict[str, str]:
    """The name now, by the first name, of each module and each `module:Name` that moved."""
    text = files(__package__).joinpath(TABLE).read_text(encoding="utf-8")
    return {first: now for first, _, now in (line.partition(" ") for line in text.splitlines())}


@cache
def _first_names() -> dict[str, str]:
    return {now: first for first, now in moved().items()}


def first_name(name: str) -> str:
    """The first name of a module or `module:Name`, by which runs knew it: in descriptions and hashes."""
    return _translated(name, _first_names())


def name_now(name: str) -> str:
    """The present name of a module or `module:Name` that a run names."""
    return _translated(name, moved())


def described_now(name: str) -> tuple[str, str]:
    """The present module and name of what a run describes as `module.Name`.

    >>> described_now("d5ray.canonical.digest")
    ('d5ray.identity.canonical', 'digest')
    """
    module, _, attribute = name_now(":".join(name.rsplit(".", 1))).rpartition(":")
    return module, attribute


def first_class_name(kind: type) -> str:
    """The name, without a module, by which checkpoints know a class.

    >>> first_class_name(str)
    'str'
    """
    return first_name(f"{kind.__module__}:{kind.__qualname__}").rpartition(":")[2]


def _translated(name: str, names: Mapping[str, str]) -> str:
    if name in names:
        return names[name]
    module, colon, attribute = name.partition(":")
    return f"{names.get(module, module)}{colon}{attribute}"


def unpickled(data: bytes) -> Any:
    """The pickled object, also where modules and names were others then. A pickle is a program: it is run."""
    return _Unpickler(BytesIO(data)).load()


@final
class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(*name_now(f"{module}:{name}").split(":"))
