"""Files that a command writes where one asks for them: they appear when they are complete"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from d5ray.errors import StorageError


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Gives a path to write to, which takes the file's place in the end, and not if something fails.

    Raises `StorageError` where it cannot be written.
    """
    if file.exists() and not file.is_file():  # a device, which root would replace by a file
        raise StorageError(f"{file} is not a file: name another place with --output")
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        try:
            yield temporary
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"{file} cannot be written ({error.strerror or error}): name another place with --output"
        ) from error
