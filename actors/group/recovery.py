"""Recovery: how a run goes on after the death of an agent or a server, by the policy of its experiment

| on_failure | agents that wait for each other's steps | agents that do not |
|---|---|---|
| stop | all are stopped, and the run ends | the same |
| continue | the others form a group again, and go on from the step that counts | the others go on |
| restart | another is started with the same rank, and all form a group | another is started, and joins |
| replace | the others go on at once, as above; another starts meanwhile, and is taken in | as 'restart' |

Of a mesh whose agents hold networks together, a death is its replica's affair: with "continue" the other
agents of that replica end, and the other replicas go on; with "restart" the replica takes the state of
another one, share by share, and where no replica is whole all go back to the run's last checkpoint.

A server that dies is started anew with the state that was kept last, unless the policy is to stop.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, final

from d5ray.actors.calls import ActorDied
from d5ray.actors.group.changes import Changes
from d5ray.actors.group.forming import Forming
from d5ray.actors.group.newcomers import Newcomers
from d5ray.actors.group.roster import AgentDied, AgentRoster, Formed
from d5ray.actors.group.run_row import RunPlan
from d5ray.actors.group.train_calls import TrainCalls
from d5ray.actors.servers.run_servers import Which
from d5ray.agent.outcome import Outcome
from d5ray.archive.unfinished import checkpoints_of
from d5ray.distributed.checkpoints.checkpoint import Checkpoints
from d5ray.errors import AgentError

DEATHS_PER_AGENT: Final = 3  # and three more, without a further step of anybody: the run cannot go on


@final
class Recovery:
    """Brings a run on after a death. note(name, rank, **detail): keeps an event; rank -1: of no agent.

    resumed: the checkpoint that the run goes on from, if any.
    """

    resumed: Checkpoints | None = None

    def __init__(self, plan: RunPlan, members: AgentRoster, note: Callable[..., None]) -> None:
        self._plan, self._run_id = plan, plan.run_id
        self._policy = plan.experiment.on_failure
        self._one_sided = plan.experiment.distributed_optimizer.one_sided
        self._members, self._note = members, note
        self._most_failures = plan.experiment.max_failures
        self._most_in_vain = DEATHS_PER_AGENT * (len(members.agents) + 1)
        self._failures = self._in_vain = 0  # deaths, and those since somebody did a further step
        self._furthest = 0
        members.servers.on_death = self.server_died
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

    def server_died(self, which: Which) -> None:
        """Start a server anew, and tell those that speak to it; `AgentError` where that is not the policy."""
        members, servers = self._members, self._members.servers
        name = servers.name(which)
        members.coordinator.failed("server_died")
        if not self.goes_on:
            raise AgentError(
                f"{name} died, so the agents were stopped; what was measured until then is kept: "
                f"d5ray show {self._run_id}"
            )
        restored = None
        while restored is None:
            self._note("server_died", -1, server=name)
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
        step = min(calls.last, self._members.steps.get(rank, 0))
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
        self._note_replicas([rank], self._members.steps.get(rank))

    # -- agents that wait for each other's steps -------------------------------------------------------

    def _form_again(self, rank: int, calls: TrainCalls) -> None:
        """Let all exchange again after this one's death, when they have noticed it."""
        self.changes.forget((rank,))
        calls.parting = False
        if self._plan.experiment.mesh is not None:
            self._form_mesh_again(rank, calls)
            return
        _, dead = self._interrupted(rank, calls)
        self.changes.forget(dead)
        self.forming.form(calls, dead)

    def _form_mesh_again(self, rank: int, calls: TrainCalls) -> None:
        """The same for replicas of agents; others may die until they exchange again."""
        survivors, dying = self._interrupted(rank, calls)
        named = dying
        while dying:
            if not survivors:
                raise AgentError(
                    f"TrainingAgent(rank={named[-1]}) died, the last one: no agent is left to go on"
                )
            formed = self._formed_without(dying, named, survivors)
            for other, reason in formed.died.items():
                self._note_death(other, reason)
                survivors.discard(other)
            dying = list(formed.died)
            named = named + dying
        self._note_replicas(named, formed.step)
        for other in named:
            name = "agent_restarted" if self.restarts else "group_formed_again"
            self._note(name, other, step=formed.step, group=formed.group)
        for alike in self._members.replicas.alike(formed.agreed):
            self._note(
                "agreed",
                -1,
                step=formed.step,
                **formed.describe(self._plan.experiment.distributed_optimizer.one_model, alike),
            )
        for other in self._members.present:
            calls.go_on(other, formed.step)

    def _interrupted(self, rank: int, calls: TrainCalls) -> tuple[set[int], list[int]]:
        """Wait for those that lost the agent with this rank; who they are, and the dead."""
        survivors, dead = set(), [rank]
        for other, outcome in calls.interrupted(rank).items():
            if outcome.status == "died":
                self._note_death(other, outcome.reason)
                dead.append(other)
            elif outcome.status in ("peer_lost", "completed", "paused"):
                survivors.add(other)
            else:
                raise AgentError(outcome.reason)
        return survivors, dead

    def _formed_without(self, dead: Collection[int], named: Collection[int], survivors: set[int]) -> Formed:
        """Form a group of those that are left, or with agents that were started in the place of the dead.

        named: all that have died since the last step. survivors: ranks, of which those go that end with a
        dead agent of their replica.
        """
        members = self._members
        if not self.restarts:
            self._end_replicas(dead, survivors)
            return members.form_again()
        checkpoint = None
        if nowhere := members.replicas.several and not self._whole(named):
            own = checkpoints_of(self._run_id, self._plan.folder, self._plan.experiment)
            checkpoint = own[-1] if own else self.resumed
        if nowhere and checkpoint is None:  # as at the start of the run: all are made anew
            members.release(survivors)
            dead = members.present
        again = {}
        for rank in dead:
            try:
                members.start(rank)
            except AgentDied as died:
                again[rank] = str(died)
        if again:
            return Formed(died=again)
        return members.begin_again(checkpoint) if nowhere else members.form_again()

    def _whole(self, named: Collection[int]) -> bool:
        """True if there is a replica of which no agent has died."""
        replicas = self._members.replicas
        return replicas.numbers(self._members.present) > replicas.numbers(named)

    def _end_replicas(self, dead: Collection[int], survivors: set[int]) -> None:
        """Let the agents end that hold a network with the dead; `AgentError` where no others are left."""
        members = self._members
        ended = members.replicas.members(dead)
        members.release(survivors.intersection(ended))
        survivors.difference_update(ended)
        members.gone.update(ended)
        if not survivors:
            raise AgentError(
                f"TrainingAgent(rank={min(dead)}) died, of the last replica that was whole: none is left to "
                "go on; take on_failure='restart', with Checkpoint() among the events, or more replicas"
            )

    def _note_replicas(self, dead: Collection[int], step: int | None) -> None:
        """Say which replicas of a mesh have ended, with which agents, and from which step others go on."""
        replicas = self._members.replicas
        for replica in sorted(replicas.numbers(dead)) if replicas.several else ():
            agents = [rank for rank in replicas.members(dead) if replicas.of(rank) == replica]
            died = sorted(set(dead).intersection(agents))
            name = "replica_restarted" if self.restarts else "replica_lost"
            self._note(name, -1, replica=replica, agents=agents, died=died, step=step)

    # --------------------------------------------------------------------------------------------------

    def _note_death(self, rank: int, reason: str) -> None:
        self._members.coordinator.failed("died")
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
