"""The monitor of one node: reads its meters once a second, in a thread of its own, and records them"""

import platform
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from d5ray.errors import D5Error, DiskFull
from d5ray.metrics.definitions.resources import NODE_TIME
from d5ray.metrics.probes.node_meters import ControlGroup, Meter, Processes, Processors
from d5ray.metrics.probes.nvml import Nvml
from d5ray.metrics.probes.rapl import Rapl
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.run_clock import RunClock

IDLE_SECONDS = 1.0  # before the training, in which idle power is measured, where there is a counter of energy
SEND_SECONDS = 5.0  # between two batches of rows
NO_RANK = -1  # a node is not an agent
END = ""


class NodeSink(Protocol):
    """The place where a monitor's rows go."""

    def samples(self, batch: Any) -> None:
        """Take a batch of rows of the table `metrics`."""

    def drain(self) -> None:
        """Return when everything sent has been acknowledged."""


class NodeMonitor:
    """The monitor of one node, not of one agent: counters are of the machine, and looking costs time.

    Works without Ray; `Monitors` makes one of it on every node of a run, and it ends with the process that it
    is in. Its rows belong to a phase: `idle` before the training, `train` during it, `run` otherwise.

    node: what tells it from the others; several nodes of a cluster may have one host's name.
    pids: processes of agents, by the name that their rows get. meters: by default all that there are.
    first: the number of its first row, behind those of a monitor that it stands in the place of. clock: the
    run's, by default this process's own.
    """

    def __init__(
        self,
        run_id: str,
        node: str,
        sink: NodeSink,
        seconds: float,
        pids: Mapping[str, int],
        meters: Sequence[Meter] | None = None,
        first: int = 0,
        clock: RunClock | None = None,
    ) -> None:
        self._run_id, self._node, self._sink, self._seconds, self._pids = run_id, node, sink, seconds, pids
        self._meters, self._first, self._clock = meters, first, clock
        self._commands: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="NodeMonitor", daemon=True)
        self._rows = 0

    def __repr__(self) -> str:
        return f"NodeMonitor({self._node})"

    def start(self) -> bool:
        """Begin, in the phase `idle`; returns when idle power has been measured, if there is any to measure.

        Whether there is.
        """
        self._thread.start()
        self._ready.wait()
        counted = any(meter.counts_energy for meter in self._meters or ())
        if counted:
            time.sleep(IDLE_SECONDS)
        self.phase("run")
        return counted

    def phase(self, name: str) -> None:
        """Record under this phase from now on."""
        self._commands.put(name)

    def stop(self) -> int:
        """Read once more, send everything, and end; returns how many rows there were. Harmless twice."""
        self._commands.put(END)
        if self._thread.ident is not None:
            self._thread.join()
        return self._rows

    def _watch(self) -> None:
        recorder = Recorder(
            run_id=self._run_id,
            agent=repr(self),
            rank=NO_RANK,
            node=platform.node(),
            send=self._sink.samples,
            interval_seconds=SEND_SECONDS,
            first=self._first,
            wall_minus_mono=None if self._clock is None else self._clock.wall_minus_mono,
        )
        if self._meters is None:
            self._meters = (Processors(), Processes(self._pids), ControlGroup(), Rapl(), Nvml())
        phase = "idle"
        try:
            last = self._read(recorder, phase, None)
            self._ready.set()
            while phase != END:
                try:
                    coming = self._commands.get(timeout=self._wait())
                except queue.Empty:
                    coming = phase
                last = self._read(recorder, phase, last)  # what ends now belongs to the phase so far
                phase = coming
                with suppress(DiskFull):  # the recorder keeps the rows until there is room
                    recorder.poll()
            recorder.flush()
            self._sink.drain()
        except D5Error:
            pass  # the rows have nowhere to go any more: the run is over
        finally:
            self._rows = recorder.rows
            self._ready.set()

    def _wait(self) -> float:
        return min((meter.due(self._seconds) for meter in self._meters or ()), default=self._seconds)

    def _read(self, recorder: Recorder, phase: str, last: float | None) -> float:
        """Read all meters; returns when that was."""
        now = time.perf_counter()
        seconds = 0.0 if last is None else now - last
        if last is not None:
            recorder.record(NODE_TIME, seconds, phase=phase, scope="node", source="counter")
        for meter in self._meters or ():
            for reading in meter.read(seconds):
                recorder.record(
                    reading.metric,
                    reading.value,
                    phase=phase,
                    scope=reading.scope,
                    status=reading.status,
                    source=reading.source,
                )
        return now
