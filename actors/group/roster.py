"""The agents of a run by rank: who is there and where, how one starts and joins, how all form a group"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from d5ray.actors.calls import CALL_SECONDS, DEATHS, LOOK_SECONDS, ActorDied, get
from d5ray.actors.cluster.placement import Place, place_of
from d5ray.actors.group.coordinator import Coordinator
from d5ray.actors.group.replicas import Replicas
from d5ray.actors.group.room import Room
from d5ray.actors.group.run_row import RunPlan
from d5ray.actors.remote import SETUP_SECONDS
from d5ray.actors.servers.run_servers import RunServers
from d5ray.agent.building import BuiltSizes
from d5ray.agent.connections import LateEntry
from d5ray.distributed import network_cost
from d5ray.distributed.checkpoints.checkpoint import Checkpoints
from d5ray.distributed.checkpoints.rollback import RestartPoint, described
from d5ray.distributed.group.group import Group
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.rpc.service import Address
from d5ray.distributed.topologies.survivors import survivors
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import AgentError, first_line
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.samplers.shards import Sharing

TELL_SECONDS = 5.0  # for an agent that trains to hear what it is told


class AgentDied(Exception):
    """An agent died before it had joined the others; the text says why."""


@final
@dataclass
class Formed:
    """The result of forming a group again: the step its members agreed on, and who died at it.

    agreed: by rank, empty where one died. died: by rank, with the reasons.
    """

    group: int = 0  # its epoch
    agreed: dict[int, RestartPoint] = field(default_factory=dict)
    died: dict[int, str] = field(default_factory=dict)

    @property
    def point(self) -> RestartPoint:
        """The point from which all go on, as one of them sees it."""
        return next(iter(self.agreed.values()))

    @property
    def step(self) -> int:
        """The step from which all go on."""
        return self.point.step

    def describe(self, one_model: bool, ranks: list[int]) -> dict[str, Any]:
        """The facts for the events: whose state was taken, who lacked how many steps, the hashes.

        ranks: of members that train the same parameters, ascending.
        """
        return described(self.group, {rank: self.agreed[rank] for rank in ranks}, one_model)


@final
class AgentRoster:
    """Holds who takes part in a run; an agent that is started anew stands in the place of the one before.

    agents: actors by rank; None: it comes late. places: where they run; that of a late one is the first
    agent's until it comes. gone: those that are not there, or not yet. steps: done by each, as was known
    last. make(rank, attempt): starts an actor. room: tells of those that wait for some.
    """

    room = Room(lambda rank: "", lambda name, rank, **detail: None)

    def __init__(
        self,
        plan: RunPlan,
        make: Callable[[int, int], Any],
        coordinator: Coordinator,
        servers: RunServers,
    ) -> None:
        self._experiment, self._shares, self._make = plan.experiment, plan.shares, make
        self.coordinator, self.servers = coordinator, servers
        count = self._experiment.agents or 1
        self.agents: list[Any] = [None] * count
        self.places: list[Place] = []
        self.gone: set[int] = set(self._experiment.late_agents)
        self.steps: dict[int, int] = {}
        self.attempts = dict.fromkeys(range(count), 0)
        self.replicas = Replicas(plan.experiment)
        self._dataset: Any = None  # reference to it
        self._asked: dict[int, Any] = {}  # references to where an agent is
        self._addresses: dict[tuple[int, int], Address] = {}  # of windows, by rank and attempt
        self._joining: int | None = None  # who has been told where the servers are, and is not there yet

    @property
    def present(self) -> list[int]:
        """The ranks of the agents that are there."""
        return [rank for rank in range(len(self.agents)) if rank not in self.gone]

    def where(self) -> dict[int, Place]:
        """The places of the agents that are there, by rank."""
        return {rank: self.places[rank] for rank in self.present}

    # -- how agents come -------------------------------------------------------------------------------

    def make(self) -> list[Any]:
        """Start all that do not come late; references to the seconds that importing their framework takes."""
        for rank in self.present:
            self.agents[rank] = self._make(rank, 0)
        return [self.agents[rank].prepare.remote() for rank in self.present]

    def build(self, dataset: Dataset) -> list[BuiltSizes]:
        """Let all build their models."""
        self._dataset = ray.put(dataset)  # the agents of a node map one copy
        return self._build(self.present)

    def forget_dataset(self) -> None:
        """Let go of the data set in Ray's store: no agent is started any more.

        Of what the driver still refers to, Ray would note the loss in the store of a raylet that takes its
        leave, and end this process with exit code 1 where that is closed.
        """
        self._dataset = None

    def join(self) -> str:
        """Let all agents and servers meet for the first time; gives the name of the agents' backend."""
        answers = self._located(self.present)
        self.places += [answers[0]] * len(self.agents)
        for rank, place in zip(self.present, answers, strict=True):
            self.places[rank] = place
        groups = self.coordinator.issue(self.places)
        self.servers.open(groups)
        self.coordinator.count(lambda: len(self.present))
        if self.gone:
            return self._join_without_late()
        networks = network_cost.known([place.hostname for place in self.places])
        calls = [
            agent.join.remote(group, networks, self.servers.directory(group.rank))
            for agent, group in zip(self.agents, groups, strict=True)
        ]
        backend: str = self.servers.get(calls, self._bound, "join the group")[0]
        if self._has_windows:
            self._windows()  # while all answer: later one of them may stand
        return backend

    def enter(self, rank: int, step: int) -> None:
        """Start an agent that others do not wait for, at this step. Raises `AgentDied` if it dies."""
        self.start(rank)
        self._let_in(rank, step)

    def start(self, rank: int) -> None:
        """Start an agent anew, or one that comes late. Raises `AgentDied` if it dies meanwhile."""
        self.attempts[rank] += 1
        self.agents[rank] = self._make(rank, self.attempts[rank])
        with _of_newcomer():
            self._prepare(rank)
            self._build([rank])
            (self.places[rank],) = self._located([rank])

    def begin(self, rank: int) -> dict[str, Any]:
        """Start an agent without waiting for it: references, in their order, to what its calls give."""
        self.attempts[rank] += 1
        agent = self.agents[rank] = self._make(rank, self.attempts[rank])
        prepared = agent.prepare.remote()
        return {
            "import": prepared,
            "model and data": agent.build.remote(self._dataset, *self._share(rank)),
            "place": agent.__ray_call__.remote(place_of),
        }

    # -- how they go, and form a group again -----------------------------------------------------------

    def drop(self, rank: int) -> None:
        """Go on without an agent whose peers do not wait for it; `AgentError` where too few are left.

        With it go those of its replica, which must have ended their training.
        """
        for other in (ended := self.replicas.members([rank])):
            self._lose(other)
        self.release([other for other in ended if other != rank])
        replicas, left = self.replicas, self.present
        if not left:
            raise AgentError(f"TrainingAgent(rank={rank}) died, the last one: no agent is left to go on")
        if len(left) < (least := self._experiment.faults.min_agents):
            raise AgentError(
                f"TrainingAgent(rank={rank}) died: {len(left)} of {len(self.agents)} agents are left, and "
                f"min_agents is {least}: set a smaller min_agents, or on_failure='restart'"
            )
        order = sorted(replicas.numbers(left))
        for other in left:
            self.tell(other, "lost", replicas.of(rank), len(order), order.index(replicas.of(other)))

    def suspend(self, rank: int) -> None:
        """Let the others go on while another agent is started with this rank."""
        self._lose(rank)
        for other in self.present:
            self.tell(other, "lost", rank, len(self.agents), other)

    def release(self, ranks: Collection[int]) -> None:
        """End the actors of agents that have left the others."""
        for rank in ranks:
            self.agents[rank].__ray_terminate__.remote()

    def form_again(self, sharing: Mapping[int, Sharing] | None = None) -> Formed:
        """A new group, after deaths ended the others' exchange; see `TrainingAgent.rejoin`.

        sharing: of the samples, by rank. Where others died meanwhile, the group is to be formed again.
        """
        return self._form("rejoin", self._topology, sharing or {})

    def begin_again(self, checkpoint: Checkpoints | None, sharing: Mapping[int, Sharing]) -> Formed:
        """Form a new group although no agent holds the complete state; see `TrainingAgent.begin_again`."""
        saved = None if checkpoint is None else (checkpoint.path, checkpoint.step)
        return self._form("begin_again", (saved, self._topology), sharing)

    def _form(self, method: str, given: Any, own: Mapping[int, Any] | None = None) -> Formed:
        """Let all that are there form a group by this method; given: to all; own: to each, by rank."""
        ranks = self.present
        groups = self.coordinator.issue([self.places[rank] for rank in ranks], ranks)
        calls = {
            getattr(self.agents[rank], method).remote(group, given, *([own[rank]] if own else [])): group
            for rank, group in zip(ranks, groups, strict=True)
        }
        agreed, died = self._formed(calls)
        return Formed(
            self.coordinator.epoch,
            {ranks[index]: each for index, each in agreed.items()} if not died else {},
            {ranks[index]: reason for index, reason in died.items()},
        )

    # -- what is told and asked beside a training ------------------------------------------------------

    def control(self, rank: int, method: str) -> Any:
        """A method of an agent that answers while it trains."""
        return getattr(self.agents[rank], method).options(concurrency_group="control")

    def tell(self, rank: int, method: str, *arguments: Any) -> None:
        """A call to an agent that trains; its death is noticed where its training is waited for.

        One that stands hears it when it goes on: its calls come in the order in which they were made.
        """
        with suppress(*DEATHS, GetTimeoutError):
            ray.get(self.control(rank, method).remote(*arguments), timeout=TELL_SECONDS)

    def ask(self, ranks: Collection[int], method: str, *arguments: Any) -> dict[int, Any]:
        """The answers of those of these agents that give one, by rank; all are asked at once.

        When one has answered, the others are given the time to hear it: who stands holds nobody up.
        """
        there = [rank for rank in ranks if rank not in self.gone or rank == self._joining]
        calls = {self.control(rank, method).remote(*arguments): rank for rank in there}
        found: dict[int, Any] = {}
        waiting, end = list(calls), time.monotonic() + CALL_SECONDS
        while waiting and (left := end - time.monotonic()) > 0:
            done, waiting = ray.wait(waiting, timeout=left)
            with suppress(RayError):
                found |= {calls[each]: ray.get(each) for each in done}
                end = min(end, time.monotonic() + TELL_SECONDS) if len(found) == 1 else end
        return found

    def furthest(self) -> int:
        """The most steps that one of the agents has done."""
        return max((there.step for there in self.ask(self.present, "progress").values()), default=0)

    def reached(self) -> int:
        """The most steps that an agent has done, as was known at the last look; looks again for the next."""
        self.look()
        return max(self.steps.values(), default=0)

    def look(self) -> None:
        """Ask all where they are, without waiting: one of them may have to be started again there."""
        for rank in self.present:
            asked = self._asked.get(rank)
            if asked is not None and ray.wait([asked], timeout=0)[0]:
                with suppress(*DEATHS):
                    self.steps[rank] = ray.get(asked).step
                asked = None
            if asked is None:
                self._asked[rank] = self.control(rank, "progress").remote()

    def gather(self, method: str, doing: str) -> dict[int, Any]:
        """The answers of all that are there, by rank."""
        calls = [getattr(self.agents[rank], method).remote() for rank in self.present]
        return dict(zip(self.present, get(calls, CALL_SECONDS, doing), strict=True))

    # --------------------------------------------------------------------------------------------------

    @property
    def _bound(self) -> float:
        """Seconds in which all have joined a group."""
        return self._experiment.timeout_seconds + CALL_SECONDS

    @property
    def _topology(self) -> Topology:
        """The topology among those that are there."""
        assert self._experiment.topology is not None
        return survivors(self._experiment.topology, self.replicas.numbers(self.gone))

    def _prepare(self, rank: int) -> None:
        """Return when an agent has started; an error where it takes too long, or no node has room for it."""
        begun, call = time.monotonic(), self.agents[rank].prepare.remote()
        while not ray.wait([call], timeout=0)[0] and (passed := time.monotonic() - begun) < SETUP_SECONDS:
            self.servers.wait([call], LOOK_SECONDS)
            self.room.look(rank, self.attempts[rank], passed)
        if not ray.wait([call], timeout=0)[0] and (why := self.room.missing(rank)):
            raise AgentError(
                f"TrainingAgent(rank={rank}) could not be started again within {SETUP_SECONDS:g} s: {why}, "
                "or take on_failure='replace', with which the others train on meanwhile"
            )
        self.servers.get([call], LOOK_SECONDS, "start and import the framework")

    def _build(self, ranks: Collection[int]) -> list[BuiltSizes]:
        """Let these build their models; in a mesh each is sent its own share of the network alone."""
        own = {rank: self._share(rank) for rank in ranks}
        sent = {id(share): ray.put(share) for shares in own.values() for share in shares}
        calls = [
            self.agents[rank].build.remote(self._dataset, *(sent[id(share)] for share in shares))
            for rank, shares in own.items()
        ]
        return self.servers.get(calls, SETUP_SECONDS, "build the model")

    def _share(self, rank: int) -> list[Any]:
        """The share of the network that an agent of a mesh holds; none of others, which have all of it."""
        place = rank % self._experiment.agents_per_replica
        return [] if self._shares is None else [self._shares.at(place)]

    def _located(self, ranks: Collection[int]) -> list[Place]:
        return get(
            [self.agents[rank].__ray_call__.remote(place_of) for rank in ranks], CALL_SECONDS, "answer"
        )

    def _lose(self, rank: int) -> None:
        self.gone.add(rank)
        self.servers.leave(rank)

    def _join_without_late(self) -> str:
        """Let the others join each other so that the late ones can come; gives the backend's name."""
        present, late = self.present, sorted(self.gone)
        groups = self.coordinator.issue([self.places[rank] for rank in present], present)
        topology = self._topology
        calls = [
            self.agents[rank].take_first.remote(group, topology)
            for rank, group in zip(present, groups, strict=True)
        ]
        backend: str = get(calls, self._bound, "take the first agent's parameters")[0]
        for rank in late:
            self.servers.leave(rank)
        self.gone.update(present)
        for rank in present:
            self._let_in(rank, 0, begins=True)
        return backend

    def _let_in(self, rank: int, step: int, *, begins: bool = False) -> None:
        """Let an agent that is ready join those that are there, at this step.

        begins: it has its parameters already, and so have the servers.
        """
        peers = self._has_windows
        self._joining = rank
        if not begins:
            self.servers.enter(rank)
        windows = self._windows() if peers else {}
        there = windows if peers else self.present
        absent = set(range(len(self.agents))).difference(there, [rank])
        entry = LateEntry(
            self.coordinator.issue(self.places)[rank],
            step,
            self.servers.directory(rank),
            windows,
            np.asarray(self._of_one("flat_parameters")) if peers and not begins else None,
            self._of_one("buffers", or_none=not peers) if self.present and not begins else None,
            tuple(sorted(absent)),
        )
        agent = self.agents[rank]
        with _of_newcomer():
            self.servers.get([agent.join_late.remote(entry)], SETUP_SECONDS, "join")
            if peers:
                address = get([agent.peer_address.remote()], CALL_SECONDS, "say where it is")[0]
                self._addresses[rank, self.attempts[rank]] = address
        if peers:
            for other in self.present:
                self.tell(other, "admit", rank, address)
        self.gone.discard(rank)
        self._joining = None

    @property
    def _has_windows(self) -> bool:
        """True if agents reach each other's windows one-sidedly."""
        return ExchangeVia.PEERS in self._experiment.distributed_optimizer.exchange

    def _windows(self) -> dict[int, Address]:
        """Where agents that are there are reached one-sidedly, by rank; without those that have just died."""
        known = {rank: (rank, self.attempts[rank]) for rank in self.present}
        unknown = [rank for rank, key in known.items() if key not in self._addresses]
        for rank, address in self.ask(unknown, "peer_address").items():
            self._addresses[known[rank]] = address
        return {rank: self._addresses[key] for rank, key in known.items() if key in self._addresses}

    def _of_one(self, what: str, *, or_none: bool = False) -> Any:
        """The answer to a call of one of the agents that are there: of the first that answers.

        or_none: None where all of them have just died, as where none is there.
        """
        asked = {self.control(rank, "progress").remote(): rank for rank in self.present}
        end = time.monotonic() + CALL_SECONDS
        while asked and (done := ray.wait(list(asked), timeout=max(0.0, end - time.monotonic()))[0]):
            given = self.control(asked.pop(done[0]), what).remote()
            with suppress(RayError):
                return ray.get(given, timeout=CALL_SECONDS)
        if or_none and not asked:
            return None
        raise AgentError("no agent is left that could give a new one its parameters")

    def _formed(self, calls: Mapping[Any, Group]) -> tuple[dict[int, RestartPoint], dict[int, str]]:
        """Wait until all have joined their group; what each agreed on, or why it died, by rank in it."""
        agreed: dict[int, RestartPoint] = {}
        died: dict[int, str] = {}
        failed, waiting = [], list(calls)
        deadline = time.monotonic() + self._bound
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1, timeout=max(0.0, deadline - time.monotonic()))
            if not done:
                failed += waiting
                break
            try:
                agreed[calls[done[0]].rank] = ray.get(done[0])
            except DEATHS as error:
                died[calls[done[0]].rank] = first_line(error)
                for group in self.replicas.groups(calls[done[0]]):
                    self.coordinator.lose(group)
            except RayTaskError:
                failed += done
        if failed and not died:
            get(failed, 0.0, "form a new group")  # raises what people can read
        return agreed, died


@contextmanager
def _of_newcomer() -> Iterator[None]:
    """An agent's death here is that of one that comes, and not of one that others wait for."""
    try:
        yield
    except ActorDied as error:
        raise AgentDied(str(error)) from None
