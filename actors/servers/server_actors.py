"""The driver's side of the parameter servers: makes them known, keeps their state, starts anew what died"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from d5ray.actors.calls import CALL_SECONDS, get
from d5ray.actors.cluster.placement import Place, place_of
from d5ray.actors.servers.parameter_server import ParameterServer
from d5ray.distributed.authentication.secret import Secret
from d5ray.distributed.group.group import Group
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.rpc.service import Address
from d5ray.distributed.world import Directory
from d5ray.experiment import Experiment

Make = Callable[[ParameterServer, int], Any]


@dataclass
class _Shard:
    """One shard's actor, and what is needed to replace it."""

    server: ParameterServer  # as it is described to `make`
    number: int  # among all
    actor: Any
    address: Address | None = None
    state: Any = None  # reference to the last snapshot
    coming: Any = None  # reference to the next one
    watching: Any = None  # reference that fails when the actor's process dies

    @property
    def name(self) -> str:
        return repr(self.server)


class ServerActors:
    """All shards' actors: the root's, then those of every group.

    make(server, number): starts the actor that is to be this server, the number-th of all.
    """

    def __init__(self, resolved: ResolvedServers, experiment: Experiment, make: Make) -> None:
        self._resolved, self._make = resolved, make
        self._seconds = experiment.timeout_seconds
        self._agents = experiment.replicas
        self._snapshot_at = 0.0
        self._away: set[int] = set()  # agents that do not take part
        groups: list[int | None] = [None]
        if resolved.servers.groups > 1:
            groups += range(resolved.servers.groups)
        self._shards = [
            self._started(ParameterServer(shard, resolved, self._agents, group), number)
            for number, (group, shard) in enumerate(
                (group, shard) for group in groups for shard in range(resolved.servers.shards)
            )
        ]

    def open(self, groups: Sequence[Group]) -> None:
        """Let the servers serve agents whose groups are these."""
        self._groups = groups
        count = self._resolved.servers.shards
        for first in range(0, len(self._shards), count):  # the root's, then those of the groups
            self._serve(self._shards[first : first + count])

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
    def watching(self) -> dict[Any, int]:
        """References that fail when an actor dies, with its number."""
        return {shard.watching: number for number, shard in enumerate(self._shards)}

    def name(self, number: int) -> str:
        """The name of the number-th server."""
        return self._shards[number].name

    def shard(self, number: int) -> tuple[int | None, int]:
        """The group and the shard of the number-th actor."""
        return self._shards[number].server.group, self._shards[number].server.shard

    def snapshot(self) -> None:
        """Ask for the states when it is time; those that have come replace the older ones."""
        for shard in self._shards:
            if shard.coming is not None and ray.wait([shard.coming], timeout=0)[0]:
                shard.state, shard.coming = shard.coming, None
        if time.monotonic() >= self._snapshot_at:
            self._snapshot_at = time.monotonic() + self._resolved.servers.snapshot_seconds
            for shard in self._shards:
                if shard.coming is None:
                    shard.coming = shard.actor.state.remote()

    def keep(self) -> None:
        """Take the states now: what a server is restored from that dies before the first snapshot."""
        for shard in self._shards:
            if shard.state is None:
                shard.state = shard.actor.state.remote()
        states = [shard.state for shard in self._shards]
        ray.wait(states, num_returns=len(states), timeout=CALL_SECONDS)

    def restore(self, number: int) -> Address:
        """Start the number-th actor anew, with the state that was kept last; where it is now."""
        shard = self._shards[number]
        fresh = self._started(shard.server, shard.number)
        shard.actor, shard.coming, shard.watching = fresh.actor, None, fresh.watching
        self._serve([shard])
        if (state := self._kept(shard)) is not None:
            get([shard.actor.restore.remote(state)], CALL_SECONDS, "take the state that was kept")
        assert shard.address is not None
        return shard.address

    def loads(self) -> dict[str, Any]:
        """References to the load of each shard so far, by name."""
        return {shard.name: shard.actor.load.remote() for shard in self._shards}

    def refresh(self) -> None:
        """Bring every group what the others have made since its last push; all agents have ended."""
        now = [shard.actor.parameters.remote() for shard in self._root]
        groups = self._shards[len(self._root) :]
        calls = [shard.actor.refresh.remote(now[shard.server.shard]) for shard in groups]
        get(calls, CALL_SECONDS, "take the root's parameters")

    def leave(self, rank: int) -> None:
        """An agent is gone: nobody waits for it; nor for its group, if it was the last one of it."""
        get([s.actor.leave.remote(rank) for s in self._of(rank)], CALL_SECONDS, "let an agent go")
        self._away.add(rank)
        group = self._resolved.group_of(rank, self._agents)
        if group is not None and self._away.issuperset(self._resolved.members(group, self._agents)):
            get([s.actor.leave.remote(group) for s in self._root], CALL_SECONDS, "let a group go")

    def enter(self, rank: int, *, again: bool = False) -> None:
        """Let an agent take part from now on; `again`: it is the one that left, not a new one."""
        self._away.discard(rank)
        group = self._resolved.group_of(rank, self._agents)
        if group is not None:
            get([s.actor.enter.remote(group, True) for s in self._root], CALL_SECONDS, "let a group in")
        get([s.actor.enter.remote(rank, again) for s in self._of(rank)], CALL_SECONDS, "let an agent in")

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
        return [shard for shard in self._shards if shard.server.group == group]

    def _kept(self, shard: _Shard) -> Any:
        """The state that was kept last; None where none was, or it died with its process."""
        if shard.state is None:
            return None
        try:
            return ray.get(shard.state, timeout=CALL_SECONDS)
        except RayError:
            return None

    def _started(self, server: ParameterServer, number: int) -> _Shard:
        actor = self._make(server, number)
        return _Shard(server, number, actor, watching=actor.watch.options(concurrency_group="watch").remote())

    def _serve(self, shards: Sequence[_Shard]) -> None:
        places: list[Place] = get(
            [shard.actor.__ray_call__.remote(place_of) for shard in shards], CALL_SECONDS, "answer"
        )
        nodes = {node for group in self._groups for node in group.nodes} | {place.node for place in places}
        calls = []
        for shard, place in zip(shards, places, strict=True):
            host = self._groups[0].host if len(nodes) == 1 else place.address
            above = None if shard.server.group is None else self._shards[shard.server.shard].address
            encrypted = self._groups[0].encrypted
            calls.append(
                shard.actor.serve.remote(self._secret, place.node, host, self._seconds, above, encrypted)
            )
        for shard, address in zip(shards, get(calls, CALL_SECONDS, "serve its shard"), strict=True):
            shard.address = address
