"""Finding recipes: by name among those that ship with d5ray, by file, or by folder, as benchmarks are"""

import ast
import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final, final

from d5ray.errors import ConfigurationError, D5Error, nearest
from d5ray.failures.tracebacks import keep, named
from d5ray.identity import checkout
from d5ray.identity.shadowing import check_shadowing
from d5ray.names.kits import kit_needed

PARTS = ("FIXED", "MUTABLE", "METRICS")
LISTED: Final = "LISTED"  # what a recipe's file says of itself for `d5ray list`: its group, and what it takes
OTHERS: Final = ("others", "")  # of a recipe that says nothing
FILE: Final = "recipe.py"  # of a folder that is given as a recipe


@final
@dataclass(frozen=True)
class Listed:
    """A recipe in a list. takes: how long it runs on two cores; about: the first line of its docstring."""

    group: str
    takes: str
    about: str


def shipped() -> dict[str, Listed]:
    """The recipes that ship with d5ray, by name. None of them is imported."""
    found = {path.stem: _listed(path) for path in sorted(_folder().glob("*.py"))}
    return {name: listed for name, listed in found.items() if listed is not None}


def benchmarks() -> dict[str, Listed]:
    """The recipes that measure d5ray itself, by the path that runs them; none outside of the checkout."""
    folder = checkout.benchmarks()
    if folder is None or not Path.cwd().is_relative_to(folder.parent):
        return {}
    found = {_from_here(folder / name): _listed(folder / name / FILE) for name in checkout.names()}
    return {name: listed for name, listed in found.items() if listed is not None}


def is_known(name: str) -> bool:
    """True if d5ray has a recipe of this name here: it ships, or measures d5ray itself in a checkout."""
    return name in shipped() or name in checkout.names()


def own(name: str) -> ModuleType:
    """The module of d5ray's own recipe of this name."""
    return load(name if name in shipped() else str(_benchmark(name)))


def name_of(path: Path) -> str:
    """The name of the recipe in this file or folder; `recipe.py` in a package has that of its folder."""
    if path.is_dir() or (path.name == FILE and (path.parent / "__init__.py").is_file()):
        return (path if path.is_dir() else path.parent).resolve().name
    return path.stem


def load(name_or_path: str) -> ModuleType:
    """The module of a recipe; `ConfigurationError` if there is none, or it does not have the three parts."""
    path = Path(name_or_path)
    if name_or_path in (names := shipped()):
        with kit_needed(f"the recipe {name_or_path}"):
            module = importlib.import_module(f"d5ray.recipes.{name_or_path}")
    elif os.path.isdir(name_or_path):  # noqa: PTH112 - a name that is too long for a file is no folder
        module = _from_folder(path)
    elif name_or_path.endswith(".py") or "/" in name_or_path:
        module = _from_file(path)
    elif name_or_path in checkout.names():
        raise ConfigurationError(
            f"{name_or_path} measures d5ray itself, and is a benchmark now: "
            f"d5ray run {_from_here(_benchmark(name_or_path))}"
        )
    else:
        raise ConfigurationError(
            f"there is no recipe named {name_or_path!r}: {nearest(name_or_path, names)} (`d5ray list` shows "
            "them; a file of your own is given as path/to/recipe.py)"
        )
    missing = [part for part in PARTS if not hasattr(module, part)]
    if missing:
        raise ConfigurationError(
            f"{name_or_path} has no {', '.join(missing)}: a recipe defines {', '.join(PARTS)}"
        )
    return module


def _folder() -> Path:
    return Path(__file__).parent.parent


def _benchmark(name: str) -> Path:
    folder = checkout.benchmarks()
    assert folder is not None  # it has a name in it
    return folder / name


def _from_here(path: Path) -> str:
    """The path of a benchmark as one writes it in this folder."""
    within = Path.cwd().is_relative_to(path.parent.parent)
    return os.path.relpath(path) if within else str(path)


def _listed(path: Path) -> Listed | None:
    """The recipe of a file as it is listed, without running it; None if the file holds none."""
    text = path.read_text(encoding="utf-8")
    if not all(part in text for part in PARTS):
        return None
    tree = ast.parse(text)
    assigned = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    if not set(PARTS) <= assigned.keys():
        return None
    group, takes = ast.literal_eval(assigned[LISTED]) if LISTED in assigned else OTHERS
    return Listed(group, takes, (ast.get_docstring(tree) or "").partition("\n")[0])


def _from_folder(folder: Path) -> ModuleType:
    """The module of a folder's recipe.py, imported by its name in its package, as others there import it."""
    file = folder / FILE
    if not file.is_file():
        raise ConfigurationError(
            f"{folder} is a folder without {FILE}: give one that has it, or the path of a Python file"
        )
    if not (folder / "__init__.py").is_file():
        raise ConfigurationError(
            f"the folder {folder} is no package: put an empty __init__.py beside its {FILE}, or give {file}"
        )
    return _from_package(file.resolve())


def _from_package(file: Path) -> ModuleType:
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    name = ".".join(file.relative_to(root).with_suffix("").parts)
    with _said(file):
        _importable(root)
        module = importlib.import_module(name)
        if Path(str(module.__file__)).resolve() != file:
            raise ConfigurationError(
                f"{name} was imported from {module.__file__}, whose package has the same name: start d5ray "
                "where that is not found, or rename one of them"
            )
    return module


def _importable(root: Path) -> None:
    """Let this process, and those that it starts, import the packages in the folder, before all others."""
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    for paths in (sys.path, inherited):
        if str(root) not in paths:
            paths.insert(0, str(root))
    os.environ["PYTHONPATH"] = os.pathsep.join(inherited)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        beside = [str(other.parent) for other in path.parent.glob(f"*/{FILE}")]
        near = f"; {nearest(str(path), beside)}" if beside else ""
        raise ConfigurationError(
            f"there is no recipe file {path}: give the path of a Python file that exists{near}"
        )
    folder = checkout.benchmarks()
    if folder is not None and path.resolve().is_relative_to(folder):
        return _from_package(path.resolve())
    check_shadowing([str(path.parent.resolve())])
    name = f"d5ray_recipe_{path.stem}"  # a recipe called json.py must not take the place of json
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} is not a Python file: a recipe's name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))  # it may import what stands beside it
    with _said(path):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _said(path: Path) -> Iterator[None]:
    """Says of what a recipe's file raises while it is loaded whose it is, and where."""
    try:
        with kit_needed("it"):
            yield
    except D5Error as error:
        raise ConfigurationError(f"the recipe {path}: {error}") from error
    except SystemExit as error:
        raise ConfigurationError(
            f"the recipe {path} called sys.exit({error.code!r}) while it was loaded: a recipe defines "
            f'{", ".join(PARTS)}, put what else it does under `if __name__ == "__main__":`'
        ) from error
    except Exception as error:
        raise ConfigurationError(
            f"the recipe {path} cannot be loaded: {named(error)}; the traceback is in {keep(error)}"
        ) from error
