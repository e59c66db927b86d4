"""The recorder of one agent: a measured value costs an append, the rows are made when they are sent."""

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from d5ray.errors import ConfigurationError, nearest
from d5ray.metrics.definitions.catalogue import CATALOGUE
from d5ray.metrics.record.columns import FrameRow, Origin, SingleRow, expand, frame_batch, single_batch
from d5ray.metrics.record.schema import EVENTS

Send = Callable[[pa.RecordBatch], object]


class StepFrame:
    """Several metrics that are measured together, once per step: the quick path of a recorder."""

    def __init__(
        self,
        names: Sequence[str],
        units: Sequence[str],
        constants: dict[str, Any],
        scales: Sequence[float] | None,
        limit: int,
        now: Callable[[], int],
    ) -> None:
        self._now = now
        self.names = tuple(names)
        self.scales = scales
        self.limit = limit  # steps that may wait
        self.units = tuple(units)
        self.constants = constants
        self.pending: list[FrameRow] = []
        self._width = len(self.names)

    def append(
        self,
        step: int | None,
        epoch: int | None,
        phase: str,
        values: Sequence[float | None],
        now: int | None = None,
    ) -> None:
        """Record a value for each of the frame's metrics, in their order and units; None where there is none.

        The values are kept as they are until they are sent: pass a tuple that nobody changes.
        now: the monotonic clock in ns, if the caller has just read it.
        """
        if len(values) != self._width:
            raise ConfigurationError(
                f"A row of {len(values)} values for the {self._width} metrics {self.names}"
            )
        self.pending.append((step, epoch, phase, self._now() if now is None else now, values))

    def __len__(self) -> int:
        return len(self.pending) * self._width


