"""Sink of simulated agents' rows: an aggregator in this process"""

from typing import Any, final

from d5ray.actors.metrics.aggregator import MetricsAggregator
from d5ray.agent.sink import Sink


@final
class DirectSink(Sink):
    """Hands rows to the aggregator of this process."""

    def __init__(self, aggregator: MetricsAggregator) -> None:
        self._aggregator = aggregator

    def samples(self, batch: Any) -> None:
        self._aggregator.append(batch)

    def frames(self, batch: Any) -> None:
        self._aggregator.append_frames(batch)

    def events(self, batch: Any) -> None:
        self._aggregator.append_events(batch)

    def file(self, name: str, data: bytes) -> None:
        self._aggregator.keep_file(name, data)

    def drain(self) -> None:
        pass
