"""Errors of the experiment's own code, told with the agent that ran it and what it did"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from d5ray.agent.outcome import Outcome
from d5ray.errors import AgentError, D5Error, PeerLost

FRAMES = 8  # of a traceback, from its end


@contextmanager
def blaming(agent: str, when: str) -> Iterator[None]:
    """Turn an exception of the user's code into an `AgentError` that says where it happened."""
    try:
        yield
    except D5Error:
        raise
    except SystemExit as error:
        raise AgentError(f"{agent} failed {when}: {_told(error)}") from error
    except Exception as error:
        raise AgentError(f"{agent} failed {when}:\n{_told(error).rstrip()}") from error


def outcome_of(error: BaseException, step: int, *, stopped: bool) -> Outcome:
    """The outcome of a training that this error ended after that many steps; stopped: it was to end."""
    if isinstance(error, PeerLost):
        return Outcome("stopped" if stopped else "peer_lost", step, str(error))
    return Outcome("failed", step, str(error) if isinstance(error, D5Error) else _told(error))


def _told(error: BaseException) -> str:
    if not isinstance(error, SystemExit):
        return "".join(traceback.format_exception(error, limit=-FRAMES))
    code = "" if error.code is None else repr(error.code)
    return (
        f"the experiment's code called sys.exit({code}) in it, which is no verdict: raise an error where "
        "it cannot go on; an event that is to end the training sets `stops` and calls `moment.stop`"
    )
