"""Forming in a simulation: agents that wait for each other exchange again, whoever died, left or came

The same order of things, and the same events, as on Ray (`d5ray.actors.group.forming` and `changes`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, final

from d5ray.agent.outcome import Outcome
from d5ray.distributed.checkpoints.rollback import RestartPoint, described
from d5ray.distributed.simulation.clock import VirtualEvent
from d5ray.errors import AgentError
from d5ray.simulated.members import Members
from d5ray.simulated.newcomers import START_SECONDS, SimulatedNewcomers
from d5ray.training.batches.epochs import Epochs, Position

INTERRUPTED: Final = {"peer_lost", "completed", "paused"}  # what those come to that go on


@final
class SimulatedForming:
    """Forms groups of those that are there, with the newcomers that are ready.

    dead: who has died since the group was formed. leaving: who is to leave on purpose. last: the step at
    which the training ends. until: the place in the data where it does, if it is of whole epochs. epochs: how
    they are cut into steps by now.
    """

    epochs: Epochs

    def __init__(self, members: Members) -> None:
        experiment = members.experiment
        self._members, self._experiment = members, experiment
        self._restarts = experiment.faults.on_failure == "restart"
        self._replaces = experiment.faults.on_failure == "replace"
        self._newcomers = SimulatedNewcomers(members, self.advance)
        self._sharers = list(range(len(members.agents)))  # whose pieces a step has
        self._news: VirtualEvent | None = None  # for survivors that are too few
        self._forms = False
        self.dead: list[int] = []
        self.leaving: list[int] = []
        self.last = 0
        self.until: Position | None = None

    @property
    def coming(self) -> list[int]:
        """The ranks of the agents that start, or wait to be taken in."""
        return sorted(self._newcomers.coming)

    def awaits(self, result: object) -> bool:
        """True if an agent whose last task came to this is to go on, in the group that is formed next."""
        return self._forms or (isinstance(result, Outcome) and result.status in ("peer_lost", "paused"))

    def want(self, agents: int) -> None:
        """Let there be that many agents, from a step on that all reach together."""
        members, coming = self._members, sorted(self._newcomers.coming)
        here = [rank for rank in members.left if rank not in self.leaving]
        surplus = len(here) + len(coming) - agents
        for rank in sorted([*here, *coming], reverse=True)[: max(0, surplus)]:
            if rank in coming:
                self._newcomers.cancel(rank)
            else:
                self.leaving.append(rank)
        missing = [rank for rank in sorted(members.gone) if rank not in coming]
        self._newcomers.begin(missing[: max(0, -surplus)])
        self.advance()

    def died(self, rank: int) -> None:
        """Take notice of a death."""
        self.dead.append(rank)
        self._tell()

    def advance(self) -> None:
        """Let all pause before the next step that none has begun, if somebody is to come or leave."""
        self._tell()
        if self._forms or not (self._newcomers.ready or self.leaving):
            return
        agents = [self._members.agents[rank] for rank in self._members.left]
        step = max((agent.progress().step for agent in agents), default=0) + 1
        step = self._experiment.distributed_optimizer.met_by(step, self.last)
        for agent in agents if step < self.last else ():
            agent.pause(step)

    def goes_on(self, outcomes: Mapping[int, Outcome]) -> bool:
        """Form a group, if that is why the agents' training has ended like this; False where it is over."""
        found = {outcome.status for outcome in outcomes.values()}
        interrupted = bool(self.dead) or ("paused" in found and "peer_lost" not in found)
        if not interrupted or not found <= INTERRUPTED:
            self.dead.clear()
            return False
        self._forms = True
        self._form()
        self._forms = False
        self.advance()
        return True

    # --------------------------------------------------------------------------------------------------

    def _form(self) -> None:
        """Form groups until one is formed; others may die, and come, until then."""
        members, waits = self._members, False
        left = set(members.left).difference(self.leaving)  # who has the state
        leaving, self.leaving = [rank for rank in self.leaving if rank not in members.gone], []
        for rank in leaving:
            members.agents[rank].leave()
        members.gone.update(leaving)
        died: list[int] = []
        came: set[int] = set()
        agreed: dict[int, RestartPoint] = {}
        while not agreed:
            dead, self.dead = self.dead, []
            died += [rank for rank in dead if rank not in died]
            left.difference_update(dead)
            came.difference_update(dead)
            if not left:
                raise AgentError(f"TrainingAgent(rank={died[-1]}) died, the last one: none is left to go on")
            for rank in dead if self._restarts else ():
                members.start(rank)
                members.gone.discard(rank)
            came |= self._newcomers.take()
            if len(members.left) < self._experiment.faults.min_agents:
                self._wait_for_more(told=waits)
                waits = True
                continue
            if came or leaving or not self._experiment.leaves_samples_out:
                self._sharers = members.left
            agreed = members.form_again(self._sharers)
            if not agreed and not self.dead:
                raise AgentError("the agents that are left could not form a group: nobody answered in time")
        point = next(iter(agreed.values()))
        self._go_on_from(point.place)
        self._note(point, agreed, died, leaving)
        for rank in sorted(came):
            seconds = {"start of the actor": START_SECONDS}
            members.note("agent_joined", rank, step=point.step, group=members.epoch, seconds=seconds)
        if self._replaces:
            self._newcomers.begin(died)

    def _wait_for_more(self, *, told: bool) -> None:
        """Let survivors that are too few wait for news; `AgentError` where nobody will come."""
        members, least = self._members, self._experiment.faults.min_agents
        clock = members.simulation.clock
        if self._replaces:
            self._newcomers.begin(members.gone)
        if not self._newcomers.coming:
            raise AgentError(
                f"{len(members.left)} of {len(members.agents)} agents are left, and min_agents is {least}: "
                "set a smaller min_agents, or on_failure='replace', which starts others"
            )
        if not told:
            members.note("waiting", -1, agents=len(members.left), min_agents=least)
        self._news = VirtualEvent(clock, "an agent that comes")
        clock.run([clock.start(self._news.wait, "the agents that are left")])

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()

    def _go_on_from(self, place: Position) -> None:
        """Take over where the data goes on, and how many steps it is to the end of the same epoch."""
        planned, keeps_global = self._experiment.replicas, self._experiment.elastic.keep_batch == "global"
        agents = planned if keeps_global else len(self._sharers)
        self.epochs = replace(self.epochs, agents=agents, since=place)
        if self.until is not None:
            self.last = self.epochs.reached(self.until)

    def _note(
        self, point: RestartPoint, agreed: Mapping[int, RestartPoint], died: list[int], left: list[int]
    ) -> None:
        """Keep what happened as events; left: who left on purpose."""
        members, step = self._members, point.step
        for rank in died:
            name = "agent_restarted" if self._restarts else "group_formed_again"
            members.note(name, rank, step=step, group=members.epoch)
        for rank in left:
            members.note("agent_left", rank, step=step, group=members.epoch)
        one_model = self._experiment.distributed_optimizer.one_model
        members.note("agreed", -1, step=step, **described(members.epoch, agreed, one_model))
        members.note(
            "agents_changed", -1, step=step, group=members.epoch, agents=len(members.left),
            members=members.left, global_batch=point.global_batch, rate_factor=point.rate_factor,
        )  # fmt: skip
