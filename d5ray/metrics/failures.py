"""What nobody foresaw: a sentence for people, and the traceback in a file for those who mend it"""

import contextlib
import errno
from collections.abc import Iterator

import pyarrow as pa

from d5ray.errors import D5Error, StorageError, first_line
from d5ray.metrics.tracebacks import keep

_ODD = (  # what unforeseen values lead to
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError, RecursionError,
    StopIteration, pa.ArrowException,
)  # fmt: skip
_FULL = (errno.ENOSPC, errno.EDQUOT)


def foreseen(error: BaseException) -> bool:
    """Whether an error says itself what was found, expected, and what to do, or is the user's own wish."""
    return isinstance(error, (D5Error, KeyboardInterrupt))


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
