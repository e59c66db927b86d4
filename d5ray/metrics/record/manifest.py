"""Manifest of a run's folder: the SHA-256 of every file in it, in the form of `sha256sum`

Other tools check it (`sha256sum --check`) and sign it (`ssh-keygen -Y sign`).
"""

import hashlib
from pathlib import Path
from typing import Final

from d5ray.metrics.record.files import replacing

MANIFEST: Final = "manifest.sha256"
SIGNATURE: Final = f"{MANIFEST}.sig"  # where `ssh-keygen -Y sign` writes it
DIGITS: Final = 64
MOST_SHOWN: Final = 5  # of files that differ


def write(folder: Path) -> None:
    """Write the manifest of a folder that is complete. Raises `StorageError`."""
    with replacing(folder / MANIFEST) as part:
        part.write_text("".join(f"{line}\n" for line in _lines(folder)), "utf-8", "surrogateescape")


def differences(folder: Path) -> list[str]:
    """The files that are no longer as the manifest says, a sentence each; none where there is no manifest.

    A file that came later is none: the manifest's signature is one.
    """
    try:
        listed = (folder / MANIFEST).read_text("utf-8", "surrogateescape").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        return [f"{MANIFEST} of {folder.name} cannot be read: {error.strerror}"]
    found = set(_lines(folder))
    others = [line[DIGITS + 2 :] for line in listed if line not in found]
    more = [f"so it is with {len(others) - MOST_SHOWN} more files"] if len(others) > MOST_SHOWN else []
    return [
        *(f"{name!r} is not what it was when the run ended ({MANIFEST})" for name in others[:MOST_SHOWN]),
        *more,
    ]


def _lines(folder: Path) -> list[str]:
    """The lines of the manifest. Links are left out, since they can point elsewhere."""
    names = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    return [_line(_digest(names[name]), name) for name in sorted(names.keys() - {MANIFEST, SIGNATURE})]


def _line(digest: str, name: str) -> str:
    """A line as `sha256sum` writes it, also of a name with a backslash or the end of a line."""
    plain = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{digest}  {name}" if plain == name else f"\\{digest}  {plain}"


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
