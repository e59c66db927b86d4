"""The latest consensus distance of a run, from the agents' probes as they come"""

import json
from collections import deque
from typing import Any, final

from d5ray.metrics.definitions.asynchrony import distance_of

MOST_BATCHES = 1024  # that are kept until somebody asks
MOST_STEPS = 512  # that not all agents have probed yet: slow ones are far behind


@final
class Probes:
    """Takes batches of events, and reads them when it is asked; `ConsensusDistance` says what it comes to.

    agents: how many probe; 0: not known yet.
    """

    def __init__(self) -> None:
        self.agents = 0
        self._batches: deque[Any] = deque(maxlen=MOST_BATCHES)
        self._values: dict[int, dict[int, list[float]]] = {}  # by step, then by rank
        self._latest: tuple[int, float] | None = None

    def take(self, batch: Any) -> None:
        """Keep a batch of events."""
        self._batches.append(batch)

    def distance(self) -> float | None:
        """The distance at the last step that all agents have probed; None without one, or with one agent."""
        while self._batches:
            batch = self._batches.popleft()
            for event in batch.select(["name", "rank", "step", "detail"]).to_pylist():
                if event["name"] == "probe":
                    values = json.loads(event["detail"])["values"]
                    self._values.setdefault(event["step"], {})[event["rank"]] = values
        complete = [step for step, by_rank in self._values.items() if len(by_rank) == self.agents > 1]
        if complete:
            step = max(complete)
            self._latest = (step, distance_of(list(self._values[step].values())))
            self._values = {at: by_rank for at, by_rank in self._values.items() if at > step}
        for step in sorted(self._values)[:-MOST_STEPS]:
            del self._values[step]
        return None if self._latest is None else self._latest[1]
