"""Room for agents that are started again: who waits for it is told of, with the reason"""

import time
from collections.abc import Callable
from typing import Final, final

LATE_SECONDS: Final = 10.0  # after which an agent that does not start is asked for
LOOK_SECONDS: Final = 5.0  # between two looks


@final
class Room:
    """Tells in an event `agent_waits` of an agent that no node has room for, once each.

    why(rank): why there is none; empty if there is. note(name, rank, **detail): keeps an event.
    """

    def __init__(self, why: Callable[[int], str], note: Callable[..., None]) -> None:
        self._why, self._note = why, note
        self._told: dict[int, int] = {}  # the attempt, by rank
        self._looked: dict[int, float] = {}

    def look(self, rank: int, attempt: int, seconds: float) -> None:
        """Look whether this agent, which has been starting for so many seconds, waits for room."""
        now = time.monotonic()
        if (
            seconds < LATE_SECONDS
            or self._told.get(rank) == attempt
            or now - self._looked.get(rank, 0.0) < LOOK_SECONDS
        ):
            return
        self._looked[rank] = now
        if why := self._why(rank):
            self._told[rank] = attempt
            self._note("agent_waits", rank, reason=why)

    def missing(self, rank: int) -> str:
        """Why no node has room for this agent; empty if one has."""
        return self._why(rank)
