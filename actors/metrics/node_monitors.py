"""The driver's side of the node monitors: one on every node of a run, all told when a training goes on"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, final

from ray.exceptions import RayError

from d5ray.actors.calls import CALL_SECONDS, get
from d5ray.actors.cluster.placement import Place
from d5ray.actors.metrics.aggregator_client import AggregatorClient
from d5ray.actors.remote import SHOWN, RunActors
from d5ray.errors import D5Error


@final
class Monitors:
    """The monitors of a run, which Ray ends with it, whatever ends that.

    That of the driver's node is a thread of the aggregator, which is there anyway. seconds: between readings.
    """

    def __init__(self, actors: RunActors, aggregator: AggregatorClient, seconds: float) -> None:
        self._run, self._aggregator, self._seconds = actors, aggregator, seconds
        self._actors: list[Any] = []
        self._here = False  # whether the driver's node is watched

    def start(self, places: Sequence[Place], absent: Mapping[int, Any]) -> None:
        """Watch the nodes that these agents are on, by rank; not those that come late."""
        by_node: dict[str, dict[str, int]] = {}
        for rank, place in enumerate(places):
            if rank not in absent:
                by_node.setdefault(place.node, {})[f"TrainingAgent(rank={rank})"] = place.pid
        here = by_node.pop(self._run.node, None)
        self._actors = [self._run.node_monitor(node, pids) for node, pids in by_node.items()]
        calls = [actor.start.remote() for actor in self._actors]
        if here is not None:
            self._here = True
            self._aggregator.watch_node(self._run.node[:SHOWN], self._seconds, here)
        get(calls, CALL_SECONDS, "watch its node")

    def phase(self, name: str) -> None:
        """Let all monitors record under this phase from now on. Waits for nobody."""
        for actor in self._actors:
            actor.phase.remote(name)
        if self._here:
            self._aggregator.phase(name)

    def stop(self, seconds: float) -> None:
        """Let all read once more, send their rows, and end; one that died has left what it had sent.

        seconds: in which all have done so; a host may be out of reach.
        """
        if self._here:
            self._here = False
            with suppress(D5Error, RayError):
                self._aggregator.stop_watching()
        actors, self._actors = self._actors, []
        calls, end = [actor.stop.remote() for actor in actors], time.monotonic() + seconds
        for call in calls:
            with suppress(D5Error, RayError):
                get([call], max(0.0, end - time.monotonic()), "end its watch")
