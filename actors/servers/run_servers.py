"""The parameter servers of a run: of every place in its mesh, each with its own parameters"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, final

import ray
from ray.exceptions import RayError

from d5ray.actors.calls import LOOK_SECONDS, get
from d5ray.actors.cluster.placement import Place
from d5ray.actors.servers.parameter_server import ParameterServer
from d5ray.actors.servers.server_actors import ServerActors
from d5ray.actors.session import session
from d5ray.distributed.group.group import Group
from d5ray.distributed.parameter_server.requests import Restored
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.world import Directory
from d5ray.errors import AgentError
from d5ray.experiment import Experiment
from d5ray.training.batches.epochs import Epochs

Of = int  # a place in the mesh
Which = tuple[Of, int]  # of whom, and the number of the actor among theirs
Make = Callable[[ResolvedServers, str, ParameterServer, int], Any]
Kill = Callable[[Any, Place], None]


def _nothing(**_: object) -> None:
    """Do nothing, as long as nobody has said what to do."""


@final
class RunServers:
    """The actors that are a run's parameter servers; nothing is to do where an experiment has none.

    Without a mesh they are those of place 0; those of a mesh go on only together.
    make(resolved, suffix, server, number): starts the actor that is to be this server; suffix: what stands
    behind its name. kill(actor, place): ends its process.

    on_death(which): restores a server. on_stuck(**detail): keeps an event. on_look(): looks after the agents
    now and then in waits for them; None: somebody else does, or they only start.
    """

    def __init__(self, experiment: Experiment, make: Make, kill: Kill) -> None:
        self._experiment, self._make, self._kill = experiment, make, kill
        self._servers: dict[Of, ServerActors] = {}
        self._suffixes: dict[Of, str] = {0: ""}
        mesh = experiment.mesh
        if mesh is not None and mesh.shares_networks:
            self._suffixes = {of: f" of {mesh.name_of(of)}" for of in range(mesh.agents_per_replica)}
        self._restorable = experiment.faults.on_failure != "stop"
        self.on_death: Callable[[Which], None] = self._fail
        self.on_stuck: Callable[..., None] = _nothing
        self.on_look: Callable[[], None] | None = None
        self._reasons: dict[Which, str] = {}  # why servers were ended
        self._restored: set[Which] = set()
        self._paused: set[int] = set()  # agents that have done their steps

    def start(self, epochs: Epochs) -> None:
        """Start the actors, when it is known how long an epoch is."""
        if self._experiment.resolved_servers is not None:
            resolved = self._experiment.resolved_servers.timed(epochs, self._experiment.replicas)
            for of, suffix in self._suffixes.items():
                make = partial(self._make, resolved, suffix)
                self._servers[of] = ServerActors(
                    resolved,
                    self._experiment,
                    make,
                    partial(self._died, of),
                    partial(self._late, of),
                    self._kill,
                )

    def open(self, groups: Sequence[Group]) -> None:
        """Let all servers serve agents whose groups are these."""
        for servers in self._servers.values():
            servers.open(groups)

    def directory(self, rank: int) -> Directory | None:
        """The present places of an agent's servers."""
        servers, _ = self._of(rank)
        return None if servers is None else servers.directory

    @property
    def watching(self) -> dict[Any, Which]:
        """References that fail when an actor dies, with which one it is."""
        return {
            reference: (of, number)
            for of, servers in self._servers.items()
            for reference, number in servers.watching.items()
        }

    def actor(self, number: int) -> Any:
        """The number-th server of all, as an actor."""
        actors = [actor for servers in self._servers.values() for actor in servers.actors]
        return actors[number]

    def never_died(self, names: Collection[str]) -> list[int]:
        """The numbers, as `actor` has them, of the servers with these names that were never restored."""
        each = [
            (of, number) for of, servers in self._servers.items() for number in range(len(servers.actors))
        ]
        return [
            number
            for number, which in enumerate(each)
            if which not in self._restored and self.name(which) in names
        ]

    def sign_of_life(self, which: Which) -> Any:
        """A reference to what a server answers at any time, unless its process stands."""
        of, number = which
        return self._servers[of].actors[number].alive.options(concurrency_group="control").remote()

    def end(self, which: Which, seconds: float, reason: str, waits: Mapping[int, list[str]]) -> None:
        """End a server that is stuck; it is dead then. waits: what agents wait in, by rank."""
        self._reasons[which] = reason
        self.on_stuck(server=self.name(which), seconds=round(seconds, 3), reason=reason, waits=waits)
        of, number = which
        self._servers[of].end(number)

    def why(self, which: Which) -> str:
        """The sentence that says how a server died, which has."""
        return self._reasons.pop(which, f"{self.name(which)} died")

    def of_agent(self, rank: int) -> set[Which]:
        """All servers of an agent's place: those that it asks, and those that these ask."""
        of = rank % self._experiment.agents_per_replica
        servers = self._servers.get(of)
        return set() if servers is None else {(of, number) for number in range(len(servers.actors))}

    def named(self, name: str) -> Which:
        """The server with this name."""
        return next(which for which in self.watching.values() if self.name(which) == name)

    def name(self, which: Which) -> str:
        """The name of a server."""
        of, number = which
        return self._servers[of].name(number) + self._suffixes[of]

    def keep(self) -> None:
        """Take the states that servers are restored from, where they are; see `ServerActors.keep`."""
        for servers in self._servers.values() if self._restorable else ():
            servers.keep()

    def wait(self, references: Sequence[Any], seconds: float) -> None:
        """Return when all of these calls of agents have come back, or the time is over.

        Servers that die meanwhile are restored, since the agents may wait for them.
        """
        for _ in self._coming_back(references, seconds):
            pass

    def get(self, references: Sequence[Any], seconds: float, doing: str) -> list[Any]:
        """The results of calls of agents, in order; see `wait` and `calls.get`."""
        end = time.monotonic() + seconds
        for reference in self._coming_back(references, seconds):
            try:
                ray.get(reference, timeout=0)
            except RayError:
                break
        return get(list(references), max(0.0, end - time.monotonic()), doing)

    def snapshot(self) -> None:
        """Ask for the states when it is time, where servers are restored."""
        for servers in self._servers.values() if self._restorable else ():
            servers.snapshot()

    def restore(self, which: Which, ask: Callable[..., dict[int, Any]]) -> dict[str, Any]:
        """Start a server anew with its last state, and tell those that speak to it; the facts for an event.

        ask(ranks, method, *arguments): the answers of those of these agents that give one, by rank. Raises
        `ActorDied` where the server dies again meanwhile.
        """
        of, number = which
        self._restored.add(which)
        servers = self._servers[of]
        group, shard = servers.shard(number)
        restored = servers.restore(number)
        if not servers.serves(number):
            return {}
        served = self._served(of, group)
        told = ask(served, "reroute", shard, servers.address(number))
        acknowledged = {self._of(rank)[1]: pushes for rank, pushes in told.items()}
        if servers.grouped:  # pushes to a group's server are at the root
            acknowledged = servers.relay(number) if group is None else {}
        if restored is None:
            restored = Restored(0, {})
            for x in ask(self._served(of, group if served else 0), "flat_parameters").values():
                servers.begin(number, x)
                break
        lost = {who: sent - restored.last.get(who, 0) for who, sent in acknowledged.items()}
        lost = {who: pushes for who, pushes in lost.items() if pushes > 0}
        return {"version": restored.version, "pushes_lost": sum(lost.values()), "lost": lost}

    def leave(self, rank: int) -> None:
        """See `ServerActors.leave`; rank: among all agents."""
        servers, replica = self._of(rank)
        if servers is not None:
            servers.leave(replica)

    def enter(self, rank: int, *, again: bool = False) -> None:
        """Let an agent enter at the servers of its place; see `ServerActors.enter`."""
        servers, replica = self._of(rank)
        if servers is not None:
            servers.enter(replica, again=again)

    def pause(self, rank: int) -> None:
        """Take notice that an agent has done its steps: its pushes are waited for no more.

        (A straggler whose pushes came too late for rounds with backups, one that was started again, or one
        whose push died with a server that had answered this one's.)
        """
        self.leave(rank)
        self._paused.add(rank)

    def resume(self, present: Collection[int]) -> None:
        """Let those of the paused agents that are there take part again."""
        for rank in sorted(self._paused.intersection(present)):
            self.enter(rank, again=True)
        self._paused.clear()

    def loads(self) -> dict[str, Any]:
        """References to the load of each server so far, by name."""
        return {
            name + self._suffixes[of]: load
            for of, servers in self._servers.items()
            for name, load in servers.loads().items()
        }

    def refresh(self) -> None:
        """Bring every group what others have made; see `ServerActors.refresh`."""
        for servers in self._servers.values():
            servers.refresh()

    # --------------------------------------------------------------------------------------------------

    def _coming_back(self, references: Sequence[Any], seconds: float) -> Iterator[Any]:
        waiting, end = list(references), time.monotonic() + seconds
        while waiting and (left := end - time.monotonic()) > 0:
            watched = self.watching
            done, _ = ray.wait([*waiting, *watched], num_returns=1, timeout=min(left, LOOK_SECONDS))
            session.check_alive()
            self.snapshot()
            if self.on_look is not None:
                self.on_look()
            for reference in done:
                if reference in waiting:
                    waiting.remove(reference)
                    yield reference
                elif reference in self.watching:  # it was not restored by the way
                    self.on_death(watched[reference])

    def _died(self, of: Of, number: int) -> None:
        self.on_death((of, number))

    def _late(self, of: Of, number: int, seconds: float, doing: str) -> None:
        which = of, number
        self.end(which, seconds, f"{self.name(which)} did not {doing} within {seconds:.0f} s", {})

    def _fail(self, which: Which) -> None:
        raise AgentError(f"{self.why(which)}, before the agents had joined: begin the run anew")

    def _served(self, of: Of, group: int | None) -> list[int]:
        """The ranks that speak to the servers of a group, or of the root, of a place."""
        resolved, replicas = self._experiment.resolved_servers, self._experiment.replicas
        assert resolved is not None
        seats = [(rank, self._of(rank)) for rank in range(self._experiment.agents or 1)]
        return [
            rank
            for rank, (servers, replica) in seats
            if servers is self._servers[of] and resolved.group_of(replica, replicas) == group
        ]

    def _of(self, rank: int) -> tuple[ServerActors | None, int]:
        """The servers of an agent, and its replica, by which they know it."""
        replica, of = divmod(rank, self._experiment.agents_per_replica)
        return self._servers.get(of), replica
