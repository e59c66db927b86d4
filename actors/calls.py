"""Calls of actors with a bound, and their failures as errors that people can read."""

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayActorError, RayError, RayTaskError

from d5ray.actors.session import session
from d5ray.errors import AgentError, D5Error, first_line

Array = np.ndarray[Any, Any]

DEATHS: Final = (RayActorError, OutOfMemoryError)  # the second where Ray ended it, as memory ran short
CALL_SECONDS = 60.0  # for a call that does no work worth mentioning
LOOK_SECONDS = 1.0  # between two looks whether Ray itself lives
_NAME = re.compile(r"^\s*name: (.+)$", re.MULTILINE)  # in what Ray says of an actor that died
_WHY = (
    "Its process ended: it was killed, memory ran out (look at `dmesg`), or code that it runs called os._exit"
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
MORE_SECONDS = 1.0  # in which other actors fail for the same reason


class ActorDied(AgentError):
    """An actor died that was asked something."""


class ActorLate(AgentError):
    """An actor did not answer in time."""


def get(references: list[Any], seconds: float, doing: str) -> list[Any]:
    """The results, in order. `doing` completes "an actor did not …" in the error of one that is late."""
    try:
        return _patient(references, seconds)
    except GetTimeoutError:
        raise ActorLate(
            f"an actor did not {doing} within {seconds:g} s: look at the cluster's load and at the actors' "
            "logs in the Ray dashboard"
        ) from None
    except RayTaskError as error:
        _take_note(references)
        raise cause_of(error) from None
    except DEATHS as error:
        session.check_alive()
        raise ActorDied(
            f"{_name_in(error)} died and so did not {doing}: {first_line(error)} {_WHY}"
        ) from None
    except (RayError, OSError) as error:
        session.check_alive()
        raise AgentError(f"an actor did not {doing}, since Ray failed: {_readable(error)}") from error


def _patient(references: list[Any], seconds: float) -> list[Any]:
    """The results; raises `RayLost` while it waits, as soon as Ray itself has ended."""
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        try:
            results: list[Any] = ray.get(references, timeout=max(0.0, min(left, LOOK_SECONDS)))
            return results
        except GetTimeoutError:
            session.check_alive()
            if left <= LOOK_SECONDS:
                raise


def cause_of(error: RayTaskError) -> D5Error:
    """The error that the task itself raised; Ray's text, without colours, if that is no D5Error."""
    cause = error.cause
    return cause if isinstance(cause, D5Error) else AgentError(_COLOURS.sub("", str(error)))


def _name_in(error: BaseException) -> str:
    r"""The actor's name in what Ray says.

    >>> _name_in(ValueError("The actor died.\n  name: Keeper\n  pid: 7")), _name_in(ValueError("It died."))
    ('Keeper', 'an actor')
    """
    found = _NAME.search(str(error))
    return found[1].strip() if found else "an actor"


def _readable(error: BaseException) -> str:
    return first_line(AgentError(_COLOURS.sub("", str(error)) or type(error).__name__))


def owned(named: Mapping[str, Array]) -> dict[str, Array]:
    """Copies of arrays that Ray has given: those cannot be written, and keep its shared memory."""
    return {name: value.copy() for name, value in named.items()}


def _take_note(references: list[Any]) -> None:
    """Ask for the other calls' errors: Ray prints those that nobody asked for, with their tracebacks."""
    done, _ = ray.wait(references, num_returns=len(references), timeout=MORE_SECONDS)
    for reference in done:
        with suppress(RayError):
            ray.get(reference, timeout=MORE_SECONDS)
