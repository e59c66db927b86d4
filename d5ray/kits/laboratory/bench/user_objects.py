"""Things of the user's own by name: FILE:NAME, or NAME of a module that can be imported"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from d5ray.checks import check_path
from d5ray.errors import ConfigurationError, D5Error, DataError, first_line, nearest
from d5ray.failures.tracebacks import keep, named
from d5ray.kits.laboratory.bench.shapes import in_memory

SUFFIX: Final = ".py"


def is_named(text: str) -> bool:
    """True if the text is of the form FILE:NAME.

    >>> is_named("swish.py:Swish"), is_named("resnet18"), is_named("model.onnx")
    (True, False, False)
    """
    place, colon, name = text.rpartition(":")
    return bool(colon and place) and all(part.isidentifier() for part in name.split("."))


def found(text: str, example: str) -> Any:
    """The object that FILE:NAME names; also `package.module:name`. example: of such a text, for errors.

    The file is loaded once, and may import what stands beside it. Raises `ConfigurationError` where there is
    no such file or name, and where the file cannot be loaded.
    """
    if not is_named(text):
        raise ConfigurationError(f"{text!r} is not of the form FILE:NAME: give one such as {example}")
    place, _, name = text.rpartition(":")
    module = _from_file(place) if place.endswith(SUFFIX) or "/" in place else _imported(place)
    thing: Any = module
    for part in name.split("."):
        if not hasattr(thing, part):
            known = (
                [each for each in vars(thing) if not each.startswith("_")]
                if hasattr(thing, "__dict__")
                else []
            )
            raise ConfigurationError(f"{place} has no {name!r}: {nearest(part, known)}")
        thing = getattr(thing, part)
    return thing


def made(kind: Any, name: str) -> Any:
    """Call a class or function that makes an object; `ConfigurationError` where it needs arguments."""
    try:
        return kind()
    except TypeError as error:
        raise ConfigurationError(
            f"{name} cannot be made without arguments: {error}; give an object of it a name in the file, and "
            "name that"
        ) from error


@contextmanager
def trying(where: str, what: str) -> Iterator[None]:
    """Says of what the user's code raises where that was. what: may be too large for the memory."""
    with naming(where, "raised"), in_memory(what):
        yield


@contextmanager
def naming(whose: str, did: str, told: Callable[[BaseException], str] | None = None) -> Iterator[None]:
    """Says of what the user's code raises whose it is. did: before the error; told: the error in words."""
    try:
        yield
    except D5Error as error:
        kind = DataError if isinstance(error, DataError) else ConfigurationError
        raise kind(f"{whose}: {error}") from error
    except Exception as error:  # whatever the user's code raises
        text = told(error) if told else f"{type(error).__name__}: {first_line(error)}"
        raise ConfigurationError(f"{whose} {did} {text}; the traceback is in {keep(error)}") from error


def _from_file(place: str) -> ModuleType:
    path = check_path("FILE", place).expanduser()
    if not path.is_file():
        near = [str(other) for other in path.parent.glob(f"*{SUFFIX}")] if path.parent.is_dir() else []
        hint = f"; {nearest(str(path), near)}" if near else ""
        raise ConfigurationError(
            f"there is no file {place} (looked in {Path.cwd()}): give the path of a Python file{hint}"
        )
    name = f"d5ray_bench_{path.resolve().stem}"  # a file called json.py must not take the place of json
    loaded = sys.modules.get(name)
    if loaded is not None and Path(str(loaded.__file__)).resolve() == path.resolve():
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{place} is not a Python file: its name must end in {SUFFIX}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with _said(place):
        spec.loader.exec_module(module)
    return module


def _imported(place: str) -> ModuleType:
    with _said(place):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name and place.partition(".")[0] == error.name.partition(".")[0]:
                raise ConfigurationError(
                    f"there is no module {error.name}: give a file, such as {place}.py, or install it"
                ) from None
            raise


@contextmanager
def _said(place: str) -> Iterator[None]:
    """Says of what the user's code raises while it is loaded whose it is, and where."""
    try:
        with naming(place, "cannot be loaded:", named):
            yield
    except SystemExit as error:
        raise ConfigurationError(
            f"{place} called sys.exit({error.code!r}) while it was loaded: put what it does besides "
            'defining things under `if __name__ == "__main__":`'
        ) from error
