"""Files of the user's that would be imported in the place of Python's own modules, or of libraries"""

import os
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from d5ray.errors import ConfigurationError

UNUSED: Final = {  # by Ray, the frameworks and d5ray
    "antigravity", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "this", "tkinter", "turtle",
    "turtledemo", "venv",
}  # fmt: skip
LIBRARIES: Final = {  # packages, which a single file hides
    "cloudpickle", "cupy", "duckdb", "google", "greenlet", "grpc", "jax", "jaxlib", "keras", "msgpack",
    "networkx", "numpy", "onnx", "optax", "pandas", "psutil", "pyarrow", "ray", "rich", "safetensors",
    "scipy", "sklearn", "tensorflow", "torch", "typer", "yaml",
}  # fmt: skip
TAKEN: Final = (sys.stdlib_module_names - UNUSED) | LIBRARIES


def check_shadowing(folders: Iterable[str] | None = None) -> None:
    """Raise `ConfigurationError` where a folder hides a module that this process and agents import.

    folders: by default those that are searched before Python's own.
    """
    for folder in _before_python() if folders is None else folders:
        with suppress(OSError), os.scandir(folder or os.curdir) as entries:
            for entry in entries:
                if (name := entry.name.partition(".")[0]) in TAKEN and _is_module(entry):
                    kind = "the library" if name in LIBRARIES else "the Python module"
                    raise ConfigurationError(
                        f"{Path(folder or os.curdir).resolve() / entry.name} would be imported in the place "
                        f"of {kind} {name!r}, also by Ray and on agents: give it another name"
                    )


def _before_python() -> list[str]:
    own = {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    found = []
    for folder in sys.path:
        if folder in own:
            break
        found.append(folder)
    return found


def _is_module(entry: "os.DirEntry[str]") -> bool:
    if entry.is_dir():
        return entry.name in sys.stdlib_module_names and Path(entry.path, "__init__.py").is_file()
    return entry.name.endswith((".py", ".pyc", ".so"))
