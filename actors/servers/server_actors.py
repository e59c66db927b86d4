"""The driver's side of the parameter servers: makes them known, keeps their state, starts anew what died"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import ray
from ray.exceptions import RayError

from d5ray.actors.calls import CALL_SECONDS, ActorDied, ActorLate, get
from d5ray.actors.cluster.placement import Place, place_of
from d5ray.actors.servers.parameter_server import ParameterServer
from d5ray.distributed.communicators.point_to_point.collectives import parts
from d5ray.distributed.group.group import Group
from d5ray.distributed.parameter_server.requests import Restored
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.rpc.service import Address
from d5ray.distributed.wire.secret import Secret
from d5ray.distributed.world import Directory
from d5ray.experiment import Experiment

Make = Callable[[ParameterServer, int], Any]
LEAST_SECONDS: Final = 5.0  # for the answer of a server, before it is taken for stuck


@dataclass
class _Snapshot:
    """A reference to a shard's state, and the agents that took part anew since it was asked for."""

    state: Any
    anew: set[int] = field(default_factory=set)
    asked: float = field(default_factory=time.monotonic)


@dataclass
class _Shard:
    """One shard's actor, and what is needed to replace it."""

    server: ParameterServer  # as it is described to `make`
    number: int  # among all
    actor: Any
    address: Address | None = None
    place: Place | None = None
    holds: Address | None = None  # where the copy is that it has of the shard before it
    kept: _Snapshot | None = None  # the last one
    coming: _Snapshot | None = None  # the next one
    watching: Any = None  # reference that fails when the actor's process dies

    @property
    def name(self) -> str:
        return repr(self.server)