class Recorder:
    """Collects what one agent measures and hands it to `send` as batches of the table `samples`.

    The rows of (agent, attempt) are numbered 0, 1, 2, … in the order in which they are sent. A batch whose
    `send` raised is kept and sent again, the same rows with the same numbers, at the next flush: the reader
    drops what it has. A recorder belongs to one thread.

    send, send_events: called with a record batch; it counts as delivered when the call returns.
    send_frames: where the rows of frames go in their compact form, which the other end must `expand`;
        without it they are expanded here and go where the others go.
    now: the clock in ns that times the rows; wall_minus_mono: what is added for the time of the wall, by
        default what the machine's own clock says.
    batch_rows, interval_seconds: `poll` sends when that many rows wait, or that much time has passed.
    first: the number of the first row, for a recorder that goes on where another stopped.
    """

    def __init__(
        self,
        *,
        run_id: str,
        agent: str,
        rank: int,
        node: str,
        send: Send,
        send_events: Send | None = None,
        send_frames: Send | None = None,
        attempt: int = 0,
        now: Callable[[], int] = time.perf_counter_ns,
        wall_minus_mono: int | None = None,
        batch_rows: int = 16384,
        interval_seconds: float = 1.0,
        first: int = 0,
    ) -> None:
        offset = time.time_ns() - now() if wall_minus_mono is None else wall_minus_mono
        self._now = now
        self._origin = Origin(run_id, agent, rank, node, attempt, offset)
        self._send, self._send_events, self._send_frames = send, send_events, send_frames
        self._batch_rows, self._interval = batch_rows, round(interval_seconds * 1e9)
        self._deadline = now() + self._interval
        self._units = {name: metric.unit for name, metric in CATALOGUE.items()}
        self._frames: list[StepFrame] = []
        self._singles: list[SingleRow] = []
        self._events: list[dict[str, Any]] = []
        self._outbox: deque[tuple[Send, pa.RecordBatch]] = deque()
        self._seq = first

    @property
    def rows(self) -> int:
        """The number of rows of `samples` recorded so far, sent or not."""
        return self._seq + self._waiting()

    def declare(self, name: str, unit: str) -> None:
        """Allows the metric `name`, in `unit` (SI: s, B, J, W, 1). Raises if its unit is another one."""
        known = self._units.setdefault(name, unit)
        if known != unit:
            raise ConfigurationError(f"The metric {name!r} is measured in {known!r}, not in {unit!r}")

    def frame(
        self,
        names: Sequence[str],
        *,
        scope: str = "agent",
        level: int = 3,
        source: str = "measured",
        scales: Sequence[float] | None = None,
    ) -> StepFrame:
        """A frame for metrics that are measured together; ConfigurationError for an unknown one.

        scales: what the values are multiplied with when they are sent, such as 1e-9 for those in ns.
        """
        constants = {"scope": scope, "level": level, "source": source}
        units = [self._unit(name) for name in names]
        limit = max(1, self._batch_rows // max(1, len(units)))
        frame = StepFrame(names, units, constants, scales, limit, self._now)
        self._frames.append(frame)
        return frame

    def record(
        self,
        metric: str,
        value: float | None,
        *,
        step: int | None = None,
        epoch: int | None = None,
        phase: str = "run",
        scope: str = "agent",
        level: int = 3,
        rep: int = 0,
        loops: int = 1,
        status: str = "ok",
        source: str = "measured",
    ) -> None:
        """Record a value, in the metric's unit; None when it is unavailable (say why in `status`)."""
        unit, now = self._unit(metric), self._now()
        self._singles.append(
            (metric, unit, value, step, epoch, phase, scope, level, rep, loops, status, source, now)
        )

    def event(
        self,
        name: str,
        *,
        step: int | None = None,
        epoch: int | None = None,
        duration: float | None = None,
        at: int | None = None,
        **detail: object,
    ) -> None:
        """Something happened, or ended and took `duration` seconds; `detail` is kept as JSON.

        at: when, in ns of the recorder's clock; by default now.
        """
        if self._send_events is None:
            raise ConfigurationError(
                f"The event {name!r} has nowhere to go: give the Recorder a send_events callable"
            )
        now = self._now() if at is None else at
        self._events.append(
            {
                "run_id": self._origin.run_id,
                "agent": self._origin.agent,
                "rank": self._origin.rank,
                "name": name,
                "step": step,
                "epoch": epoch,
                "t_wall": now + self._origin.wall_minus_mono,
                "t_mono": now,
                "duration": duration,
                "detail": json.dumps(detail, default=str, sort_keys=True),
            }
        )

    def poll(self, now: int | None = None) -> None:
        """Sends if enough rows wait or the interval has passed; cheap enough for every step.

        now: the monotonic clock in ns, if the caller has just read it.
        """
        if (self._now() if now is None else now) >= self._deadline or len(self._singles) >= self._batch_rows:
            self.flush()
            return
        for frame in self._frames:
            if len(frame.pending) >= frame.limit:
                self.flush()
                return

    def flush(self) -> None:
        """Sends everything that waits; what `send` raises is raised here, and nothing is lost by it."""
        self._deadline = self._now() + self._interval
        for frame in self._frames:
            if frame.pending:
                rows, frame.pending = frame.pending, []
                batch = frame_batch(
                    self._origin, self._seq, rows, frame.names, frame.units, frame.constants, frame.scales
                )
                self._seq += len(rows) * len(frame.names)
                if self._send_frames is None:
                    self._outbox.append((self._send, expand(batch)))
                else:
                    self._outbox.append((self._send_frames, batch))
        if self._singles:
            singles, self._singles = self._singles, []
            self._outbox.append((self._send, single_batch(self._origin, self._seq, singles)))
            self._seq += len(singles)
        if self._events and self._send_events is not None:
            events, self._events = self._events, []
            self._outbox.append((self._send_events, pa.RecordBatch.from_pylist(events, schema=EVENTS)))
        while self._outbox:
            send, batch = self._outbox[0]
            send(batch)
            self._outbox.popleft()

    def _waiting(self) -> int:
        return len(self._singles) + sum(map(len, self._frames))

    def _unit(self, metric: str) -> str:
        if metric not in self._units:
            raise ConfigurationError(
                f"There is no metric {metric!r}: {nearest(metric, self._units)} "
                f"Or declare it first: recorder.declare({metric!r}, unit)"
            )
        return self._units[metric]
