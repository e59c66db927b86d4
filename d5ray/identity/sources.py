"""The sources that the user's own classes and functions are made of, with what of the user's they use"""

import inspect
import site
import sys
import sysconfig
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from d5ray.identity.checkout import is_benchmark

PLAIN = (type(None), bool, int, float, complex, str, bytes)
Code = type | types.FunctionType
_reading = threading.Lock()  # Python's cache of sources may be asked by one thread at a time


@dataclass
class Told:
    """The sources of a class or function, in the order in which they are met, and the data they use."""

    texts: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)


def is_own(thing: Any) -> bool:
    """True if a class or function is the user's: neither d5ray's, nor Python's, nor an installed package's.

    A shipped recipe counts as the user's, as a benchmark does: the same file runs as a program and as a
    module.
    """
    if not isinstance(thing, Code):
        return False
    module = thing.__module__ or "builtins"
    if module.startswith("d5ray."):
        return module.startswith("d5ray.recipes.")
    if module.partition(".")[0] in sys.stdlib_module_names and module != "__main__":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or not _installed(file)


def told(thing: Code) -> Told | None:
    """The source of `thing`, of its bases, and of the user's own classes, functions and plain data that it
    names; None where it is not the user's own, or Python kept no source. What a function closes over, and
    its defaults, count as data.
    """
    if not is_own(thing):
        return None
    found = Told()
    try:
        with _reading:
            _tell(thing, found, set())
    except (OSError, TypeError):
        return None
    return found


def is_plain(value: Any) -> bool:
    """True if the value is data: a number, a text, or a container of such."""
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(is_plain, value))
    return isinstance(value, PLAIN)


def _tell(thing: Code, found: Told, seen: set[int]) -> None:
    if id(thing) in seen:
        return
    seen.add(id(thing))
    found.texts.append(inspect.getsource(thing))
    if isinstance(thing, type):
        for base in thing.__mro__[1:]:
            if _follows(thing, base):
                _tell(base, found, seen)
    for function in _functions(thing):
        for name, value in _named(function):
            if _follows(thing, value):
                _tell(value, found, seen)
            elif is_plain(value):
                found.values[f"{function.__qualname__}: {name}"] = value
        for name, value in _kept(function):
            if _follows(thing, value):
                _tell(value, found, seen)
            else:
                found.values[f"{function.__qualname__}: {name}"] = value


def _follows(thing: Code, other: Any) -> bool:
    """True if the other one's source belongs to that of `thing`: what recipes share is d5ray's own."""
    if not is_own(other):
        return False
    module = other.__module__
    return bool(module == thing.__module__) or not (module.startswith("d5ray.") or is_benchmark(module))


def _functions(thing: Code) -> Iterator[types.FunctionType]:
    """The functions that a class defines itself, or the function."""
    if isinstance(thing, types.FunctionType):
        yield thing
        return
    for member in vars(thing).values():
        inner = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        if isinstance(inner, types.FunctionType) and inner.__module__ == thing.__module__:
            yield inner


def _named(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The globals that a function's text names."""
    for code in _codes(function.__code__):
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]


def _kept(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The names and values that a function closes over, and its defaults."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name != "__class__":
            yield from ((name, value) for value in _contents(cell))
    for number, value in enumerate(function.__defaults__ or ()):
        yield f"default {number}", value
    yield from ((f"default {name}", value) for name, value in (function.__kwdefaults__ or {}).items())


def _contents(cell: types.CellType) -> tuple[Any, ...]:
    """The contents of a cell; one of a function that is still being defined is empty."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _installed(file: str) -> bool:
    path = Path(file).resolve()
    return any(path.is_relative_to(folder) for folder in _folders())


@cache
def _folders() -> tuple[Path, ...]:
    """The folders of installed packages and Python's own modules."""
    known = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    known += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(Path(folder).resolve() for folder in known if folder)
