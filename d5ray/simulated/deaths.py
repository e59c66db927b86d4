"""Deaths and other faults of a simulation by plan, and how it goes on, by the policy of its experiment

The same policies as on Ray (`d5ray.actors.group.recovery`), and the same events; noticing a death takes no
virtual time, nor does starting a process that others wait for (see `newcomers` for one that nobody does).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Final, final

from d5ray.agent.outcome import Outcome
from d5ray.distributed.faults.fault import OF_LINKS, Fault
from d5ray.distributed.faults.plan import Faults
from d5ray.distributed.simulation.clock import VirtualEvent
from d5ray.distributed.simulation.links import DisturbedLinks
from d5ray.errors import AgentError
from d5ray.simulated.forming import SimulatedForming
from d5ray.simulated.members import Members

BY_PLAN: Final = "by plan"


@final
class Deaths:
    """Lets the faults of a plan happen, and brings the others on.

    train(rank): an agent's steps to the end, for one that is started again beside the others. ended(rank):
    an agent trains no more. forming: brings on agents that wait for each other. dead: who has died so far.
    """

    def __init__(
        self,
        members: Members,
        train: Callable[[int], Outcome],
        ended: Callable[[int], None],
        forming: SimulatedForming,
    ) -> None:
        experiment = members.experiment
        self._members, self._train, self._ended, self._forming = members, train, ended, forming
        self._policy = experiment.faults.on_failure
        self._one_sided = experiment.distributed_optimizer.one_sided
        self._restarts = self._policy == "restart" or (self._policy == "replace" and self._one_sided)
        self._most = experiment.faults.max_failures
        self._deaths = 0
        self.dead: set[int] = set()
        self.missed: dict[Fault, str] = {}  # why faults did not happen that were due

    # -- by plan ---------------------------------------------------------------------------------------

    def plan(self, faults: Faults) -> None:
        """Let the faults happen that have a time."""
        simulation = self._members.simulation
        outside = faults.from_outside
        if any(fault.kind in OF_LINKS for fault in outside):
            simulation.network.wires.disturbed = DisturbedLinks(simulation.seed)
        if any(fault.victim == "server" for fault in outside) and simulation.servers is not None:
            simulation.servers.snapshot()
            self._snapshot_later(simulation.servers.resolved.servers.snapshot_seconds)
        for fault in outside:
            assert fault.at_seconds is not None
            simulation.clock.at(fault.at_seconds, partial(self._happen, fault))

    def own(self, rank: int, fault: Fault) -> None:
        """An agent does this to itself, before a step."""
        clock = self._members.simulation.clock
        if fault.kind == "stop" and fault.seconds is not None:
            clock.sleep(fault.seconds)
            return
        clock.at(clock.seconds, partial(self._strike, rank, fault))
        VirtualEvent(clock, "its end").wait()

    def _happen(self, fault: Fault) -> None:
        members = self._members
        if fault.kind in OF_LINKS:
            disturbed = members.simulation.network.wires.disturbed
            assert isinstance(disturbed, DisturbedLinks)
            disturbed.begin(fault, members.simulation.clock.seconds)
        elif fault.victim == "agent" and not self._trains(fault.numbers[0]):
            self.missed[fault] = f"agent {fault.numbers[0]} did not train then"
            return
        number = fault.numbers[0] if fault.victim else -1
        members.note("fault", number if fault.victim == "agent" else -1, **fault.described)
        if fault.victim == "server":
            self._server_died(number)
        elif fault.victim == "agent":
            self._strike(number, fault)

    def _strike(self, rank: int, fault: Fault) -> None:
        """An agent is killed, or stands still; for ever: it is dead when `stuck_seconds` have passed."""
        clock = self._members.simulation.clock
        if fault.kind != "stop":
            self.die(rank, BY_PLAN)
        elif fault.seconds is not None:
            clock.hold(self._members.tasks[rank], fault.seconds)
        else:
            clock.hold(self._members.tasks[rank], math.inf)
            if bound := self._members.experiment.faults.stuck_seconds:
                why = f"it made no progress for {bound:g} s"
                clock.at(clock.seconds + bound, partial(self.die, rank, why))

    def _snapshot_later(self, seconds: float) -> None:
        """Keep the servers' state now and then, as long as anybody trains."""
        simulation = self._members.simulation

        def snapshot() -> None:
            assert simulation.servers is not None
            if any(self._trains(rank) for rank in self._members.left):
                simulation.servers.snapshot()
                self._snapshot_later(seconds)

        simulation.clock.at(simulation.clock.seconds + seconds, snapshot)

    # -- deaths ----------------------------------------------------------------------------------------

    def die(self, rank: int, reason: str) -> None:
        """An agent dies, now, in the middle of whatever it does; nothing happens if its training is over."""
        members = self._members
        if not self._trains(rank):
            return
        members.gone.add(rank)
        self.dead.add(rank)
        members.note("agent_died", rank, reason=reason, attempt=members.attempts[rank])
        self._count(f"TrainingAgent(rank={rank})")
        if not (self._restarts and self._one_sided):
            self._ended(rank)
        task = members.tasks.get(rank)
        if task is not None and not task.greenlet.dead:
            members.simulation.clock.kill(task)
        members.simulation.meadow.lose(rank)
        rule = members.experiment.distributed_optimizer
        step = rule.met_before(members.agents[rank].progress().step)
        members.agents[rank].leave()  # as its operating system does: connections break
        left = members.left
        if self._policy == "stop":
            for other in left:
                members.agents[other].stop()
        elif not self._one_sided:
            self._forming.died(rank)
        elif self._restarts:
            for other in left:
                members.agents[other].lost(rank, len(members.agents), other)
            members.start(rank)
            clock = members.simulation.clock
            task = members.tasks[rank] = clock.start(
                partial(self._again, rank, step), repr(members.agents[rank])
            )
            clock.await_too(task)
        else:
            self._check_left(rank)
            for index, other in enumerate(left):
                members.agents[other].lost(rank, len(left), index)

    def _again(self, rank: int, step: int) -> Outcome:
        """The rest of the training of an agent that is started again, whose peers go on meanwhile."""
        self._members.let_in(rank, step=step)
        self._members.note("agent_restarted", rank, step=step)
        return self._train(rank)

    def _server_died(self, number: int) -> None:
        members, servers = self._members, self._members.simulation.servers
        assert servers is not None
        name = servers.places[number].name
        if self._policy == "stop":
            raise AgentError(f"{name} died, so the agents were stopped")
        members.note("server_died", -1, server=name)
        self._count(name)
        restored = servers.restore(number)
        members.note("server_restored", -1, server=name, **restored)

    def _trains(self, rank: int) -> bool:
        """True if an agent is there, and does its steps or waits for a group to go on in."""
        task = self._members.tasks.get(rank)
        if rank in self._members.gone:
            return False
        if task is not None and not task.greenlet.dead:
            return True
        return not self._one_sided and self._forming.awaits(None if task is None else task.result)

    def _check_left(self, rank: int) -> None:
        left, least = len(self._members.left), self._members.experiment.faults.min_agents
        if left < least:
            raise AgentError(
                f"TrainingAgent(rank={rank}) died, {left} are left: the experiment needs {least} to go on"
            )

    def _count(self, name: str) -> None:
        self._deaths += 1
        if self._policy != "stop" and 0 <= self._most < self._deaths:
            raise AgentError(f"{name} died, the experiment survives {self._most} deaths: set max_failures")
