"""What nobody foresaw: a sentence for people, and the traceback in a file for those who mend it"""

import contextlib
import errno
import os
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from d5ray.errors import D5Error, StorageError, first_line
from d5ray.metrics.folders import home

MOST_KEPT = 50  # files in D5RAY_HOME/errors; the oldest go
NAME = "traceback.txt"  # in the folder of a run
_ODD = (  # what unforeseen values lead to
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError, RecursionError,
    StopIteration, pa.ArrowException,
)  # fmt: skip
_FULL = (errno.ENOSPC, errno.EDQUOT)


def foreseen(error: BaseException) -> bool:
    """Whether an error says itself what was found, expected, and what to do, or is the user's own wish."""
    return isinstance(error, (D5Error, KeyboardInterrupt))


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


def sentence(error: BaseException) -> str:
    """What happened, on one line, and what to do about it where that is known.

    >>> sentence(KeyError("pairs"))
    "KeyError: 'pairs'"
    >>> sentence(OSError(28, "No space left on device", "/home/me/d5ray"))
    '/home/me/d5ray cannot be written (No space left on device): free some space there, or name another folder in D5RAY_HOME or TMPDIR'
    """  # noqa: E501
    if isinstance(error, MemoryError):
        told = f" ({error})" if str(error) else ""
        return f"memory ran out{told}: take a smaller batch_size or model, or end what else needs memory"
    if isinstance(error, OSError) and error.errno in _FULL:
        return (
            f"{error.filename or 'a file'} cannot be written ({error.strerror}): free some space there, or "
            "name another folder in D5RAY_HOME or TMPDIR"
        )
    return f"{type(error).__name__}: {first_line(error)}"


def told(error: BaseException) -> str:
    """The sentence, with the file that has the traceback."""
    file = keep(error)
    where = "the traceback cannot be written anywhere" if file is None else f"the traceback is in {file}"
    return f"{sentence(error)}; {where}"


@contextlib.contextmanager
def reading(*names: object) -> Iterator[None]:
    """Turns what is wrong with the contents of a folder, and was not foreseen, into a `StorageError`.

    names: of the runs that are read, as the user gave them.
    """
    try:
        yield
    except D5Error:
        raise
    except _ODD as error:
        raise StorageError(
            f"{', '.join(map(str, names))} cannot be shown: a value in it is not as d5ray writes it, or d5ray"
            f" has a defect ({sentence(error)}); the traceback is in {keep(error)}"
        ) from error


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
