"""Errors that nobody foresaw: a sentence for people, and the traceback in a file for those who mend it"""

import contextlib
import errno
import re
from collections.abc import Iterator
from pathlib import Path

from d5ray.errors import D5Error, StorageError, first_line
from d5ray.failures.tracebacks import importing, keep

_ODD = (  # what unforeseen values lead to
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError, RecursionError,
    StopIteration,
)  # fmt: skip
_FULL = (errno.ENOSPC, errno.EDQUOT)
_BEGINS = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_PACKAGES = (str(Path(__file__).parents[1]), "site-packages")  # in which no user looks for his own mistake


def foreseen(error: BaseException) -> bool:
    """True if an error says by itself what was found, expected and to do, or is the user's own wish."""
    return isinstance(error, (D5Error, KeyboardInterrupt))


def sentence(error: BaseException) -> str:
    """The error on one line, with the remedy where one is known.

    >>> sentence(KeyError("pairs"))
    "KeyError: 'pairs'"
    >>> sentence(MemoryError("3 GiB"))
    'memory ran out (3 GiB): take a smaller batch_size or model, or end what else needs memory'
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


def without_traceback(error: D5Error) -> str:
    """The text of an error; where that has the traceback of another process, such as an agent's, one line.

    It names the user's own line, and the file that has the traceback.
    """
    head, begins, rest = str(error).partition(_BEGINS)
    if not begins:
        return head
    last = rest.rpartition(_BEGINS)[2]
    said = [line for line in last.splitlines() if line.strip() and not line.startswith(" ")]
    frames = _FRAME.findall(last)
    own = [frame for frame in frames if not any(package in frame[0] for package in _PACKAGES)] or frames
    place = " ({}, line {}, in {})".format(*own[-1]) if own else ""
    return f"{head.rstrip().removesuffix(':')}: {' '.join(said)}{place}; the traceback is in {keep(error)}"


@contextlib.contextmanager
def reading(*names: object) -> Iterator[None]:
    """Turns what is wrong with the contents of a folder, and was not foreseen, into a `StorageError`.

    names: of the runs that are read, as the user gave them.
    """
    try:
        yield
    except Exception as error:
        odd = isinstance(error, _ODD) or type(error).__module__.startswith("pyarrow.")
        if not odd or isinstance(error, D5Error) or importing(error):
            raise
        raise StorageError(
            f"{', '.join(map(str, names))} cannot be shown: a value in it is not as d5ray writes it, or d5ray"
            f" has a defect ({sentence(error)}); the traceback is in {keep(error)}"
        ) from error
