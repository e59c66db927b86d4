"""Recovery: how a run goes on after the death of an agent or a server, by the policy of its experiment

| on_failure | agents that wait for each other's steps | agents that do not |
|---|---|---|
| stop | all are stopped, and the run ends | the same |
| continue | the others form a group again, and go on from the step that counts | the others go on |
| restart | another is started with the same rank, and all form a group | another is started, and joins |
| replace | the others go on at once, as above; another starts meanwhile, and is taken in | as 'restart' |

Of a mesh whose agents hold networks together, a death is its replica's affair: with "continue" and "replace"
the other agents of that replica end, and the other replicas go on; with "restart" the replica takes the state
of another one, share by share, and where no replica is whole all go back to the run's last checkpoint.

A server that dies is started anew with the state that was kept last, unless the policy is to stop.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, final

from d5ray.actors.calls import ActorDied
from d5ray.actors.group.changes import Changes
from d5ray.actors.group.forming import Forming
from d5ray.actors.group.newcomers import Newcomers
from d5ray.actors.group.roster import AgentDied, AgentRoster
from d5ray.actors.group.run_row import RunPlan
from d5ray.actors.group.train_calls import TrainCalls
from d5ray.actors.servers.run_servers import Which
from d5ray.agent.outcome import Outcome
from d5ray.errors import AgentError

DEATHS_PER_AGENT: Final = 3  # and three more, without a further step of anybody: the run cannot go on


@final
class Recovery:
    """Brings a run on after a death. note(name, rank, **detail): keeps an event; rank -1: of no agent.

    end(rank): ends the actor of an agent that Ray holds for dead, whose process may live on in its place.
    """

    def __init__(
        self, plan: RunPlan, members: AgentRoster, note: Callable[..., None], end: Callable[[int], None]
    ) -> None:
        self._run_id = plan.run_id
        self._policy = plan.experiment.faults.on_failure
        self._rule = plan.experiment.distributed_optimizer
        self._one_sided = self._rule.one_sided
        self._members, self._note, self._end = members, note, end
        self._most_failures = plan.experiment.faults.max_failures
        self._most_in_vain = DEATHS_PER_AGENT * (len(members.agents) + 1)
        self._failures = self._in_vain = 0  # deaths, and those since somebody did a further step
        self._furthest = 0
        members.servers.on_death = self.server_died
        members.servers.on_stuck = partial(note, "server_stuck", -1)
        newcomers = Newcomers(members)
        self.forming = Forming(plan, members, newcomers, note, self._note_death)
        self.changes = Changes(plan, members, newcomers, self.forming, self._note_death)

    @property
    def goes_on(self) -> bool:
        """True if a death does not end the run."""
        return self._policy != "stop"

    @property
    def restarts(self) -> bool:
        """True if an agent that dies is started again at the step where it was."""
        return self._policy == "restart" or (self._policy == "replace" and self._one_sided)

    @property
    def holds(self) -> bool:
        """True if agents that are too few wait for newcomers, and nobody trains."""
        return self.forming.holds is not None

    def agent_died(self, rank: int, outcome: Outcome, calls: TrainCalls) -> None:
        """Go on after an agent's death, or let it end the training."""
        if not self.goes_on:
            self._tell_of_death(rank, outcome.reason)
            calls.keep(rank, outcome)
            return
        self._note_death(rank, outcome.reason)
        if not self._one_sided:
            self._form_again(rank, calls)
        elif self.restarts:
            self._replace(rank, calls)
        else:
            self._leave_out(rank, calls)

    def parted(self, calls: TrainCalls) -> None:
        """Let all exchange again after some lost a peer that lives: a connection broke alone."""
        behind = {rank: outcome.reason for rank, outcome in calls.outcomes.items()}
        self._note("connection_lost", -1, reason=next(iter(behind.values())), agents=sorted(behind))
        self._count("a connection")
        calls.forget()
        self.forming.form(calls, ())

    def server_died(self, which: Which) -> None:
        """Start a server anew, and tell those that speak to it; `AgentError` where that is not the policy."""
        members, servers = self._members, self._members.servers
        name, why = servers.name(which), servers.why(which)
        members.coordinator.failed("server_died")
        if not self.goes_on:
            raise AgentError(
                f"{why}, so the agents were stopped; what was measured until then is kept: "
                f"d5ray show {self._run_id}"
            )
        restored = None
        while restored is None:
            self._note("server_died", -1, server=name, reason=why)
            self._count(name)
            with suppress(ActorDied):  # also the new one, which is started anew then
                restored = servers.restore(which, members.ask)
        self._note("server_restored", -1, server=name, **restored)

    def come_late(self, rank: int, calls: TrainCalls) -> None:
        """Start an agent that was not there yet; it goes on where the one is that has done most."""
        step = self._members.steps[rank] = min(calls.last, self._members.furthest())
        if reason := self._enter(rank, step):
            if not self.goes_on:
                raise AgentError(f"TrainingAgent(rank={rank}) came late: {reason}")
            self.agent_died(rank, Outcome("died", 0, reason), calls)
        elif step < calls.last:
            calls.go_on(rank, step)

    # -- agents that do not wait for each other --------------------------------------------------------

    def _replace(self, rank: int, calls: TrainCalls) -> None:
        """Start an agent again whose peers go on meanwhile; and again, where that one dies as it joins."""
        step = self._rule.met_before(min(calls.last, self._members.steps.get(rank, 0)))
        while True:
            self._members.suspend(rank)
            reason = self._enter(rank, step)
            self._note("agent_restarted", rank, step=step)
            if not reason:
                break
            self._note_death(rank, reason)
        calls.go_on(rank, step)

    def _enter(self, rank: int, step: int) -> str:
        """Start an agent that joins the others at this step; why it died, if it did."""
        try:
            self._members.enter(rank, step)
        except AgentDied as died:
            return str(died)
        return ""

    def _leave_out(self, rank: int, calls: TrainCalls) -> None:
        """Go on without an agent, and those that hold a network with it: their training ends with it."""
        members = self._members.replicas.members([rank])
        for other, outcome in calls.left_alone(rank, members).items():
            if outcome.status == "died":
                self._note_death(other, outcome.reason)
            elif outcome.status not in ("peer_lost", "completed"):
                raise AgentError(outcome.reason)
        self._members.drop(rank)
        self.forming.note_replicas([rank], self._members.steps.get(rank))

    # -- agents that wait for each other's steps -------------------------------------------------------

    def _form_again(self, rank: int, calls: TrainCalls) -> None:
        """Let all exchange again after this one's death, when they have noticed it."""
        self.changes.forget((rank,))
        calls.parting = False
        dead = self._interrupted(rank, calls)
        self.changes.forget(self._members.replicas.members(dead))
        self.forming.form(calls, dead)

    def _interrupted(self, rank: int, calls: TrainCalls) -> list[int]:
        """Wait for those that lost the agent with this rank; the dead."""
        dead = [rank]
        for other, outcome in calls.interrupted(rank).items():
            if outcome.status == "died":
                self._note_death(other, outcome.reason)
                dead.append(other)
            elif outcome.status not in ("peer_lost", "completed", "paused"):
                raise AgentError(outcome.reason)
        return dead

    # --------------------------------------------------------------------------------------------------

    def _note_death(self, rank: int, reason: str) -> None:
        self._members.coordinator.failed("died")
        self._end(rank)  # where a connection broke alone, it would keep the room of the one in its place
        self._tell_of_death(rank, reason)
        self._count(f"TrainingAgent(rank={rank})")

    def _tell_of_death(self, rank: int, reason: str) -> None:
        """Keep an event of it, to which the aggregator adds the rows that came."""
        members = self._members
        self._note(
            "agent_died", rank, reason=reason, attempt=members.attempts[rank], step=members.steps.get(rank)
        )

    def _count(self, name: str) -> None:
        """Count a death; `AgentError` where the run survives no other, or makes no step between them."""
        self._failures += 1
        if 0 <= self._most_failures < self._failures:
            raise AgentError(
                f"{name} died: this run survives max_failures={self._most_failures}, and this was death "
                f"number {self._failures}; set more, or -1 for any number"
            )
        furthest = self._members.reached()
        self._in_vain = 1 if furthest > self._furthest else self._in_vain + 1
        self._furthest = max(furthest, self._furthest)
        if self._in_vain > self._most_in_vain:
            raise AgentError(
                f"{name} died, as agents and servers did {self._in_vain - 1} times before since step "
                f"{self._furthest} was done, and no further one was: the run makes no progress; look at the "
                "actors' logs in the Ray dashboard"
            )
