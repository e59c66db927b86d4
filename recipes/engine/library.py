"""Finding recipes: by name among those that ship with d5ray, or by file."""

import ast
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from d5ray.errors import ConfigurationError, D5Error, nearest
from d5ray.metrics.tracebacks import keep
from d5ray.unloadable import named

PARTS = ("FIXED", "MUTABLE", "METRICS")


def shipped() -> dict[str, str]:
    """The recipes that ship with d5ray: name and first line of the docstring. None of them is imported."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not all(part in text for part in PARTS):
            continue
        tree = ast.parse(text)
        assigned = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        if set(PARTS) <= assigned:
            found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def load(name_or_file: str) -> ModuleType:
    """The module of a recipe; `ConfigurationError` if there is none, or it does not have the three parts."""
    if name_or_file in (names := shipped()):
        module = importlib.import_module(f"d5ray.recipes.{name_or_file}")
    elif name_or_file.endswith(".py") or "/" in name_or_file:
        module = _from_file(Path(name_or_file))
    else:
        raise ConfigurationError(
            f"there is no recipe named {name_or_file!r}: {nearest(name_or_file, names)} (`d5ray list` shows "
            "them; a file of your own is given as path/to/recipe.py)"
        )
    missing = [part for part in PARTS if not hasattr(module, part)]
    if missing:
        raise ConfigurationError(
            f"{name_or_file} has no {', '.join(missing)}: a recipe defines {', '.join(PARTS)}"
        )
    return module


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigurationError(
            f"there is no recipe file {path}: give the path of a Python file that exists"
        )
    name = f"d5ray_recipe_{path.stem}"  # a recipe called json.py must not take the place of json
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} is not a Python file: a recipe's name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))  # it may import what stands beside it
    try:
        spec.loader.exec_module(module)
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
    return module
