"""The errors that people see: what was found, what was expected, what to do."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

FEW: Final = 5  # names of runs that an error lists


class D5Error(Exception):
    """Base of every error that d5ray raises on purpose; the command line prints it and exits with 3."""


class ConfigurationError(D5Error):
    """An experiment, a recipe or an argument is wrong; nothing was started."""


class UnknownArgument(ConfigurationError):
    """Something was given an argument by a name that it does not take."""


class DataError(D5Error):
    """A data set is missing, corrupt or does not fit."""


class StorageError(D5Error):
    """A run cannot be written or read."""


class DiskFull(StorageError):
    """A disk has no room left; what was to be written there can be written later."""


class AccessError(StorageError):
    """A file or folder that this user may not read, so that nothing can be said of it."""


class ValidationError(D5Error):
    """A check that failed: the object is not what it should be, and the message is the report."""


class OperatorError(D5Error):
    """An operator of the user's own does not compile, failed, or returned what it must not."""


class PlacementError(D5Error):
    """The Ray cluster cannot place the actors, or does not answer."""


class RayLost(PlacementError):
    """A process has ended without which Ray cannot go on."""


class AgentError(D5Error):
    """An agent failed or died while it was set up or trained."""


class PeerLost(D5Error):
    """A member of a communicator's group is gone; `rank` is None where the transport cannot tell which."""

    def __init__(self, rank: int | None, detail: str = "") -> None:
        who = "a peer" if rank is None else f"the peer with rank {rank}"
        super().__init__(f"{who} of this group is gone" + (f": {detail}" if detail else ""))
        self.rank = rank
        self.detail = detail

    def __reduce__(self) -> tuple[type["PeerLost"], tuple[int | None, str]]:
        return PeerLost, (self.rank, self.detail)


def nearest(name: object, known: Iterable[str], most: int | None = None) -> str:
    """The end of an error message about an unknown name: the nearest known one, or all of them.

    most: of the known names that are listed, the nearest first, where there may be any number.

    >>> nearest("momentun", ["momentum", "sgd"])
    "did you mean 'momentum'?"
    >>> nearest("x", ["momentum", "sgd"])
    'known: momentum, sgd'
    >>> nearest("x", ["max", "momentum", "sgd"], most=1)
    'known: max and 2 more'
    """
    names = sorted(known)
    lowered = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(str(name).lower(), lowered, n=1, cutoff=0.6)
    if close:
        return f"did you mean {lowered[close[0]]!r}?"
    if most is not None:
        close = difflib.get_close_matches(str(name).lower(), lowered, n=len(names) or 1, cutoff=0)
        names = [lowered[each] for each in close]
    return f"known: {some(names, most)}" if names else "none are known"


def some(names: Sequence[str], most: int | None = FEW) -> str:
    """The first of these names, and how many more there are; None: all.

    >>> some(["a", "b", "c", "d"], 2), some(["a", "b"], 2)
    ('a, b and 2 more', 'a, b')
    """
    more = 0 if most is None else len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def first_line(error: BaseException) -> str:
    """The first line of an error's text that says something; its type where none does.

    >>> first_line(ValueError("\\n no such file\\n")), first_line(KeyboardInterrupt())
    ('no such file', 'KeyboardInterrupt')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