class ServerActors:
    """All shards' actors: the root's, then those of every group.

    make(server, number): starts the actor that is to be this server, the number-th of all. died(number):
    restores one that died, or raises what ends the run. late(number, seconds, doing): ends one that did not
    do this in time. kill(actor, place): ends a process. A call of one that dies or does not answer restores
    it, and is made again.
    """

    def __init__(
        self,
        resolved: ResolvedServers,
        experiment: Experiment,
        make: Make,
        died: Callable[[int], None],
        late: Callable[[int, float, str], None],
        kill: Callable[[Any, Place], None],
    ) -> None:
        self._resolved, self._make, self._died, self._late = resolved, make, died, late
        self._kill = kill
        self._seconds = experiment.timeout_seconds
        self._patience = min(CALL_SECONDS, max(LEAST_SECONDS, self._seconds / 2))
        self._agents = experiment.replicas
        self._snapshot_at = 0.0
        self._away: set[int] = set()  # agents that do not take part
        groups: list[int | None] = [None]
        if self.grouped:
            groups += range(resolved.servers.groups)
        self._shards = [
            self._started(ParameterServer(shard, resolved, self._agents, group), number)
            for number, (group, shard) in enumerate(
                (group, shard) for group in groups for shard in range(resolved.servers.shards)
            )
        ]
        self._served = len(self._shards)
        if resolved.servers.replicas and self._served == 1:  # there is no neighbour: one that only holds
            self._shards.append(self._started(ParameterServer(1, resolved, self._agents), 1))

    def open(self, groups: Sequence[Group]) -> None:
        """Let the servers serve agents whose groups are these."""
        self._groups = groups
        for shard, place in zip(
            self._shards, self._ask(self._shards, "answer", "__ray_call__", place_of), strict=True
        ):
            shard.place = shard.place or place
        for shard in self._shards:  # the root's come first: the others must know where they are
            if shard.address is None and shard.holds is None:
                try:
                    self._serve(shard)
                except ActorDied:
                    self._died(shard.number)
        for shard in self._copied:
            self._copy(shard)

    @property
    def directory(self) -> Directory:
        """The present places of all servers."""
        count = self._resolved.servers.shards
        addresses = [shard.address for shard in self._shards]
        known = tuple(address for address in addresses if address is not None)
        return Directory(
            self._secret,
            known[:count],
            tuple(known[first : first + count] for first in range(count, len(known), count)),
        )

    @property
    def grouped(self) -> bool:
        """True if agents speak to servers of their groups, which speak to the root."""
        return self._resolved.servers.groups > 1

    @property
    def watching(self) -> dict[Any, int]:
        """References that fail when an actor dies, with its number."""
        return {shard.watching: number for number, shard in enumerate(self._shards)}

    @property
    def actors(self) -> list[Any]:
        """The actors as they are now."""
        return [shard.actor for shard in self._shards]

    def name(self, number: int) -> str:
        """The name of the number-th server."""
        return self._shards[number].name

    def shard(self, number: int) -> tuple[int | None, int]:
        """The group and the shard of the number-th actor."""
        return self._shards[number].server.group, self._shards[number].server.shard

    def snapshot(self) -> None:
        """Ask for the states when it is time; those that have come replace the older ones.

        A server that has not given its state for half of the time-out is stuck: it is ended, and restored.
        """
        due = time.monotonic() >= self._snapshot_at
        if due:
            self._snapshot_at = time.monotonic() + self._resolved.servers.snapshot_seconds
        for shard in self._shards:
            if shard.coming is not None and ray.wait([shard.coming.state], timeout=0)[0]:
                self._take(shard, shard.coming)
                shard.coming = None
            if shard.coming is None:
                if due:
                    shard.coming = _Snapshot(shard.actor.state.remote())
            elif time.monotonic() - shard.coming.asked > self._patience:
                self._late(shard.number, self._patience, "give its state")
                self._died(shard.number)

    def keep(self) -> None:
        """Take the states now: what a server is restored from that dies before the first snapshot."""
        asked = [(shard, _Snapshot(shard.actor.state.remote())) for shard in self._shards if not shard.kept]
        states = [snapshot.state for _, snapshot in asked]
        ray.wait(states, num_returns=len(states), timeout=CALL_SECONDS) if states else None
        for shard, snapshot in asked:
            self._take(shard, snapshot)

    def restore(self, number: int) -> Restored | None:
        """Start the number-th actor anew, with the state that was kept last; None: there is none.

        Raises `ActorDied` where it dies again meanwhile.
        """
        shard = self._shards[number]
        with suppress(RayError, ValueError):
            ray.kill(shard.actor)  # which Ray may have lost sight of alone
        fresh = self._started(shard.server, shard.number)
        shard.actor, shard.coming, shard.watching = fresh.actor, None, fresh.watching
        self._serve(shard)
        found = None
        state, anew = self._newest(shard)
        if state is not None:
            given = anew, self._away_from(shard)
            found = get([shard.actor.restore.remote(state, *given)], CALL_SECONDS, "take its state")[0]
        if shard.server.group is not None:  # what the others have made since is at the root
            now = self._ask([self._shards[shard.server.shard]], "give its parameters", "parameters")
            get([shard.actor.refresh.remote(*now)], CALL_SECONDS, "take the root's parameters")
        if shard in self._copied:
            self._copy(shard)
        if (before := self._before(shard)) in self._copied:
            self._copy(before)
        return found

    def end(self, number: int) -> None:
        """End the process of a server that is stuck."""
        shard = self._shards[number]
        if shard.place is not None:
            self._kill(shard.actor, shard.place)
        else:
            ray.kill(shard.actor)

    def address(self, number: int) -> Address:
        """The address of the number-th server."""
        address = self._shards[number].address
        assert address is not None
        return address

    def serves(self, number: int) -> bool:
        """False for a server that only holds the copy of another one."""
        return number < self._served

    def begin(self, number: int, x: Any) -> None:
        """Give a server that has no state its part of an agent's parameters x (n,), unless it has some."""
        shard = self._shards[number]
        part = parts(len(x), self._resolved.servers.shards)[shard.server.shard]
        self._ask([shard], "take parameters", "begin", x[part])

    def relay(self, number: int) -> dict[int, int]:
        """Tell the groups where a shard of the root is; the pushes it acknowledged, by group."""
        root = self._shards[number]
        groups = [
            shard
            for shard in self._shards
            if shard.server.group is not None and shard.server.shard == root.server.shard
        ]
        answers = self._ask(groups, "look for the root", "relay_to", root.address)
        return {shard.server.group: answer for shard, answer in zip(groups, answers, strict=True)}  # type: ignore[misc]

    def loads(self) -> dict[str, Any]:
        """References to the load of each shard so far, by name."""
        return {shard.name: shard.actor.load.remote() for shard in self._shards[: self._served]}

    def refresh(self) -> None:
        """Bring every group what the others have made since its last push; all agents have ended."""
        now = self._ask(self._root, "give its parameters", "parameters")
        for shard in self._shards[len(self._root) : self._served]:
            self._ask([shard], "take the root's parameters", "refresh", now[shard.server.shard])

    def leave(self, rank: int) -> None:
        """An agent is gone: nobody waits for it; nor for its group, if it was the last one of it."""
        self._away.add(rank)
        self._ask(self._of(rank), "let an agent go", "leave", rank)
        group = self._resolved.group_of(rank, self._agents)
        if group is not None and group in self._away_from(self._root[0]):
            self._ask(self._root, "let a group go", "leave", group)

    def enter(self, rank: int, *, again: bool = False) -> None:
        """Let an agent take part from now on; `again`: it is the one that left, not a new one."""
        group = self._resolved.group_of(rank, self._agents)
        if group is not None:
            self._ask(self._root, "let a group in", "enter", group, True)
        shards = self._of(rank)
        self._ask(shards, "let an agent in", "enter", rank, again)
        self._away.discard(rank)
        if not again:
            for snapshot in (each for shard in shards for each in (shard.kept, shard.coming) if each):
                snapshot.anew.add(rank)

    # --------------------------------------------------------------------------------------------------

    @property
    def _secret(self) -> Secret:
        """The run's, as its agents have it."""
        store = self._groups[0].store
        assert store is not None
        return store.secret

    @property
    def _root(self) -> list[_Shard]:
        return self._shards[: self._resolved.servers.shards]

    def _of(self, rank: int) -> list[_Shard]:
        group = self._resolved.group_of(rank, self._agents)
        return [shard for shard in self._shards[: self._served] if shard.server.group == group]

    def _away_from(self, shard: _Shard) -> set[int]:
        """The members of a shard that do not take part: agents, or at the root whole groups."""
        resolved, group = self._resolved, shard.server.group
        if group is None and self.grouped:
            whole = ((each, resolved.members(each, self._agents)) for each in range(resolved.servers.groups))
            return {each for each, members in whole if self._away.issuperset(members)}
        return self._away.intersection(resolved.members(group, self._agents))

    def _ask(self, shards: Sequence[_Shard], doing: str, method: str, *arguments: Any) -> list[Any]:
        """The answers of all; one that died, or gives none in time, is restored, and asked again."""
        calls = [getattr(shard.actor, method).remote(*arguments) for shard in shards]
        found = []
        for shard, first in zip(shards, calls, strict=True):
            call = first
            while True:
                try:
                    found += get([call], self._patience, doing)
                    break
                except ActorDied:
                    pass
                except ActorLate:
                    self._late(shard.number, self._patience, doing)
                self._died(shard.number)
                call = getattr(shard.actor, method).remote(*arguments)
        return found

    def _newest(self, shard: _Shard) -> tuple[Any, set[int]]:
        """The newest state that is left, and who takes part anew since: that of the copy, or the snapshot."""
        found: list[tuple[Any, set[int]]] = [(None, set())]
        if shard.kept is not None:
            with suppress(RayError):  # it was lost with its node
                found.append((ray.get(shard.kept.state, timeout=CALL_SECONDS), shard.kept.anew))
        if shard in self._copied:
            found += [
                (copied, set()) for copied in self._ask([self._after(shard)], "give its copy", "copied")
            ]
        return max(found, key=lambda each: -1 if each[0] is None else each[0]["version"])

    @property
    def _copied(self) -> list[_Shard]:
        """The shards of which there are copies."""
        return self._shards[: self._served] if self._resolved.servers.replicas else []

    def _after(self, shard: _Shard) -> _Shard:
        """The server that holds the copy of this shard."""
        return self._shards[(shard.number + 1) % len(self._shards)]

    def _before(self, shard: _Shard) -> _Shard:
        """The shard of which this server holds a copy."""
        return self._shards[(shard.number - 1) % len(self._shards)]

    def _copy(self, shard: _Shard) -> None:
        """Let the server after this one hold a copy of it."""
        self._ask([shard], "send its pushes to its copy", "copy_to", self._after(shard).holds)

    def _take(self, shard: _Shard, snapshot: _Snapshot) -> None:
        """Keep a state that has come; one that did not, since its process died, replaces none."""
        try:
            if ray.get(snapshot.state, timeout=0) is not None:
                shard.kept = snapshot
        except RayError:
            return

    def _started(self, server: ParameterServer, number: int) -> _Shard:
        actor = self._make(server, number)
        return _Shard(server, number, actor, watching=actor.watch.options(concurrency_group="watch").remote())

    def _serve(self, shard: _Shard) -> None:
        place: Place = get([shard.actor.__ray_call__.remote(place_of)], CALL_SECONDS, "answer")[0]
        shard.place = place
        nodes = {node for group in self._groups for node in group.nodes}
        nodes |= {each.place.node for each in self._shards if each.place is not None}
        host = self._groups[0].host if len(nodes) == 1 else place.address
        above = None if shard.server.group is None else self._shards[shard.server.shard].address
        given = self._secret, place.node, host
        encrypted = self._groups[0].encrypted
        if self._resolved.servers.replicas:
            held = shard.actor.hold.remote(self._before(shard).server.group, *given, encrypted)
            shard.holds = get([held], CALL_SECONDS, "hold a copy")[0]
        if shard.number < self._served:
            served = shard.actor.serve.remote(*given, self._seconds, above, encrypted)
            shard.address = get([served], CALL_SECONDS, "serve its shard")[0]
