"""Agents and servers that come and go: a run goes on without them, and with those that come in their place"""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from d5ray.actors.calls import CALL_SECONDS, ActorDied, get
from d5ray.actors.group.coordinator import Coordinator, Place
from d5ray.actors.servers.mesh_servers import MeshServers
from d5ray.actors.servers.server_actors import ServerActors
from d5ray.agent.connections import LateEntry
from d5ray.distributed.checkpoints.rollback import NOTHING, RestartPoint
from d5ray.distributed.group.group import Group
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.topologies.survivors import survivors
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import AgentError, first_line
from d5ray.experiment import Experiment

SETUP_SECONDS = 300.0


class AgentDied(Exception):
    """An agent died before it had joined the others; the text says why."""


@dataclass
class Formed:
    """The result of forming a group again: the step its members agreed on, and who died at it.

    agreed: by rank, empty where one died. died: by rank, with the reasons.
    """

    group: int = 0  # its epoch
    agreed: dict[int, RestartPoint] = field(default_factory=dict)
    died: dict[int, str] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """The step from which all go on."""
        return next(iter(self.agreed.values())).step

    def describe(self, one_model: bool) -> dict[str, Any]:
        """The facts for the events: whose state was taken, who lacked how many steps, the hashes."""
        ranks = sorted(self.agreed)
        found = self.agreed[ranks[0]]
        steps = dict(zip(ranks, found.steps, strict=True))
        described: dict[str, Any] = {
            "group": self.group,
            "members": ranks,
            "source": ranks[found.source],
            "behind": {
                rank: found.step - done for rank, done in steps.items() if NOTHING < done < found.step
            },
            "new": [rank for rank, done in steps.items() if done == NOTHING],
            "one_model": one_model,
            "anew": found.anew,
        }
        if one_model:
            described["sha256"] = {rank: self.agreed[rank].sha256 for rank in ranks}
        return described


class Maker(Protocol):
    """A maker of actors: see `launch`."""

    def agent(self, rank: int, attempt: int) -> Any:
        """A new actor with this rank, that has built its model."""


