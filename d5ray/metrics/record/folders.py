"""Folders where runs are kept, and the check that they can be written."""

import os
import tempfile
from pathlib import Path

from d5ray.checks import check_path
from d5ray.errors import StorageError


def home() -> Path:
    """The folder of everything that d5ray keeps: `D5RAY_HOME`, or `~/d5ray`."""
    named = os.environ.get("D5RAY_HOME")
    return check_path("D5RAY_HOME", named) if named else Path.home() / "d5ray"


def runs_root() -> Path:
    """The folder with one folder per run."""
    return home() / "runs"


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that do not exist, for this user alone (mode 700).

    One that exists keeps its permissions: a home that others may read is made before by hand.
    """
    for missing in reversed([each for each in (path, *path.parents) if not each.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def check_writable(path: Path) -> None:
    """Makes the folder `path` and writes a file there, which is removed; StorageError if that fails.

    Asking for permissions would not tell: they do not hold for root, and a full or read-only file system has
    them too.
    """
    try:
        make_folder(path)
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(b"d5ray")
            probe.flush()
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror or error}): "
            "runs need a folder to be kept in, name another one in D5RAY_HOME"
        ) from error
