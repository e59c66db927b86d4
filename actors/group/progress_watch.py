"""Watch on progress: tells of agents that are silent, and finds who is stuck while others wait for it

Who waits says for whom (`TrainingAgent.vitals`), and waits are followed to their end. The agent there is
stuck if it has made no progress for `stuck_seconds`: no step, no piece of an evaluation, no time of the
processor worth mentioning, or no answer at all. A parameter server is, if it has given no answer.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import ray

from d5ray.actors.calls import DEATHS
from d5ray.actors.group.roster import AgentRoster
from d5ray.actors.group.run_row import RunPlan
from d5ray.actors.servers.run_servers import Which
from d5ray.actors.servers.server_watch import ServerWatch
from d5ray.agent.vitals import Vitals
from d5ray.distributed.group.waits import ends, named

WORKING_SHARE: Final = 0.01  # of a core, which one takes that computes; looking at a clock takes less
LATE_SECONDS: Final = 2.0  # without an answer, after which what an agent said before does not count
MOST_BETWEEN: Final = 2.0  # seconds between two looks that count: this process may have been stopped, too
Awaited = int | Which  # an agent, by rank, or a server


@dataclass
class _Seen:
    """What is known of one process of an agent, by the clock of the watch."""

    asked: Any  # reference to its next signs of life
    asked_at: float
    moved_at: float  # when it made progress last, as far as was seen
    moved_seconds: float = 0.0  # of the processor, by then
    vitals: Vitals | None = None
    silent: bool = False  # which was told in an event
    killed: bool = False

    def hear(self, vitals: Vitals, now: float) -> None:
        """Take notice of signs of life, which may say that it made progress."""
        before, self.vitals = self.vitals, vitals
        worked = vitals.cpu_seconds - self.moved_seconds
        same = before is not None and where(before) == where(vitals) and not vitals.waits
        if not same or worked > WORKING_SHARE * max(1.0, now - self.moved_at):
            self.moved_at, self.moved_seconds = now, vitals.cpu_seconds


def where(vitals: Vitals) -> tuple[int, str, int]:
    """The point in its work at which an agent is."""
    return vitals.step, vitals.doing, vitals.pieces


@dataclass(frozen=True)
class Stuck:
    """An agent that is stuck, by rank, or a server. waits: what the others wait in, by rank."""

    who: Awaited
    seconds: float
    reason: str
    waits: dict[int, list[str]]


@final
class ProgressWatch:
    """Asks the agents of a run, and its servers, for signs of life. note(name, rank, **detail): an event."""

    def __init__(self, plan: RunPlan, members: AgentRoster, note: Callable[..., None]) -> None:
        experiment = plan.experiment
        self._stuck, self._silent = experiment.faults.stuck_seconds, experiment.faults.heartbeat_seconds
        self._timeout = experiment.timeout_seconds
        self._members, self._note = members, note
        self._seen: dict[tuple[int, int], _Seen] = {}  # by rank and attempt
        self._servers = ServerWatch(members.servers)
        self._clock, self._last = 0.0, time.monotonic()
        shortest = min(self._silent, self._stuck or self._silent)
        self.interval = min(1.0, max(0.05, shortest / 4))  # seconds between two looks

    def look(
        self, pending: Collection[int], wanted: Collection[int] = (), *, lost: bool = False
    ) -> Stuck | None:
        """Ask for signs of life; gives an agent or a server that is stuck. Waits for nobody.

        pending: the ranks of those that train. wanted: of those that the run itself waits for. lost: some
        gave up waiting, so that the time-out counts where it is the shorter one.
        """
        now, seen = self._look()
        if not self._stuck:
            return None
        limit = min(self._stuck, self._timeout) if lost else self._stuck
        silent = self._servers.silent(now)
        awaited = self._awaited(seen, pending, silent, now)
        for who in ends([*awaited, *wanted], awaited):
            if isinstance(who, tuple):
                if silent[who] >= limit:
                    self._servers.forget(who)
                    return self._found_server(who, silent[who], awaited, seen)
                continue
            each = seen.get(who) if who in pending else None
            if each is not None and not each.killed and now - each.moved_at >= limit:
                each.killed = True
                return self._found(who, now - each.moved_at, awaited, seen)
        return None

    def begin(self, ranks: Collection[int] | None = None) -> None:
        """Something new is asked of these, by default of all: until now, none of them has been stuck."""
        now = self._now()
        for (rank, _), each in self._seen.items():
            if ranks is None or rank in ranks:
                each.moved_at = now

    def look_at_last(self, wanted: Collection[int], limit: float, doing: str) -> Stuck | None:
        """Ask for signs of life when the training is over; gives an agent that is stuck. Waits for nobody.

        wanted: the ranks that the run waits for since `begin`. limit: seconds without progress. doing:
        completes "the run waited for it to …". Also one that has done everything is stuck if others wait for
        it, and it does not answer.
        """
        now, seen = self._look()
        awaited = self._awaited(seen, wanted, self._servers.silent(now), now)
        for rank, each in seen.items():
            if rank not in wanted and now - each.asked_at >= LATE_SECONDS:
                del awaited[rank]
        for who in ends(wanted, awaited):
            last = None if isinstance(who, tuple) else seen.get(who)
            if isinstance(who, tuple) or last is None or last.killed:
                continue
            seconds = now - (last.moved_at if who in wanted else max(last.moved_at, last.asked_at))
            if seconds >= limit:
                last.killed = True
                return self._found(who, seconds, awaited, seen, f"the run waited for it to {doing}")
        return None

    def idle_seconds(self, rank: int) -> float:
        """Seconds in which this agent has made no progress, of those in which agents were looked at."""
        each = self._seen.get((rank, self._members.attempts[rank]))
        return 0.0 if each is None else self._clock - each.moved_at

    # --------------------------------------------------------------------------------------------------

    def _look(self) -> tuple[float, dict[int, _Seen]]:
        """What is known now of those that are there, by rank; asks all, and tells of the silent."""
        now = self._now()
        present = [rank for rank in self._members.present if self._members.agents[rank] is not None]
        seen = {rank: self._ask(rank, now) for rank in present}
        for rank in present:
            self._tell_silence(rank, seen[rank], now)
        return now, seen

    def _now(self) -> float:
        """Seconds in which agents were looked at: those in which something else was done do not count."""
        last, self._last = self._last, time.monotonic()
        self._clock += min(self._last - last, MOST_BETWEEN)
        return self._clock

    def _ask(self, rank: int, now: float) -> _Seen:
        """Take an answer that has come, and ask again."""
        key = (rank, self._members.attempts[rank])
        if key not in self._seen:
            self._seen = {other: each for other, each in self._seen.items() if other[0] != rank}
            self._seen[key] = _Seen(self._question(rank), now, now)
        each = self._seen[key]
        if ray.wait([each.asked], timeout=0)[0]:
            try:
                each.hear(ray.get(each.asked), now)
            except DEATHS:
                return each  # whoever waits for its training hears of it
            if each.silent:
                each.silent = False
                self._note("agent_heard", rank, seconds=round(now - each.asked_at, 3))
            each.asked, each.asked_at = self._question(rank), now
        return each

    def _question(self, rank: int) -> Any:
        return self._members.control(rank, "vitals").remote()

    def _tell_silence(self, rank: int, each: _Seen, now: float) -> None:
        if not each.silent and not each.killed and now - each.asked_at >= self._silent:
            if ray.wait([each.asked], timeout=0)[0]:
                return  # it has answered, or died
            each.silent = True
            place = self._members.places[rank]
            self._note("agent_silent", rank, seconds=round(now - each.asked_at, 3), host=place.hostname)

    def _awaited(
        self, seen: dict[int, _Seen], pending: Collection[int], unanswered: Mapping[Which, float], now: float
    ) -> dict[int, set[Awaited]]:
        """For whom each waits that does: those that answer and say so, and those that are done."""
        told = {
            rank: each.vitals
            for rank, each in seen.items()
            if each.vitals is not None and now - each.asked_at < LATE_SECONDS
        }
        done = [rank for rank in seen if rank not in pending]
        late = {which for which, seconds in unanswered.items() if seconds >= LATE_SECONDS}
        silent = {rank: late & self._members.servers.of_agent(rank) for rank in told}
        return _waiting(told, done, pending, silent)

    def _found(
        self,
        rank: int,
        seconds: float,
        awaited: dict[int, set[Awaited]],
        seen: dict[int, _Seen],
        at_last: str = "",
    ) -> Stuck:
        """An agent that is stuck; at_last: who waited for it when the training was over."""
        whom, waits = _who_waits(rank, awaited, seen)
        whom = at_last or whom
        each = seen[rank]
        said = "it did not answer" if self._clock - each.asked_at >= LATE_SECONDS else "it answered"
        if each.vitals is not None:
            doing = each.vitals.doing
            said += f", at step {each.vitals.step}" + (f", where it {doing}" if doing else "")
        reason = f"TrainingAgent(rank={rank}) made no progress for {seconds:.0f} s while {whom}: {said}"
        return Stuck(rank, round(seconds, 3), reason, waits)

    def _found_server(
        self, which: Which, seconds: float, awaited: dict[int, set[Awaited]], seen: dict[int, _Seen]
    ) -> Stuck:
        whom, waits = _who_waits(which, awaited, seen)
        name = self._members.servers.name(which)
        return Stuck(
            which, round(seconds, 3), f"{name} did not answer for {seconds:.0f} s while {whom}", waits
        )


def _who_waits(
    who: Awaited, awaited: dict[int, set[Awaited]], seen: dict[int, _Seen]
) -> tuple[str, dict[int, list[str]]]:
    """The words that say who waits for an agent or a server, and in what each of them waits that does."""
    others = [other for other in awaited if who in ends([other], awaited)]
    waits = {
        other: [str(wait) for wait in vitals.waits]
        for other in others
        if (vitals := seen[other].vitals) is not None and vitals.waits
    }
    return f"{named(others)} waited for it" if others else "the run waited for it", waits


def _waiting(
    vitals: Mapping[int, Vitals],
    done: Collection[int],
    pending: Collection[int],
    silent: Mapping[int, Collection[Which]],
) -> dict[int, set[Awaited]]:
    """The agents and servers for which each agent waits that does, by its rank.

    vitals: of those that answer, by rank. done: the ranks of those that have done their steps, and wait for
    those that train, which are `pending`. silent: the servers that do not answer, of each agent's.

    Who waits for servers waits for those that do not answer, which may be others than it has asked: one that
    asks a third, or has its copy there. Where all answer, it waits for the agents that have not come to them.

    >>> from d5ray.distributed.group.waits import PresentWait
    >>> wait = PresentWait("an operation", servers=(0,))
    >>> asks = Vitals(step=7, doing="trains", pieces=0, cpu_seconds=0.5, waits=(wait,))
    >>> works = Vitals(step=6, doing="trains", pieces=0, cpu_seconds=0.5, waits=())
    >>> _waiting({0: asks, 1: works}, [], [0, 1], {})
    {0: {1}}
    >>> _waiting({0: asks, 1: works}, [], [0, 1], {0: [((0, 0), 1)]})
    {0: {((0, 0), 1)}}
    """
    at_servers = {rank for rank, each in vitals.items() if any(wait.servers for wait in each.waits)}
    found: dict[int, set[Awaited]] = {rank: set(pending) for rank in done}
    for rank, each in vitals.items():
        if each.waits:
            found.setdefault(rank, set()).update(each.awaited())
    for rank in at_servers:
        found[rank] |= set(silent.get(rank, ())) or set(pending) - at_servers
    return found
