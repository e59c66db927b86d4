"""Experiments that this user's runs kept in this D5RAY_HOME: the SHA-256 of each, an empty file a hash

The folder belongs to the user alone (mode 700), so that nobody else can add to it, wherever a run's own
folder lies and whoever can write there.
"""

import os
import stat
from pathlib import Path

from d5ray.errors import StorageError
from d5ray.metrics.record.files import storing
from d5ray.metrics.record.folders import home, make_folder


def remember(sha256: str) -> None:
    """Note that this user made a file with this hash; raises `StorageError`."""
    folder = _folder()
    with storing(folder):
        make_folder(folder)
    if not _is_private(folder):
        raise StorageError(
            f"{folder} can be written by others, or belongs to somebody else: it must be yours alone "
            f"(chmod 700 {folder})"
        )
    with storing(folder):
        (folder / sha256).touch(mode=0o600)


def is_made_here(sha256: str) -> bool:
    """True if `remember` was called with this hash by this user, in this home."""
    folder = _folder()
    return bool(sha256) and _is_private(folder) and (folder / sha256).is_file()


def _folder() -> Path:
    return home() / f"made-by-{os.getuid()}"


def _is_private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
