"""Changes of who trains, at a step that all reach: newcomers are taken in, and others leave on purpose"""

import math
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final, final

import ray
from ray.exceptions import RayError

from d5ray.actors.group.forming import Forming
from d5ray.actors.group.newcomers import Newcomers
from d5ray.actors.group.roster import AgentRoster
from d5ray.actors.group.run_row import RunPlan
from d5ray.actors.group.train_calls import TrainCalls
from d5ray.actors.metrics.aggregator import check_resize
from d5ray.actors.remote import SETUP_SECONDS
from d5ray.errors import AgentError

AHEAD_SECONDS: Final = 0.3  # of training, in which all have been told before which step they pause
AHEAD_STEPS: Final = 2  # at least
HEAR_SECONDS: Final = 1.0  # between two looks whether somebody asked for other agents


@final
class Changes:
    """Brings about what the present agents must pause for.

    They are told to pause before a step a little ahead, which all then reach together: no step is lost, and
    none is done in part. One that is further already, since it was told late, waits in vain for those that
    paused; so these leave their group, it goes back to its last complete step, and nothing hangs. In a mesh,
    where a replica has no complete step but that of all its agents, those go on instead, and all are told
    again, of a step further ahead.
    """

    def __init__(
        self,
        plan: RunPlan,
        members: AgentRoster,
        newcomers: Newcomers,
        forming: Forming,
        note_death: Callable[[int, str], None],
    ) -> None:
        self._experiment = plan.experiment
        self._members, self._newcomers, self._forming = members, newcomers, forming
        self._requested: int | None = None
        self._heard: Any = None  # reference to what is requested from outside
        self._hears = 0.0  # when that is asked again
        self._note_death = note_death
        self.leaving: list[int] = []
        self._ahead, self._pause = 1, 0  # times as far as usual is the step to pause before; that step
        self.forget()

    @property
    def under_way(self) -> bool:
        """True if something is to happen that the training is not to wait long for."""
        return bool(self.leaving or self._newcomers.coming)

    def forget(self, dead: Collection[int] = ()) -> None:
        """All agents are back: whatever they were asked is void, and the dead need not leave."""
        self.leaving = [rank for rank in self.leaving if rank not in dead]
        self._asked: dict[int, Any] = {}
        self._told: dict[int, Any] = {}
        self._left: set[int] = set()  # who left its group or went on, since one was too far

    def request(self, agents: int) -> None:
        """Let there be that many agents from the next look on; from any thread."""
        experiment = self._experiment
        one_sided = experiment.distributed_optimizer.one_sided
        check_resize(experiment.describe() | {"agents": experiment.agents}, agents, one_sided=one_sided)
        self._requested = agents

    def _want(self, agents: int) -> None:
        """Let the last ones leave, or the first come that are not there."""
        here = [rank for rank in self._members.present if rank not in self.leaving]
        coming = sorted(self._newcomers.coming)
        surplus = len(here) + len(coming) - agents
        for rank in sorted([*here, *coming], reverse=True)[: max(0, surplus)]:
            if rank in coming:
                self._newcomers.cancel(rank)
            else:
                self.leaving.append(rank)
        missing = [rank for rank in sorted(self._members.gone) if rank not in coming]
        for rank in missing[: max(0, -surplus)]:
            self._newcomers.begin(rank)

    def advance(self, calls: TrainCalls, wanted: Callable[[], Any]) -> None:
        """Do what can be done now, without waiting. wanted: gives a reference to what others request."""
        self._hear(wanted)
        if (requested := self._requested) is not None:
            self._requested = None
            self._want(requested)
        for rank, reason in self._newcomers.look().items():
            self._note_death(rank, reason)
            self._newcomers.begin(rank)
        self._check_wait()
        several = self._members.replicas.several
        if several and calls.pending and not self._told:
            self._go_on(calls)
        due = bool(self.leaving or self._newcomers.ready)
        paused = any(outcome.status == "paused" for outcome in calls.outcomes.values())
        if not calls.pending:
            if paused or (due and self._forming.holds is not None):
                self._change(calls)
        elif not due:
            return
        elif not self._asked:
            self._asked = {
                rank: self._members.control(rank, "progress").remote() for rank in self._members.present
            }
        elif not self._told:
            self._tell(calls)
        else:
            self._see(calls)

    # --------------------------------------------------------------------------------------------------

    def _hear(self, wanted: Callable[[], Any]) -> None:
        """Ask now and then for the number of agents that somebody requested, beyond this process."""
        if self._heard is None and time.monotonic() >= self._hears:
            self._heard, self._hears = wanted(), time.monotonic() + HEAR_SECONDS
        elif self._heard is not None and ray.wait([self._heard], timeout=0)[0]:
            with suppress(RayError):  # of an aggregator that is lost
                agents = ray.get(self._heard)
                self._requested = self._requested if agents is None else agents
            self._heard = None

    def _change(self, calls: TrainCalls) -> None:
        leaving, self.leaving, self._ahead = self.leaving, [], 1
        ending = [self._members.agents[rank] for rank in leaving]  # others may be started in their place
        for agent in ending:
            agent.leave.remote()
        calls.outcomes.clear()
        calls.parting = False
        self.forget()
        self._forming.form(calls, (), leaving)
        for agent in ending:
            ray.kill(agent)

    def _tell(self, calls: TrainCalls) -> None:
        """When all have said where they are: tell them before which step to pause."""
        steps = _answers(self._asked)
        if steps is None:
            return
        furthest = max((progress.step for progress in steps.values()), default=0)
        rate = calls.rate(furthest)
        pause = furthest + math.ceil(self._ahead * (AHEAD_STEPS + rate * AHEAD_SECONDS))
        pause = self._experiment.distributed_optimizer.met_by(pause, calls.last)
        if pause >= calls.last:
            self._asked = {}
            return
        self._pause, self._left = pause, set()
        self._told = {
            rank: self._members.control(rank, "pause").remote(pause) for rank in self._members.present
        }

    def _see(self, calls: TrainCalls) -> None:
        """Let those that paused leave their group, where another one was told too late."""
        answers = _answers(self._told)
        if answers is None:
            return
        in_time = {rank for rank, told in answers.items() if told}
        if self._members.replicas.several:
            self._go_on(calls, self._pause if len(in_time) == len(answers) else math.inf)
            if len(in_time) < len(answers) and self._left >= in_time:
                self.forget()
                self._ahead *= 2
            return
        if len(in_time) == len(answers):
            return
        calls.parting = True
        left = self._left
        for rank, outcome in calls.outcomes.items():
            if outcome.status == "paused" and rank not in left:
                left.add(rank)
                self._members.agents[rank].leave.remote()

    def _go_on(self, calls: TrainCalls, before: float = math.inf) -> None:
        """Let those go on that have paused, before this step, which others will not do at the same step."""
        for rank, outcome in list(calls.outcomes.items()):
            if outcome.status == "paused" and outcome.step < before:
                self._left.add(rank)
                del calls.outcomes[rank]
                calls.resume(rank, outcome.step)

    def _check_wait(self) -> None:
        since = self._forming.holds
        if since is not None and time.monotonic() - since > SETUP_SECONDS:
            raise AgentError(
                f"no agent came within {SETUP_SECONDS:g} s to the {len(self._members.present)} that are "
                "left, which are fewer than min_agents: look whether the cluster has room for one"
            )


def _answers(calls: dict[int, Any]) -> dict[int, Any] | None:
    """The answers of all that give one, by rank; None while some are to come."""
    if len(ray.wait(list(calls.values()), num_returns=len(calls), timeout=0)[0]) < len(calls):
        return None
    found = {}
    for rank, call in calls.items():
        try:
            found[rank] = ray.get(call)
        except RayError:  # its death is noticed where its training is waited for
            continue
    return found
