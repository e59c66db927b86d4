"""The end of a command whose modules cannot be imported: one line, the traceback in a file, exit code 3"""

import sys
import traceback

from d5ray.display.visible_text import one_line
from d5ray.errors import first_line
from d5ray.failures.exit_codes import ERROR_EXIT_CODE
from d5ray.failures.tracebacks import keep
from d5ray.identity.links import LinkIsText


def say(error: Exception) -> int:
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
