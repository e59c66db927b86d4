"""The files that tracebacks go to, written with the standard library alone: what fails may be an import"""

import contextlib
import os
import tempfile
import time
import traceback
from pathlib import Path

from d5ray.metrics.record.folders import home

MOST_KEPT = 50  # files in D5RAY_HOME/errors; the oldest go
NAME = "traceback.txt"  # in the folder of a run


def keep(error: BaseException, folder: Path | None = None) -> Path | None:
    """Write an error's traceback, for its owner alone, once; gives the file.

    folder: of the run in which it happened; otherwise it goes to `D5RAY_HOME/errors`. Where neither can be
    written it goes to the temporary folder, and nowhere (None) where that is full too.
    """
    before: Path | None = getattr(error, "_d5ray_kept", None)
    if before is not None:
        return before
    text = "".join(traceback.format_exception(error))
    stamp = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.txt"
    files = [home() / "errors" / stamp, Path(tempfile.gettempdir()) / f"d5ray-error-{stamp}"]
    if folder is not None and folder.is_dir():
        files.insert(0, folder / NAME)
    for file in files:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(file, text)
            error._d5ray_kept = file  # type: ignore[attr-defined]
            _forget(file.parent if file.parent.name == "errors" else None)
            return file
    return None


def _write(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as opened:
        os.fchmod(descriptor, 0o600)
        opened.write(text)


def _forget(folder: Path | None) -> None:
    """Remove the oldest files of those that were kept."""
    files = [] if folder is None else sorted(folder.glob("*.txt"))
    for file in files[:-MOST_KEPT]:
        with contextlib.suppress(OSError):
            file.unlink()
