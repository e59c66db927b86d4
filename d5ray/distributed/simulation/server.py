"""Parameter servers of the simulated world: shards at the ends of wires"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.point_to_point.collectives import parts
from d5ray.distributed.parameter_server.requests import Array, Request
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.parameter_server.shard import Shard
from d5ray.distributed.simulation.arrival_order import Order
from d5ray.distributed.simulation.clock import VirtualClock, VirtualEvent
from d5ray.distributed.simulation.links import Wires

HEADER_BYTES = 64  # of a request or a reply without an array


@dataclass
class PlacedShard:
    """A shard, and the node it is on."""

    shard: Shard
    node: int
    name: str
    open: list[Request] = field(default_factory=list)  # that have come and are not answered
    kept: dict[str, Any] = field(default_factory=dict)  # the last snapshot
    relay: "_Relay | None" = None  # of a group's shard, to the root's
    anew: set[int] = field(default_factory=set)  # ranks that other agents have since, which number from 1


@final
class SimulatedServers:
    """All shards of a simulation: the root's after the agents' nodes, then those of groups."""

    def __init__(
        self,
        clock: VirtualClock,
        wires: Wires,
        resolved: ResolvedServers,
        x: Array,
        agents: int,
        order: Order,
    ) -> None:
        self.clock, self.wires, self.order = clock, wires, order
        self.resolved = resolved
        self.agents = agents
        servers = resolved.servers
        self.parts = parts(len(x), servers.shards)
        self.root = [
            PlacedShard(
                resolved.shard(x[part].copy(), None, resolved.members(None, agents)),
                agents + number,
                resolved.shard_name(number),
            )
            for number, part in enumerate(self.parts)
        ]
        self.groups = [self._group(group, x) for group in range(servers.groups)] if servers.groups > 1 else []

    @property
    def places(self) -> list[PlacedShard]:
        """All shards, numbered as real servers are: the root's, then those of one group after the other."""
        return [*self.root, *chain.from_iterable(self.groups)]

    def near(self, rank: int) -> Sequence[PlacedShard]:
        """The shards that this agent speaks to."""
        if not self.groups:
            return self.root
        return self.groups[self.resolved.servers.group_of(rank, self.agents)]

    def leave(self, rank: int) -> None:
        """An agent does not take part any more; nor does its group, if it was the last one of it."""
        group = self.resolved.group_of(rank, self.agents)
        for place, above in zip(self.near(rank), self.root, strict=True):
            place.shard.leave(rank)
            place.open = [each for each in place.open if each.rank != rank]
            if group is not None and not place.shard.policy.members:
                above.shard.leave(group)

    def enter(self, rank: int, *, again: bool = False) -> None:
        """An agent takes part from now on, with its group; `again`: the one that left, not a new one."""
        group = self.resolved.group_of(rank, self.agents)
        for place, above in zip(self.near(rank), self.root, strict=True):
            place.shard.enter(rank, again=again)
            if not again:
                place.anew.add(rank)
            if group is not None:
                above.shard.enter(group, again=True)

    def refresh(self) -> None:
        """Bring every group what the others have made since its last push; all agents have ended."""
        for group in self.groups:
            for place, above in zip(group, self.root, strict=True):
                place.shard.refresh(above.shard.x, above.shard.version)

    def snapshot(self) -> None:
        """Keep every shard's state: what one is restored from that dies."""
        for place in self.places:
            _keep(place)

    def restore(self, number: int) -> dict[str, Any]:
        """Let a shard die, and another begin with its last snapshot; the facts for an event.

        Agents whose requests died with it ask again, as real ones do. Pushes that were acknowledged since the
        snapshot are lost, and counted; where there are copies of shards, they have them all. A group's shard
        takes the root's parameters, where all of its pushes are that were acknowledged.
        """
        place, resolved = self.places[number], self.resolved
        if resolved.servers.replicas:
            _keep(place)
        before, relay = place.shard, place.relay
        place.relay = None if relay is None else relay.again()
        place.shard = resolved.shard(
            np.zeros_like(before.x),
            None if place.relay is None else place.relay.group,
            sorted(before.policy.members),
            None if place.relay is None else place.relay.send,
        )
        place.shard.restore(place.kept)
        for rank in place.anew & before.policy.members:
            place.shard.leave(rank)
            place.shard.enter(rank)
        applied, kept = before.state()["last"], place.shard.restored.last
        gone = {rank: last - kept.get(rank, 0) for rank, last in applied.items() if last > kept.get(rank, 0)}
        if place.relay is not None:
            place.relay.shard, above = place.shard, place.relay.above.shard
            place.shard.refresh(above.x, above.version)
            gone = {}
        lost, place.open = place.open, []
        for request in lost:
            request.followers, request.result, request.skipped, request.applied = [], None, 0, False
            self._enter(place, request)
        return {"version": place.kept["version"], "pushes_lost": sum(gone.values()), "lost": gone}

    def ask(
        self,
        place: PlacedShard,
        node: int,
        request: Request,
        sent: int,
        back: int,
        wanted: Callable[[], bool] = lambda: True,
    ) -> VirtualEvent:
        """Send a request over the wires; the event is set when its reply has arrived.

        wanted: False when whoever asks is gone, with the messages that are under way.
        """
        clock, wires = self.clock, self.wires
        heard = VirtualEvent(clock, f"{place.name}")

        def done(request: Request) -> None:
            if request in place.open:  # not where its agent has left
                place.open.remove(request)
            request.waited = clock.now() - came
            wires.send(clock, place.node, node, back, heard.set)

        request.done = done
        came = 0

        def arrive() -> None:
            nonlocal came
            came = clock.now()
            if wanted():
                self._enter(place, request)

        wires.send(clock, node, place.node, sent, arrive)
        return heard

    def _enter(self, place: PlacedShard, request: Request) -> None:
        place.open.append(request)
        self.order.enter(place.shard, place.name, request)

    def _group(self, group: int, x: Array) -> list[PlacedShard]:
        servers, members = self.resolved.servers, self.resolved.servers.members(group, self.agents)
        places = []
        for number, part in enumerate(self.parts):
            node = self.agents + servers.shards * (1 + group) + number
            relay = _Relay(self, self.root[number], group, node)
            shard = self.resolved.shard(x[part].copy(), group, members, relay.send)
            relay.shard = shard
            places.append(PlacedShard(shard, node, self.resolved.shard_name(number, group), relay=relay))
        return places


def _keep(place: PlacedShard) -> None:
    place.kept, place.anew = place.shard.state(), set()


@final
class _Relay:
    """Between a group's shard and the root's: what the group pushes goes up, what comes of it goes down."""

    shard: Shard

    def __init__(self, servers: SimulatedServers, above: PlacedShard, group: int, node: int) -> None:
        self.above = above
        self.group = group
        self._servers, self._node = servers, node
        self._ended = False

    def again(self) -> "_Relay":
        """The relay of the shard that stands in the place of this one's; what comes for this one is void."""
        self._ended = True
        return _Relay(self._servers, self.above, self.group, self._node)

    def send(self, mean: Array, counts: float, number: int) -> None:
        into = np.empty_like(self.shard.x)
        request = Request(self.group, number, mean, into, lambda _: None, counts=counts, number=number)
        size = HEADER_BYTES + mean.nbytes
        heard = self._servers.ask(
            self.above, self._node, request, size, HEADER_BYTES + into.nbytes, lambda: not self._ended
        )

        def wait() -> None:
            heard.wait()
            if not self._ended:
                self.shard.install(into, request.version, request.order)

        self._servers.clock.spawn(wait, "d5ray-relay")
