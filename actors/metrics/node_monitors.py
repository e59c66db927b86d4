"""The driver's side of the node monitors: one on every node of a run, all told when a training goes on"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray.exceptions import RayError

from d5ray.actors.calls import CALL_SECONDS, get
from d5ray.actors.group.coordinator import Place
from d5ray.errors import D5Error

SHOWN = 8  # digits of a node's identifier, as Ray's dashboard shows them
Make = Callable[[str, Mapping[str, int]], Any]


class Monitors:
    """The monitors of a run. That of the driver's node is a thread of the aggregator, which is there anyway.

    make(node, pids): starts the actor that watches another node; Ray ends it with the run, whatever ends
    that.
    """

    def __init__(self, aggregator: Any, here: str, seconds: float, make: Make) -> None:
        self._aggregator, self._here, self._seconds, self._make = aggregator, here, seconds, make
        self._actors: list[Any] = []

    def start(self, places: Sequence[Place], absent: Mapping[int, Any]) -> None:
        """Watch the nodes that these agents are on, by rank; not those that come late."""
        by_node: dict[str, dict[str, int]] = {}
        for rank, place in enumerate(places):
            if rank not in absent:
                by_node.setdefault(place.node, {})[f"TrainingAgent(rank={rank})"] = place.pid
        calls = []
        for node, pids in by_node.items():
            if node == self._here:
                self._actors.append(self._aggregator)
                calls.append(self._aggregator.watch_node.remote(node[:SHOWN], self._seconds, pids))
            else:
                self._actors.append(self._make(node, pids))
                calls.append(self._actors[-1].start.remote())
        get(calls, CALL_SECONDS, "watch its node")

    def phase(self, name: str) -> None:
        """Let all monitors record under this phase from now on. Waits for nobody."""
        for actor in self._actors:
            actor.phase.remote(name)

    def stop(self) -> None:
        """Let all read once more, send their rows, and end; one that died has left what it had sent."""
        actors, self._actors = self._actors, []
        for actor in actors:
            try:
                get([actor.stop.remote()], CALL_SECONDS, "end its watch")
            except (D5Error, RayError):
                continue
