"""The repository that d5ray runs from, where it does: there are its benchmarks, which no wheel has"""

import importlib
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

PACKAGE: Final = "benchmarks"


@cache
def benchmarks() -> Path | None:
    """The folder of the benchmarks beside this d5ray; None of a d5ray that is installed without it."""
    root = Path(__file__).resolve().parents[2]
    own = (root / "pyproject.toml").is_file() and (root / PACKAGE / "__init__.py").is_file()
    return root / PACKAGE if own else None


def is_benchmark(module: str) -> bool:
    """True if a loaded module of this name is of d5ray's benchmarks, and no user's folder of that name."""
    folder = benchmarks()
    if folder is None or module.partition(".")[0] != PACKAGE:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and Path(file).resolve().is_relative_to(folder)


def names() -> list[str]:
    """The benchmarks by name, in order; none without a checkout."""
    folder = benchmarks()
    return [] if folder is None else sorted(path.parent.name for path in folder.glob("*/recipe.py"))


def parts(name: str) -> list[ModuleType]:
    """The modules with this name of all benchmarks that have one, imported; none without a checkout.

    None, too, where another package took the name before.
    """
    folder = benchmarks()
    if folder is None:
        return []
    importable(folder.parent)
    found = []
    for path in sorted(folder.glob(f"*/{name}.py")):
        module = f"{PACKAGE}.{path.parent.name}.{name}"
        try:
            found.append(importlib.import_module(module))
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
    return [module for module in found if is_benchmark(module.__name__)]


def importable(root: Path) -> None:
    """Let this process import the packages in the folder, after all others."""
    if str(root) not in sys.path:
        sys.path.append(str(root))
