"""Sink of an agent's rows to the aggregator: acknowledged batches, a bounded number under way."""

from collections import deque
from typing import Any

import ray

from d5ray.actors.calls import CALL_SECONDS, get


class AggregatorSink:
    """Sends an agent's rows to the aggregator, at most `window` batches ahead of its acknowledgements."""

    def __init__(self, aggregator: Any, window: int = 8) -> None:
        self._aggregator = aggregator
        self._window = window
        self._pending: deque[Any] = deque()

    def samples(self, batch: Any) -> None:
        """Send a batch of rows of the table `metrics`; waits while too many are under way."""
        self._sent(self._aggregator.append.remote(batch))

    def frames(self, batch: Any) -> None:
        """Send a batch of frames for the live page; waits while too many are under way."""
        self._sent(self._aggregator.append_frames.remote(batch))

    def events(self, batch: Any) -> None:
        """Send a batch of rows of the table `events`; waits while too many are under way."""
        self._sent(self._aggregator.append_events.remote(batch))

    def file(self, name: str, data: bytes) -> None:
        """Send a file for the run's folder; waits while too many batches are under way."""
        self._sent(self._aggregator.keep_file.remote(name, data))

    def drain(self) -> None:
        """Wait until the aggregator has acknowledged everything."""
        while self._pending:
            get([self._pending.popleft()], CALL_SECONDS, "keep the rows")

    def _sent(self, reference: Any) -> None:
        self._pending.append(reference)
        acknowledged, _ = ray.wait([self._pending[0]], timeout=0)
        if acknowledged:  # so that an aggregator that died is noticed at the next batch
            get([self._pending.popleft()], CALL_SECONDS, "keep the rows")
        while len(self._pending) > self._window:
            get([self._pending.popleft()], CALL_SECONDS, "keep the rows")
