"""Writes what agents asked of servers and of each other: slices on both sides, and arrows between them"""

from collections import defaultdict
from collections.abc import Sequence
from typing import final

from d5ray.dashboards.timeline import operations
from d5ray.dashboards.timeline.clocks import Clocks
from d5ray.dashboards.timeline.operations import AgentOperation, Served
from d5ray.dashboards.timeline.trace import Track
from d5ray.dashboards.timeline.tracks import WINDOW, Tracks
from d5ray.metrics.views.view import RunView

MessageKey = tuple[int, int, int]  # source, receiver, number


@final
class Messages:
    """All operations of a timeline, and what they say about who was where."""

    def __init__(self, tracks: Tracks, shards: dict[int, list[str]]) -> None:
        self._tracks, self._shards = tracks, shards
        self._at_servers: dict[str, Served] = defaultdict(Served)
        self._at_windows: dict[int, Served] = defaultdict(Served)
        self._sent: dict[MessageKey, tuple[Track, int]] = {}
        self._received: dict[MessageKey, tuple[Track, int]] = {}

    def write(self, view: RunView, clocks: Clocks, first: int, last: int) -> None:
        """Draw everything that was asked in these steps."""
        for operation in operations.read(view, clocks, first, last):
            self._request(operation)
        for number, name in enumerate(sorted(self._at_servers)):
            self._of_server(number, name)
        for rank in sorted(self._at_windows):
            self._of_window(rank)
        for message, sent in self._sent.items():
            received = self._received.get(message)
            if received is not None and received[1] >= sent[1]:
                self._tracks.trace.flow("letter", sent, received, "message")

    def _request(self, operation: AgentOperation) -> None:
        """The slice of the request on the agent's side."""
        begin = operation.begin
        track = self._tracks.free(operation.rank, begin)
        self._tracks.slice(
            track, operation.kind, begin, operation.end, "message",
            step=operation.step, number=operation.number, **operation.facts,
        )  # fmt: skip
        if 0 < operation.waited <= operation.end - begin:  # shown between the ways there and back
            there = begin + (operation.end - begin - operation.waited) // 2
            self._tracks.trace.slice(track, "wait", there, there + operation.waited, "wait")
        for shard, order in enumerate(operation.orders):
            self._at_servers[self._shard(operation.rank, shard)].add(order, operation, track)
        for window, order in operation.places:
            self._at_windows[window].add(order, operation, track)
        for other, number in operation.messages:
            if operation.kind == "post":
                self._sent[operation.rank, other, number] = track, begin
            else:
                heard = _just_before(operation.end, begin)
                self._received[other, operation.rank, number] = track, heard

    def _shard(self, rank: int, shard: int) -> str:
        names: Sequence[str] = self._shards.get(rank, ())
        return names[shard] if shard < len(names) else f"ParameterServer(shard={shard})"

    def _of_server(self, number: int, name: str) -> None:
        served, track = self._at_servers[name], self._tracks.server(number, name)
        for place, came, over in served.slices():
            rank, kind = served.rank[place], served.kind[place]
            begin = self._tracks.slice(track, f"{kind} of agent {rank}", came, over, "served", rank=rank)
            agent = served.track[place]
            self._tracks.trace.flow(kind, (agent, served.begin[place]), (track, begin), "message")
            heard = _just_before(served.end[place], begin)
            self._tracks.trace.flow("reply", (track, begin), (agent, heard), "message")

    def _of_window(self, owner: int) -> None:
        served = self._at_windows[owner]
        for place, came, over in served.slices():
            rank, kind = served.rank[place], served.kind[place]
            if rank == owner:  # its own operation is on its own track
                continue
            track = self._tracks.agent(owner, WINDOW)
            begin = self._tracks.slice(track, f"{kind} by agent {rank}", came, over, "served", rank=rank)
            agent = served.track[place]
            self._tracks.trace.flow(kind, (agent, served.begin[place]), (track, begin), "message")


def _just_before(end: int, begin: int) -> int:
    """An arrow ends within its slice, not where it is over."""
    return max(begin, end - 1)