class Recovery:
    """Holds who is there, and brings the run on after a death as the experiment's policy says.

    agents: the actors by rank, replaced in place. places: where they run, likewise.
    """

    def __init__(
        self,
        experiment: Experiment,
        agents: list[Any],
        places: list[Place],
        coordinator: Coordinator,
        servers: ServerActors | MeshServers | None,
        maker: Maker,
        place_of: Callable[[object], Place],
    ) -> None:
        self.experiment = experiment
        self.agents, self.places = agents, places
        self.servers = servers
        self.gone: set[int] = set()
        self.attempts = dict.fromkeys(range(len(agents)), 0)
        self._resting: set[int] = set()
        self._lingering: dict[int, Any] = {}  # references, by rank
        self.coordinator, self._maker, self._place_of = coordinator, maker, place_of

    @property
    def left(self) -> list[int]:
        """The ranks of the agents that are there."""
        return [rank for rank in range(len(self.agents)) if rank not in self.gone]

    @property
    def restorable(self) -> ServerActors | None:
        """The parameter servers, where one that dies is started anew."""
        return self.servers if isinstance(self.servers, ServerActors) and self._goes_on else None

    @property
    def _goes_on(self) -> bool:
        return self.experiment.on_failure != "stop"

    @property
    def alone(self) -> bool:
        """True if one agent's death leaves the others' steps as they are."""
        return self.experiment.distributed_optimizer.one_sided

    def drop(self, rank: int) -> None:
        """Go on without an agent whose peers do not wait for it; `AgentError` where it was the last."""
        self.gone.add(rank)
        if not self.left:
            raise AgentError(f"TrainingAgent(rank={rank}) died, the last one: no agent is left to go on")
        if self.servers is not None:
            self.servers.leave(rank)
        for index, other in enumerate(self.left):
            self._tell(other, "lost", rank, len(self.left), index)

    def rest(self, rank: int) -> None:
        """Take notice that an agent has done its steps: servers wait for its pushes no more.

        (A straggler whose pushes came too late for rounds with backups, one that was started again, or one
        whose push died with a server that had answered this one's.)
        """
        if self.servers is not None:
            self.servers.leave(rank)
            self._resting.add(rank)
        if self.experiment.distributed_optimizer.lingers:
            self._lingering[rank] = self.agents[rank].linger.remote()

    def over(self) -> dict[int, Any]:
        """Tell all that nobody trains any more; gives references, by rank, to the ends of idle rounds."""
        lingering, self._lingering = self._lingering, {}
        for rank in lingering.keys() - self.gone:
            self._tell(rank, "over")
        return lingering

    def wake(self) -> None:
        """Let all agents take part again."""
        for rank in sorted(self._resting - self.gone):
            assert self.servers is not None
            self.servers.enter(rank, again=True)
        self._resting.clear()

    def replace(self, rank: int, step: int) -> None:
        """Put a new agent in the place of one whose peers do not wait for it; it goes on at this step.

        Raises `AgentDied` where that one dies too before it has joined.
        """
        self.gone.add(rank)
        if self.servers is not None:
            self.servers.leave(rank)
        for other in self.left:
            self._tell(other, "lost", rank, len(self.agents), other)
        self._start(rank)
        self._let_in(rank, step)

    def begin_without(self, late: Collection[int]) -> str:
        """Let the others join each other so that these can come later; returns the backend's name."""
        self.gone.update(late)
        present = self.left
        groups = self.coordinator.issue([self.places[rank] for rank in present])
        topology = survivors(self._topology, self.gone)
        calls = [
            self.agents[rank].take_first.remote(group, topology)
            for rank, group in zip(present, groups, strict=True)
        ]
        bound = self.experiment.timeout_seconds + CALL_SECONDS
        backend: str = get(calls, bound, "take the first agent's parameters")[0]
        for rank in late:
            if self.servers is not None:
                self.servers.leave(rank)
        self.gone.update(present)
        for rank in present:
            self._let_in(rank, 0, begins=True)
        return backend

    def furthest(self) -> int:
        """The most steps that one of the agents has done."""
        return max((there.step for there in self._ask("progress").values()), default=0)

    def let_come(self, rank: int, step: int) -> None:
        """Start an agent that was not there yet; it goes on at this step. Raises `AgentDied` if it dies."""
        self._start(rank)
        self._let_in(rank, step)

    def form_again(self, dead: Collection[int]) -> Formed:
        """A new group, after deaths ended the others' exchange; see `TrainingAgent.rejoin`.

        Where others died meanwhile, the group is to be formed again.
        """
        if self.experiment.on_failure != "restart":
            self.gone.update(dead)
        elif again := self._start_all(dead):
            return Formed(died=again)
        ranks = self.left
        topology = survivors(self._topology, self.gone)
        groups = self.coordinator.issue([self.places[other] for other in ranks])
        calls = {
            self.agents[other].rejoin.remote(group, topology): group
            for other, group in zip(ranks, groups, strict=True)
        }
        agreed, died = self._formed(calls)
        return Formed(
            self.coordinator.epoch,
            {ranks[index]: each for index, each in agreed.items()} if not died else {},
            {ranks[index]: reason for index, reason in died.items()},
        )

    def restore(self, number: int) -> None:
        """Start a parameter server anew, and tell those that speak to it."""
        servers = self.restorable
        assert servers is not None and self.experiment.resolved_servers is not None
        group, shard = servers.shard(number)
        address = servers.restore(number)
        resolved, agents = self.experiment.resolved_servers, len(self.agents)
        for rank in self.left:
            if resolved.group_of(rank, agents) == group:
                self._tell(rank, "reroute", shard, address)

    # --------------------------------------------------------------------------------------------------

    def _start_all(self, dead: Collection[int]) -> dict[int, str]:
        """Start agents with these ranks; those of them that died at it, with the reasons."""
        again = {}
        for rank in dead:
            try:
                self._start(rank)
            except AgentDied as error:
                again[rank] = str(error)
        return again

    def _formed(self, calls: Mapping[Any, Group]) -> tuple[dict[int, RestartPoint], dict[int, str]]:
        """Wait until all have joined their group; what each agreed on, or why it died, by rank in it."""
        agreed: dict[int, RestartPoint] = {}
        died: dict[int, str] = {}
        failed, waiting = [], list(calls)
        deadline = time.monotonic() + self.experiment.timeout_seconds + CALL_SECONDS
        while waiting:
            left = max(0.0, deadline - time.monotonic())
            done, waiting = ray.wait(waiting, num_returns=1, timeout=left)
            if not done:
                failed += waiting
                break
            try:
                agreed[calls[done[0]].rank] = ray.get(done[0])
            except RayActorError as error:
                died[calls[done[0]].rank] = first_line(error)
                self.coordinator.lose(calls[done[0]])
            except RayTaskError:
                failed += done
        if failed and not died:
            get(failed, 0.0, "form a new group")  # raises what people can read
        return agreed, died

    def _let_in(self, rank: int, step: int, *, begins: bool = False) -> None:
        """Let an agent that is ready join those that are there, at this step.

        begins: it has its parameters already, and so have the servers.
        """
        directory, peers = None, ExchangeVia.PEERS in self.experiment.distributed_optimizer.exchange
        if isinstance(self.servers, ServerActors):  # nobody comes late to a mesh
            if not begins:
                self.servers.enter(rank)
            directory = self.servers.directory
        entry = LateEntry(
            self.coordinator.issue(self.places)[rank],
            step,
            directory,
            self._ask("peer_address") if peers else {},
            self._parameters() if peers and not begins else None,
            tuple(self.gone - {rank}),
        )
        _ask_new(self.agents[rank].join_late.remote(entry), SETUP_SECONDS, "join")
        if peers:
            call = self.agents[rank].peer_address.remote()
            address = _ask_new(call, CALL_SECONDS, "say where it is")
            for other in self.left:
                self._tell(other, "admit", rank, address)
        self.gone.discard(rank)

    @property
    def _topology(self) -> Topology:
        assert self.experiment.topology is not None
        return self.experiment.topology

    def _start(self, rank: int) -> None:
        self.attempts[rank] += 1
        try:
            self.agents[rank] = self._maker.agent(rank, self.attempts[rank])
        except ActorDied as error:
            raise AgentDied(str(error)) from None
        call = self.agents[rank].__ray_call__.remote(self._place_of)
        self.places[rank] = _ask_new(call, SETUP_SECONDS, "answer")

    def _tell(self, rank: int, method: str, *arguments: Any) -> None:
        """A call to an agent that trains; one that dies meanwhile is noticed elsewhere."""
        call = getattr(self.agents[rank], method).options(concurrency_group="control")
        with suppress(RayActorError):
            ray.get(call.remote(*arguments), timeout=CALL_SECONDS)

    def _ask(self, method: str) -> dict[int, Any]:
        found = {}
        for rank in self.left:
            call = getattr(self.agents[rank], method).options(concurrency_group="control")
            try:
                found[rank] = ray.get(call.remote(), timeout=CALL_SECONDS)
            except RayError:
                continue
        return found

    def _parameters(self) -> np.ndarray[Any, Any]:
        """The parameters of one of the agents that are left."""
        given = self._ask("flat_parameters")
        if not given:
            raise AgentError("no agent is left that could give a new one its parameters")
        return np.asarray(next(iter(given.values())))


def _ask_new(call: Any, seconds: float, doing: str) -> Any:
    """The answer of an agent that others wait for; `AgentDied` if it died."""
    try:
        return get([call], seconds, doing)[0]
    except ActorDied as error:
        raise AgentDied(str(error)) from None
