"""Forming: a group of those that are there goes on from the step that counts, whoever died, left or came

Of a mesh whose agents hold networks together whole replicas go and come: with a dead agent go those that held
its network with it.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import final

from d5ray.actors.group.newcomers import Newcomers
from d5ray.actors.group.roster import AgentDied, AgentRoster, Formed
from d5ray.actors.group.run_row import RunPlan
from d5ray.actors.group.train_calls import TrainCalls
from d5ray.archive.unfinished import checkpoints_of
from d5ray.distributed.checkpoints.checkpoint import Checkpoints
from d5ray.distributed.checkpoints.rollback import NOTHING
from d5ray.errors import AgentError
from d5ray.training.batches.epochs import Epochs
from d5ray.training.samplers.shards import Sharing


@final
class Forming:
    """Forms groups when all agents are back from their training; others may die until one is formed.

    note(name, rank, **detail): keeps an event. note_death(rank, reason): likewise, and counts it. epochs: how
    the epochs are cut into steps by now. holds: since when the survivors wait for newcomers, being too few.
    resumed: the checkpoint that the run goes on from, if any.
    """

    epochs: Epochs
    resumed: Checkpoints | None = None

    def __init__(
        self,
        plan: RunPlan,
        members: AgentRoster,
        newcomers: Newcomers,
        note: Callable[..., None],
        note_death: Callable[[int, str], None],
    ) -> None:
        self._plan, self._experiment = plan, plan.experiment
        experiment = plan.experiment
        self._members, self._newcomers, self._replicas = members, newcomers, members.replicas
        self._note, self._note_death = note, note_death
        self._restarts = experiment.faults.on_failure == "restart"
        self._replaces = experiment.faults.on_failure == "replace"
        self._leaves_out = experiment.leaves_samples_out
        self._sharers = list(range(experiment.replicas))  # whose pieces a step has
        self.holds: float | None = None
        self._untold: list[int] = []  # who died before the survivors began to wait, or as they waited

    @property
    def coming(self) -> list[int]:
        """The ranks of the agents that start, or wait to be taken in."""
        return sorted(self._newcomers.coming)

    def form(self, calls: TrainCalls, dead: Collection[int], leaving: Collection[int] = ()) -> None:
        """Let all exchange again that are there, with the newcomers that are ready, and go on."""
        members, begun = self._members, time.monotonic()
        alive = set(members.present).difference(dead, leaving)
        whole = alive.difference(self._replicas.members(dead))  # who has the state
        came = self._newcomers.take()
        members.gone -= came.keys()
        members.gone.update(leaving)
        anew = bool(came or leaving)
        died, dying = self._untold + list(dead), list(dead)
        while True:
            self._check_left(alive, whole, died)
            formed = self._formed_without(dying, whole, anew=anew)
            if formed is None:  # who is ready comes when there are enough
                self._untold = died
                self._newcomers.give_back(came)
                members.gone |= came.keys()
                return
            if not formed.died:
                break
            for other, reason in formed.died.items():
                self._note_death(other, reason)
            dying = list(formed.died)
            for other in (lost := self._replicas.members(dying)):
                came.pop(other, None)
            alive.difference_update(dying)
            whole.difference_update(lost)
            died += [other for other in dying if other not in died]
        if formed.step == NOTHING:
            raise AgentError(f"TrainingAgent(rank={died[-1]}) died, the last one: no agent is left to go on")
        self._untold = []
        self._share_from(formed, calls)
        for other in members.present:
            calls.go_on(other, formed.step)
        self._tell(formed, died, leaving)
        for rank, seconds in came.items():
            spent = seconds | {"taking in": time.monotonic() - begun}
            self._note("agent_joined", rank, step=formed.step, group=formed.group, seconds=spent)
        if self._replaces:
            self._begin(died)

    def sharing(self) -> dict[int, Sharing]:
        """The shares of the samples for those that are there, by rank."""
        present = self._members.present
        shares = Sharing.among(self._sharers, sorted(self._replicas.numbers(present)))
        return {rank: shares[self._replicas.of(rank)] for rank in present}

    def note_replicas(self, dead: Collection[int], step: int | None) -> None:
        """Say which replicas of a mesh have ended, with which agents, and from which step others go on."""
        replicas = self._replicas
        for replica in sorted(replicas.numbers(dead)) if replicas.several else ():
            agents = [rank for rank in replicas.members(dead) if replicas.of(rank) == replica]
            died = sorted(set(dead).intersection(agents))
            name = "replica_restarted" if self._restarts else "replica_lost"
            self._note(name, -1, replica=replica, agents=agents, died=died, step=step)

    # --------------------------------------------------------------------------------------------------

    def _check_left(self, alive: Collection[int], whole: Collection[int], died: list[int]) -> None:
        """Raise `AgentError` where nobody is left to go on."""
        if alive and (whole or (self._restarts and self._replicas.several)):
            return
        if alive:
            raise AgentError(
                f"TrainingAgent(rank={died[-1]}) died, of the last replica that was whole: none is left to "
                "go on; take on_failure='restart', with Checkpoint() among the events, or more replicas"
            )
        raise AgentError(f"TrainingAgent(rank={died[-1]}) died, the last one: no agent is left to go on")

    def _formed_without(self, dying: list[int], whole: Collection[int], *, anew: bool) -> Formed | None:
        """The group of those that are left, or with others in the place of the dead; None: they wait."""
        members = self._members
        checkpoint: Checkpoints | None = None
        if not self._restarts:
            self._end_replicas(dying)
        else:
            checkpoint = None if whole else self._checkpoint()
            if not whole and checkpoint is None:  # as at the start of the run: all are made anew
                members.release(set(members.present).difference(dying))
                dying = members.present
            if again := self._started(dying):
                return Formed(died=again)
        if len(members.present) < self._experiment.faults.min_agents:
            self._wait_for_more()
            return None
        if anew or not self._leaves_out:
            self._sharers = sorted(self._replicas.numbers(members.present))
        self.holds = None
        return (
            members.form_again(self.sharing()) if whole else members.begin_again(checkpoint, self.sharing())
        )

    def _end_replicas(self, dying: Collection[int]) -> None:
        """Go on without the dead, and let those end that hold a network with them."""
        ended = self._replicas.members(dying)
        self._members.release(set(ended).intersection(self._members.present).difference(dying))
        self._members.gone.update(ended)

    def _started(self, dying: Collection[int]) -> dict[int, str]:
        """Start agents again in the place of the dead; those that died meanwhile, with the reasons."""
        again = {}
        for rank in dying:
            try:
                self._members.start(rank)
            except AgentDied as died:
                again[rank] = str(died)
        return again

    def _checkpoint(self) -> Checkpoints | None:
        """The last checkpoint of the run, or the one that it goes on from; None: there is none."""
        own = checkpoints_of(self._plan.run_id, self._plan.folder, self._experiment)
        return own[-1] if own else self.resumed

    def _wait_for_more(self) -> None:
        """Let survivors that are too few wait for newcomers; `AgentError` where none will come."""
        left, least = len(self._members.present), self._experiment.faults.min_agents
        if self._replaces:
            self._begin(self._members.gone)
        if not self._newcomers.coming:
            raise AgentError(
                f"{left} of {len(self._members.agents)} agents are left, and min_agents is {least}: set a "
                "smaller min_agents, or on_failure='replace', which starts others"
            )
        if self.holds is None:
            self.holds = time.monotonic()
            self._note("waiting", -1, agents=left, min_agents=least)

    def _begin(self, ranks: Collection[int]) -> None:
        """Start agents in the place of those that are gone, and of those that ended with them."""
        gone = self._members.gone.intersection(self._replicas.members(ranks))
        for rank in sorted(gone - self._newcomers.coming):
            self._newcomers.begin(rank)

    def _share_from(self, formed: Formed, calls: TrainCalls) -> None:
        """Take over where the data goes on, and how many steps it is to the end of the same epoch."""
        planned = self._experiment.replicas
        agents = planned if self._experiment.elastic.keep_batch == "global" else len(self._sharers)
        self.epochs = replace(self.epochs, agents=agents, since=formed.point.place)
        if calls.until is not None:
            calls.last = self.epochs.reached(calls.until)

    def _tell(self, formed: Formed, died: list[int], leaving: Collection[int]) -> None:
        """Keep what happened as events."""
        members = self._members
        self.note_replicas(died, formed.step)
        for rank in died:
            name = "agent_restarted" if self._restarts else "group_formed_again"
            self._note(name, rank, step=formed.step, group=formed.group)
        for rank in leaving:
            self._note("agent_left", rank, step=formed.step, group=formed.group)
        for alike in self._replicas.alike(formed.agreed):
            self._note("agreed", -1, step=formed.step, **formed.describe(self._one_model, alike))
        self._note(
            "agents_changed", -1, step=formed.step, group=formed.group, agents=len(members.present),
            members=members.present, global_batch=formed.point.global_batch,
            rate_factor=formed.point.rate_factor,
        )  # fmt: skip

    @property
    def _one_model(self) -> bool:
        return self._experiment.distributed_optimizer.one_model
