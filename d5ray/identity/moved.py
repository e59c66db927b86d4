"""Modules of d5ray that have moved: where runs knew them first, and where they are now

Hashes, descriptions and pickles of runs name modules. So a name that once stood in a run stays its name in
all of these: `moved_modules.txt` has a line for each module that moved, with its first name and its name now.
"""

import pickle
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Any, Final, final

TABLE: Final = "moved_modules.txt"


@cache
def moved() -> dict[str, str]:
    """The name of each module now, by its first name."""
    text = files(__package__).joinpath(TABLE).read_text(encoding="utf-8")
    return {first: now for first, _, now in (line.partition(" ") for line in text.splitlines())}


@cache
def _first_names() -> dict[str, str]:
    return {now: first for first, now in moved().items()}


def first_name(module: str) -> str:
    """The name of a module before it moved, by which runs knew it: in descriptions and hashes."""
    return _first_names().get(module, module)


def name_now(module: str) -> str:
    """The present name of a module that a run names."""
    return moved().get(module, module)


def unpickled(data: bytes) -> Any:
    """The pickled object, also where modules stood elsewhere then. A pickle is a program: it is run."""
    return _Unpickler(BytesIO(data)).load()


@final
class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(name_now(module), name)
