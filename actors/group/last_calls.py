"""Calls of agents and servers when a training is over: who gives no sign of life meanwhile is ended"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar, final

import ray

from d5ray.actors.calls import CALL_SECONDS, ActorDied, ActorLate, get
from d5ray.actors.group.progress_watch import MOST_BETWEEN, ProgressWatch
from d5ray.actors.servers.run_servers import RunServers
from d5ray.actors.session import session
from d5ray.errors import first_line

Who = TypeVar("Who")
Wait = Callable[[Sequence[Any], float], None]


def until_back(references: Sequence[Any], seconds: float) -> None:
    """Return when all of these calls have been answered, wherever the answers are, or the time is over."""
    ray.wait(list(references), num_returns=len(references), timeout=seconds, fetch_local=False)
    session.check_alive()


@final
class LastCalls:
    """Takes the answers of agents and servers to what they are asked when no agent trains any more.

    One that gives no sign of life is ended, told of in an event, and has died then: an agent by the signs
    that the watch asks for, a server that does not answer. stuck_seconds: without a sign; 0: as many as the
    call has. kill(rank): ends an agent's process. note(name, rank, **detail): keeps an event.
    """

    def __init__(
        self,
        stuck_seconds: float,
        watch: ProgressWatch,
        servers: RunServers,
        kill: Callable[[int], None],
        note: Callable[..., None],
    ) -> None:
        self._stuck_seconds, self._watch, self._servers = stuck_seconds, watch, servers
        self._kill, self._note = kill, note

    def of_agents(
        self,
        kept: dict[int, Any],
        calls: Mapping[int, Any],
        doing: str,
        seconds: float = CALL_SECONDS,
        wait: Wait = until_back,
    ) -> dict[int, str]:
        """Put the answers of agents, by rank, into `kept`; why some gave none: they died, or were stuck.

        doing: as for `get`. seconds: without a sign of life, at most. One that is found stuck since others
        wait for it has died as well, also if it had answered.
        """
        limit, waiting, dead = self._limit(seconds), dict(calls), dict[int, str]()
        self._watch.begin()
        while waiting:
            wait(list(waiting.values()), self._watch.interval)
            dead |= _take(kept, waiting, doing)
            stuck = self._watch.look_at_last(waiting, limit, doing)
            if stuck is not None and isinstance(stuck.who, int):
                rank = stuck.who
                self._note("agent_stuck", rank, seconds=stuck.seconds, reason=stuck.reason, waits=stuck.waits)
                self._kill(rank)
                dead[rank] = stuck.reason
                waiting.pop(rank, None)
        return dead

    def of_servers(self, kept: dict[str, Any], calls: Mapping[str, Any], doing: str) -> dict[str, str]:
        """Put the answers of servers, by name, into `kept`; why some gave none: they died, or did not answer.

        They do nothing meanwhile that takes long.
        """
        limit, waiting, dead, waited = self._limit(CALL_SECONDS), dict(calls), dict[str, str](), 0.0
        while waiting and waited < limit:
            begin = time.monotonic()
            until_back(list(waiting.values()), self._watch.interval)
            waited += min(time.monotonic() - begin, MOST_BETWEEN)  # this process may have been stopped, too
            dead |= _take(kept, waiting, doing)
        for name in waiting:
            dead[name] = f"{name} did not {doing} within {waited:.0f} s, so it was ended"
            self._servers.end(self._servers.named(name), waited, dead[name], {})
        return dead

    def _limit(self, seconds: float) -> float:
        return min(self._stuck_seconds or seconds, seconds)


def _take(kept: dict[Who, Any], waiting: dict[Who, Any], doing: str) -> dict[Who, str]:
    """Move the answers that are there from the calls waited for to `kept`; why some will never come."""
    if not waiting:
        return {}
    calls, dead = list(waiting.values()), dict[Who, str]()
    back: Collection[Any] = set(ray.wait(calls, num_returns=len(calls), timeout=0, fetch_local=False)[0])
    for who in [who for who, call in waiting.items() if call in back]:
        try:
            (kept[who],) = get([waiting.pop(who)], CALL_SECONDS, doing)
        except (ActorDied, ActorLate) as error:
            dead[who] = first_line(error)
    return dead
