"""Tokens of servers: made and read where no other user sees them, in a file or a variable"""

import json
import os
import secrets
import stat
from pathlib import Path

from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.record.folders import make_folder

VARIABLE = "D5RAY_TOKEN"
SHORTEST = 8  # characters


def token_from(file: Path | str | None) -> str | None:
    """The token in a file, or in D5RAY_TOKEN where no file is named; None where there is neither.

    The file holds the token alone, or JSON with a `token`, as a run's flight.json does. Raises
    `ConfigurationError` where others may read it, and for a token that can be guessed.
    """
    if file is None:
        return _long_enough(os.environ.get(VARIABLE) or None, VARIABLE)
    path = Path(file)
    try:
        with path.open(encoding="utf-8") as opened:
            found = os.fstat(opened.fileno())
            text = opened.read(2**16).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"no token can be read from {path}: {error}") from error
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigurationError(
            f"{path} can be read by others (mode {stat.S_IMODE(found.st_mode):o}, of user {found.st_uid}): "
            f"take a token that nobody has read, in a file of your own, chmod 600 {path}"
        )
    try:
        text = json.loads(text)["token"] if text.startswith("{") else text
    except (ValueError, KeyError) as error:
        raise ConfigurationError(f"{path} holds JSON without a token") from error
    return _long_enough(str(text), str(path))


def kept_token(file: Path) -> str:
    """The token in a file of mode 600, which is made with a random one where there is none."""
    if not file.exists():
        make_folder(file.parent)
        unfinished = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
        write_private(unfinished, secrets.token_urlsafe(32))
        try:
            unfinished.rename(file)
        except OSError as error:
            raise StorageError(f"{file} cannot be written: {error}") from error
    found = token_from(file)
    assert found is not None
    return found


def write_private(file: Path, text: str) -> None:
    """Write a new file so that nobody else could have read it for a moment; one that exists is replaced."""
    try:
        file.unlink(missing_ok=True)
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error}") from error


def _long_enough(token: str | None, where: str) -> str | None:
    if token is not None and len(token) < SHORTEST:
        raise ConfigurationError(
            f"the token of {where} has {len(token)} characters: take {SHORTEST} at least, or leave it out "
            "for a random one"
        )
    return token
