"""Tracebacks, and commands that cannot be loaded; by the standard library alone: an import may have failed"""

import contextlib
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

from d5ray.display.visible_text import one_line
from d5ray.errors import first_line
from d5ray.failures.exit_codes import ERROR_EXIT_CODE
from d5ray.identity.links import LinkIsText
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


def say_unloadable(error: Exception) -> int:
    """Say what failed and where its traceback is, with the standard library alone; gives the exit code."""
    if isinstance(error, LinkIsText):
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - it says all that there is to say
        return ERROR_EXIT_CODE
    kept = keep(error)
    where = "the traceback cannot be written anywhere" if kept is None else f"the traceback is in {kept}"
    text = (
        f"d5ray cannot be loaded: {named(error)}: install d5ray anew, or rename a file of your own; {where}"
    )
    print(f"error: {one_line(text)}", file=sys.stderr)  # noqa: T201 - Rich may be what is broken
    return ERROR_EXIT_CODE


def importing(error: BaseException) -> bool:
    """True if an error was raised while a module was imported."""
    return any(frame.f_code.co_name == "<module>" for frame, _ in traceback.walk_tb(error.__traceback__))


def named(error: BaseException) -> str:
    """The error on one line, with the file and line in which it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {first_line(error)}{'' if isinstance(error, SyntaxError) else place}"
