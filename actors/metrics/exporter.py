"""The exporter of an actor's metrics to Ray, in a thread of its own, beside the record

The actor leaves plain values; no call of Ray's is made on its account. What goes wrong here hurts no run:
where Ray has no metrics, nothing is shown.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

from d5ray.metrics.exports.exported_metrics import COUNTER, ExportedMetric
from d5ray.metrics.exports.exported_rows import Key, Readings, come_to

if TYPE_CHECKING:
    from d5ray.metrics.record.recorder import Send

MOST_BATCHES: Final = 4096  # that are kept for a look
END_SECONDS: Final = 2.0  # for the last look

Read = Callable[[], Readings]


@final
class MetricsExporter:
    """Shows the rows that an actor sends, and what it reads of itself, with the tags of the run.

    Plain data until `start`, so that it can be sent to the actor. A gauge is set anew at every look, since
    Ray forgets one after twice its own interval; a counter is given what was added to it. rank: of an
    agent; of another actor what tells it from the others. seconds: between two looks; 0: never.
    """

    def __init__(self, run: str, recipe: str, role: str, rank: object = "", seconds: float = 1.0) -> None:
        self.tags = {"run": run, "recipe": recipe, "role": role, "rank": str(rank)}
        self._seconds = seconds
        self._sent: deque[Any] = deque(maxlen=MOST_BATCHES)
        self._metrics: dict[str, Any] = {}
        self._gauges: dict[Key, float] = {}
        self._totals: dict[Key, float] = {}  # of counters, when they were read last
        self._read: Read | None = None
        self._end: threading.Event | None = None
        self.spent_seconds = 0.0  # of the processor's time, since the last start
        self._thread: threading.Thread | None = None

    @property
    def shows(self) -> bool:
        """True from `start` until `close`."""
        return self._thread is not None

    def watched(self, send: "Send") -> "Send":
        """A wrapper of `send`, the batches of which are exported too."""
        if not self._seconds:
            return send

        def both(batch: Any) -> object:
            answer = send(batch)
            if self.shows:
                self._sent.append(batch)
            return answer

        return both

    def start(self, read: Read | None = None) -> None:
        """Begin, or begin anew. read: totals of counters, values of gauges; called from another thread."""
        self.close()
        if not self._seconds or not connected():
            return
        self._read, self._end, self.spent_seconds = read, threading.Event(), 0.0
        self._thread = threading.Thread(target=self._look_again, name="d5ray-exporter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look once more, and end. Harmless twice, and before `start`."""
        thread, self._thread = self._thread, None
        if thread is not None and self._end is not None:
            self._end.set()
            thread.join(END_SECONDS)

    def look(self) -> None:
        """Export the readings as they are now."""
        came = come_to(self._sent.popleft() for _ in range(len(self._sent)))
        added = {key: value for key, value in came.items() if key[0].kind == COUNTER}
        self._gauges |= {key: value for key, value in came.items() if key[0].kind != COUNTER}
        for key, value in (self._read() if self._read is not None else {}).items():
            if key[0].kind == COUNTER:
                before = self._totals.get(key, 0.0)
                added[key] = added.get(key, 0.0) + (value - before if value >= before else value)
                self._totals[key] = value
            else:
                self._gauges[key] = value
        self._gauges = {key: value for key, value in self._gauges.items() if math.isfinite(value)}
        for (exported, label), value in self._gauges.items():
            self._metric(exported).set(value, self._tags(exported, label))
        for (exported, label), value in added.items():
            if 0 < value < math.inf:
                self._metric(exported).inc(value, self._tags(exported, label))

    def _look_again(self) -> None:
        assert self._end is not None
        while True:
            over = self._end.wait(self._seconds)
            try:
                if connected():
                    self.look()
            except Exception as error:  # whatever Ray raises while it ends, or has changed
                logging.getLogger(__name__).debug("Ray's metrics were not reached: %s", error)
            self.spent_seconds = time.thread_time()
            if over:
                return

    def _metric(self, exported: ExportedMetric) -> Any:
        from ray.util import metrics  # noqa: PLC0415 - an exporter is made where there is no Ray, too

        name = exported.registered
        if name not in self._metrics:
            kind = metrics.Counter if exported.kind == COUNTER else metrics.Gauge
            text = f"{exported.description} [{exported.unit}]"
            self._metrics[name] = kind(name, description=text, tag_keys=exported.tags)
        return self._metrics[name]

    def _tags(self, exported: ExportedMetric, label: str) -> Mapping[str, str]:
        return self.tags | {exported.label: label} if exported.label else self.tags


def silent() -> MetricsExporter:
    """An exporter that exports nothing, for actors outside a run on Ray."""
    return MetricsExporter("", "", "", seconds=0.0)


def connected() -> bool:
    """True if this process is connected to Ray."""
    import ray  # noqa: PLC0415 - as above

    return bool(ray.is_initialized())
