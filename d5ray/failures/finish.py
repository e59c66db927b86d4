"""The end of a command: its exit code, and one line for whatever went wrong"""

import atexit
import contextlib
import errno
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import typer

from d5ray.checks import check_text
from d5ray.display.visible_text import one_line
from d5ray.errors import ConfigurationError, D5Error
from d5ray.failures import tracebacks, unforeseen
from d5ray.failures.exit_codes import ERROR_EXIT_CODE, INTERRUPTED

_LEFT = "{} was called in the program before there was a verdict: leave it out of the recipe and what it uses"
_NOTHING = re.compile("--[a-z-]+=")
UNREAD = 128 + signal.SIGPIPE  # who read the output has left
LONGEST_LINE, LONGEST_BEGIN = 1500, 1000  # characters of an error


def finish(app: Callable[..., Any]) -> None:
    """Run a command line and exit: 3 for every error, in one line, also for what nobody foresaw.

    No other end is a verdict: neither `sys.exit` nor `os._exit` of what it runs, such as a recipe's own code.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    warnings.showwarning = _warn  # type: ignore[assignment]
    leave: Callable[[int], NoReturn] = os._exit
    os._exit = _guarded(leave)  # type: ignore[assignment]
    try:
        if "--json" in sys.argv[1:]:
            from d5ray.display.console import results_alone  # noqa: PLC0415

            results_alone()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # which writes what has been printed
        code = code_of(app, sys.argv[1:])
    except Exception as error:  # what shows errors cannot be imported
        code = tracebacks.say_unloadable(error)
    _end(code, leave)


def code_of(app: Callable[..., Any], words: Sequence[str]) -> int:
    """The exit code of a command line, whose words these are; what is wrong is said."""
    try:
        return _code_of(app, words)
    except D5Error as error:
        return _failed(_readable(unforeseen.without_traceback(error), words))
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # of a group without a command
            return code_of(app, [*words, "--help"])
        return _failed(_readable(f"{error.format_message()} (--help shows what there is)", words))


def _code_of(app: Callable[..., Any], words: Sequence[str]) -> int:
    try:
        _check_words(words)
        code = int(app(list(words), standalone_mode=False) or 0)
        sys.stdout.flush()
    except typer.Exit as done:
        return int(done.exit_code)
    except (typer.TyperException, D5Error):
        raise
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        return UNREAD
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):  # as rich leaves, which shows the help
            return UNREAD
        return _failed(_LEFT.format(f"sys.exit({'' if done.code is None else repr(done.code)})"))
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            return _failed(unforeseen.told(error))
        raise ConfigurationError(f"{error.filename!r} is too long for the name of a file") from error
    except BaseException as error:
        if isinstance(error, Exception) and tracebacks.importing(error):
            return tracebacks.say_unloadable(error)
        return _failed(unforeseen.told(error))
    if code == INTERRUPTED:
        from d5ray.display.console import err  # noqa: PLC0415

        err().print("interrupted", style="red")
    return code


def _check_words(words: Sequence[str]) -> None:
    """Raise `ConfigurationError` for what a shell hands over where a variable is empty, or not UTF-8."""
    for before, word in zip(["", *words], words, strict=False):
        check_text("what you gave", word)
        option = word[:-1] if _NOTHING.fullmatch(word) else before if before.startswith("--") else ""
        if not word or _NOTHING.fullmatch(word):
            what = option if option.strip("-") else "an argument"
            raise ConfigurationError(f"{what} is empty: give a value, or leave it out")


def _readable(text: str, words: Sequence[str]) -> str:
    """An error in which line ends that the user gave end no line, and no line is longer than one reads."""
    for word in words:
        for value in (word, *word.split("=", 2)[1:], word.partition("=")[2]):
            if "\n" in value:
                text = text.replace(value, one_line(value))
    return "\n".join(
        line
        if len(line) <= LONGEST_LINE
        else f"{line[:LONGEST_BEGIN]}… ({len(line):,} characters) …{line[LONGEST_BEGIN - LONGEST_LINE :]}"
        for line in text.split("\n")
    )


def _failed(text: str) -> int:
    from d5ray.display.console import err, lines  # noqa: PLC0415 - rich, only when something is shown

    with contextlib.suppress(OSError):  # standard error is closed, or full: the exit code says it
        err().print(lines(f"error: {text}", "red"))
    return ERROR_EXIT_CODE


def _guarded(leave: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    """`os._exit` that says so and exits with 3 in this process, and does as always in those it forks."""
    process = os.getpid()

    def guarded(status: int) -> NoReturn:
        leave(_failed(_LEFT.format(f"os._exit({status})")) if os.getpid() == process else status)

    return guarded


def _warn(message: Warning | str, *_: object) -> None:
    """A warning for people: what it says, not where in the program."""

    from d5ray.display.console import err, lines  # noqa: PLC0415

    err().print(lines(f"warning: {message}", "yellow"))


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _end(code: int, leave: Callable[[int], NoReturn]) -> NoReturn:
    """Leave the process; where Ray ran, after ending it and without its C++ destructors.

    Those crash now and then (signal 11) in a process that was interrupted while actors started.
    """
    session = sys.modules.get("d5ray.actors.session.session")
    if session is None:
        sys.exit(code)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not stop the cleaning up
    if code == INTERRUPTED:
        session.leave(code)
    session.shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    leave(code)
