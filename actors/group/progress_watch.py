"""Watch on progress: tells of agents that are silent, and finds one that is stuck while others wait for it

Who waits says for whom (`TrainingAgent.vitals`), and waits are followed to their end. The agent there is
stuck if it has made no progress for `stuck_seconds`: no step, no piece of an evaluation, no time of the
processor worth mentioning, or no answer at all.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, final

import ray

from d5ray.actors.calls import DEATHS
from d5ray.actors.group.roster import AgentRoster
from d5ray.actors.group.run_row import RunPlan
from d5ray.agent.vitals import Vitals
from d5ray.distributed.group.waits import ends, named

WORKING_SHARE: Final = 0.01  # of a core, which one takes that computes; looking at a clock takes less
LATE_SECONDS: Final = 2.0  # without an answer, after which what an agent said before does not count
MOST_BETWEEN: Final = 2.0  # seconds between two looks that count: this process may have been stopped, too


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
    """An agent that is stuck, by rank. waits: what the others wait in, by rank."""

    rank: int
    seconds: float
    reason: str
    waits: dict[int, list[str]]


@final
class ProgressWatch:
    """Asks the agents of a run for signs of life. note(name, rank, **detail): keeps an event."""

    def __init__(self, plan: RunPlan, members: AgentRoster, note: Callable[..., None]) -> None:
        experiment = plan.experiment
        self._stuck, self._silent = experiment.stuck_seconds, experiment.heartbeat_seconds
        self._timeout = experiment.timeout_seconds
        self._members, self._note = members, note
        self._seen: dict[tuple[int, int], _Seen] = {}  # by rank and attempt
        self._clock, self._last = 0.0, time.monotonic()
        shortest = min(self._silent, self._stuck or self._silent)
        self.interval = min(1.0, max(0.05, shortest / 4))  # seconds between two looks

    def look(
        self, pending: Collection[int], wanted: Collection[int] = (), *, lost: bool = False
    ) -> Stuck | None:
        """Ask for signs of life; gives an agent that is stuck. Waits for nobody.

        pending: the ranks of those that train. wanted: of those that the run itself waits for. lost: some
        gave up waiting, so that the time-out counts where it is the shorter one.
        """
        now = self._now()
        present = [rank for rank in self._members.present if self._members.agents[rank] is not None]
        seen = {rank: self._ask(rank, now) for rank in present}
        for rank in present:
            self._tell_silence(rank, seen[rank], now)
        if not self._stuck:
            return None
        limit = min(self._stuck, self._timeout) if lost else self._stuck
        waiting = self._waiting(seen, pending, now)
        for rank in ends([*waiting, *wanted], waiting):
            each = seen.get(rank) if rank in pending else None
            if each is not None and not each.killed and now - each.moved_at >= limit:
                each.killed = True
                return self._found(rank, now - each.moved_at, waiting, seen)
        return None

    def idle_seconds(self, rank: int) -> float:
        """Seconds in which this agent has made no progress, of those in which agents were looked at."""
        each = self._seen.get((rank, self._members.attempts[rank]))
        return 0.0 if each is None else self._clock - each.moved_at

    # --------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        """Seconds in which agents were looked at: those in which something else was done do not count."""
        last, self._last = self._last, time.monotonic()
        self._clock += min(self._last - last, MOST_BETWEEN)
        return self._clock

    def _ask(self, rank: int, now: float) -> _Seen:
        """Take an answer that has come, and ask again."""
        key = (rank, self._members.attempts[rank])
        if key not in self._seen:
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

    def _waiting(self, seen: dict[int, _Seen], pending: Collection[int], now: float) -> dict[int, set[int]]:
        """For whom each waits that does: those that answer and say so, and those that are done."""
        waiting: dict[int, set[int]] = {}
        at_servers: set[int] = set()
        for rank, each in seen.items():
            if rank not in pending:
                waiting[rank] = set(pending)  # it has done its steps, and the run waits for the others
            elif each.vitals is not None and each.vitals.waits and now - each.asked_at < LATE_SECONDS:
                waiting[rank] = each.vitals.awaited()
                if any(wait.servers for wait in each.vitals.waits):
                    at_servers.add(rank)
        for rank in at_servers:  # which wait for whoever has not come to them yet
            waiting[rank] |= set(pending) - at_servers
        return waiting

    def _found(
        self, rank: int, seconds: float, waiting: dict[int, set[int]], seen: dict[int, _Seen]
    ) -> Stuck:
        others = [other for other in waiting if rank in ends([other], waiting)]
        waits = {
            other: [str(wait) for wait in vitals.waits]
            for other in others
            if (vitals := seen[other].vitals) is not None and vitals.waits
        }
        whom = f"{named(others)} waited for it" if others else "the run waited for it"
        each = seen[rank]
        said = "it did not answer" if self._clock - each.asked_at >= LATE_SECONDS else "it answered"
        if each.vitals is not None:
            said += f", at step {each.vitals.step}, where it {each.vitals.doing or 'trains'}"
        reason = f"TrainingAgent(rank={rank}) made no progress for {seconds:.0f} s while {whom}: {said}"
        return Stuck(rank, round(seconds, 3), reason, waits)
