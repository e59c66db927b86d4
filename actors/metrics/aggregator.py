"""The central place of everything measured: receives Arrow record batches and keeps the run's folder.

A plain class that works without Ray; `launch` makes an actor of it, on the driver's node.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from d5ray.actors.metrics.exporter import MetricsExporter, silent
from d5ray.checks import check_count
from d5ray.errors import ConfigurationError, DiskFull
from d5ray.metrics.definitions.catalogue import catalogue_rows
from d5ray.metrics.exports.exported_metrics import (
    BUSY_SECONDS,
    CONSENSUS_DISTANCE,
    ROWS_RECEIVED,
    ROWS_WRITTEN,
)
from d5ray.metrics.exports.exported_rows import Readings
from d5ray.metrics.probes.node_monitor import NodeMonitor
from d5ray.metrics.queries.database import Database
from d5ray.metrics.queries.locations import source_in
from d5ray.metrics.queries.source import Limits
from d5ray.metrics.record.artifacts import keep_file
from d5ray.metrics.record.columns import expand
from d5ray.metrics.record.live_consensus import Probes
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.run_clock import RunClock
from d5ray.metrics.record.schema import table_of
from d5ray.metrics.record.store import RunWriter

# Of a question to a running run: the training goes on beside it, and Ray's store holds what it gives.
ASKED = Limits(memory="1GB", seconds=30.0, threads=1)
MOST_BYTES = 1 << 26


class MetricsAggregator:
    """The actor that stores a run's rows. What `append` has returned for is on disk and readable.

    again: in the place of one that died; it goes on with the files that are there. one_sided: whether no
    agent of the run waits for another. clock: the run's.
    """

    def __init__(
        self,
        root: str,
        run_id: str,
        exporter: MetricsExporter | None = None,
        again: bool = False,
        one_sided: bool = False,
        clock: RunClock | None = None,
    ) -> None:
        import pyarrow.parquet  # noqa: F401, PLC0415 - while the agents still import their framework

        pa.array([""])  # imports pandas
        self._writer = RunWriter(Path(root), run_id)
        self._folder = Path(root) / run_id
        self._clock = clock or RunClock()
        self._lock = threading.Lock()  # the monitor of this node writes from a thread of its own
        self._monitor: NodeMonitor | None = None
        self._received = self._written = 0  # rows of samples
        self._busy_ns = 0
        self._probes = Probes()
        self._database: Database | None = None
        self._asking = ""  # who asks now
        self._experiment: dict[str, Any] = {}
        self._one_sided = one_sided
        self._wanted: int | None = None
        self._endpoint: Any = None
        self._full: tuple[int, int, str] | None = None  # since when the disk is, by both clocks in ns
        if again and (self._folder / "runs.parquet").exists():  # it died after `open`
            self._writer.resume()
            row = Run(self._folder).row
            self._probes.agents = row["agents"]
            self._experiment = json.loads(row["experiment"]) | {"agents": row["agents"]}
        self._exporter = exporter or silent()
        self._exporter.start(self.readings)

    def __repr__(self) -> str:
        return f"MetricsAggregator({self._folder.name})"

    def open(self, run_row: dict[str, Any], environment: pa.Table) -> str:
        """Begin the run's folder; returns its path."""
        self._writer.open(run_row, catalogue_rows())
        self._probes.agents = run_row["agents"]
        self._experiment = json.loads(run_row["experiment"]) | {"agents": run_row["agents"]}
        self._writer.write_table("environment", environment)
        return str(self._folder)

    def state(self) -> tuple[int, str, float]:
        """The process, and what is to be said of a disk that has been full for so many seconds, if it is."""
        full = self._full
        return os.getpid(), *(("", 0.0) if full is None else (full[2], _seconds_since(full[1])))

    def want(self, agents: int) -> None:
        """Take a request that the run have this number of agents; the driver asks for it."""
        check_resize(self._experiment, agents, one_sided=self._one_sided)
        self._wanted = agents

    def wanted(self) -> int | None:
        """The number of agents that was requested since this was asked last."""
        wanted, self._wanted = self._wanted, None
        return wanted

    def append(self, batch: pa.RecordBatch) -> int:
        """Keep sample rows; a batch sent twice counts once. Returns the rows that were new."""
        with self._lock, self._noting_a_full_disk():
            begin = time.perf_counter_ns()
            new = self._writer.append(batch)
            self._received += batch.num_rows
            self._written += new
            self._busy_ns += time.perf_counter_ns() - begin
        return new

    def append_frames(self, batch: pa.RecordBatch) -> int:
        """Keep sample rows that come in the compact form of a recorder's frame."""
        return self.append(expand(batch))

    def append_events(self, batch: pa.RecordBatch) -> int:
        """Keep a batch of rows of the table `events`."""
        if self._exporter.shows:
            self._probes.take(batch)
        with self._lock, self._noting_a_full_disk():
            return self._writer.append_events(batch)

    def append_deaths(self, batch: pa.RecordBatch) -> int:
        """Keep events of agents' deaths, each with the rows that came of the agent's attempt before."""
        rows = batch.to_pylist()
        for row in rows:
            detail = json.loads(row["detail"])
            arrived = self._writer.arrived(f"TrainingAgent(rank={row['rank']})", detail["attempt"])
            row["detail"] = json.dumps(detail | arrived)
        return self.append_events(table_of("events", rows).combine_chunks().to_batches()[0])

    def keep_file(self, name: str, data: bytes) -> None:
        """Keep a file of an event's in the run's folder; see `d5ray.metrics.record.artifacts.keep_file`."""
        with self._lock, self._noting_a_full_disk():
            keep_file(self._folder, name, data)

    def watch_node(self, node: str, seconds: float, pids: Mapping[str, int]) -> bool:
        """Watch this node from now on; returns when idle power has been measured, see `NodeMonitor`.

        Its rows go on behind those of an aggregator that died.
        """
        first = self._writer.arrived(f"NodeMonitor({node})", 0)["rows"] or 0
        self._monitor = NodeMonitor(
            self._folder.name, node, _Own(self), seconds, pids, first=first, clock=self._clock
        )
        return self._monitor.start()

    def phase(self, name: str) -> None:
        """Let the monitor of this node record under this phase from now on."""
        if self._monitor is not None:
            self._monitor.phase(name)

    def stop(self) -> int:
        """End the monitor of this node; returns how many rows it recorded."""
        return 0 if self._monitor is None else self._monitor.stop()

    def readings(self) -> Readings:
        """The readings of the aggregator, for Ray's metrics."""
        distance = self._probes.distance()
        return {
            (ROWS_RECEIVED, ""): self._received,
            (ROWS_WRITTEN, ""): self._written,
            (BUSY_SECONDS, ""): self._busy_ns * 1e-9,
        } | ({} if distance is None else {(CONSENSUS_DISTANCE, ""): distance})

    def received(self) -> dict[tuple[str, int], int]:
        """Sample rows received of each (agent, attempt)."""
        return self._writer.received()

    def tables(self) -> dict[str, pa.Table]:
        """The run's tables as they are now."""
        return Run(self._folder).tables()

    def ask(self, query: str, by: str) -> pa.Table:
        """The rows of a query, see `d5ray.metrics.queries.sql.sql`; it reads the disk, beside `append`.

        by: a word of the caller's own, for `interrupt`. Raises `ConfigurationError` beyond 30 s or 64 MiB.
        """
        if self._database is None:
            self._database = source_in(self._folder, ASKED)
        self._asking = by
        try:
            with self._database.ask(query) as answer:
                return pa.Table.from_batches(_bounded(answer.batches), answer.schema)
        finally:
            self._asking = ""

    def interrupt(self, by: str) -> None:
        """End the query that this caller asks."""
        if self._database is not None and self._asking == by:
            self._database.interrupt()

    def serve(self, bind: str, token: str = "") -> dict[str, str]:
        """Answer queries by Arrow Flight at HOST:PORT until the run ends; gives location and token.

        token: by default a new one.
        """
        from d5ray.metrics.queries.flight import FlightEndpoint  # noqa: PLC0415 (if it is wanted)

        if self._endpoint is None:
            endpoint = FlightEndpoint(lambda: source_in(self._folder, ASKED), bind, self._folder, token)
            self._endpoint = endpoint.start()
        return {"location": self._endpoint.location, "token": self._endpoint.token}

    def close(self, run_row: dict[str, Any], verdicts: pa.Table) -> None:
        """Write the end of the run and compact the streams to Parquet."""
        self.stop()
        if self._endpoint is not None:
            self._endpoint.stop()
        self._writer.write_table("verdicts", verdicts)
        # rows, or the event of a death, may have come since the row was made
        rows = max(run_row["rows"], sum(self._writer.received().values()))
        arrived = {"ended": self._clock.now(), "rows": rows}
        self._writer.update_run(**run_row | arrived)
        self._writer.close()

    @contextmanager
    def _noting_a_full_disk(self) -> Iterator[None]:
        """Remember since when the disk is full; two events tell of it when it has room again."""
        try:
            yield
        except DiskFull as error:
            self._full = self._full or (self._clock.time_ns(), time.perf_counter_ns(), str(error))
            raise
        if self._full is not None:
            self._note_room(*self._full)
            self._full = None

    def _note_room(self, t_wall: int, t_mono: int, reason: str) -> None:
        seconds = _seconds_since(t_mono)
        row = {
            "run_id": self._folder.name, "agent": "aggregator", "rank": -1, "name": "disk_full",
            "t_wall": t_wall, "t_mono": t_mono, "detail": json.dumps({"reason": reason}),
        }  # fmt: skip
        freed = {
            "name": "disk_freed", "t_wall": self._clock.time_ns(), "t_mono": time.perf_counter_ns(),
            "duration": seconds, "detail": json.dumps({"seconds": round(seconds, 3)}),
        }  # fmt: skip
        batch = table_of("events", [row, row | freed]).combine_chunks().to_batches()[0]
        self._writer.append_events(batch)


def _seconds_since(t_mono: int) -> float:
    return (time.perf_counter_ns() - t_mono) * 1e-9


def _bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > MOST_BYTES:
            raise ConfigurationError(
                f"The answer is larger than {MOST_BYTES >> 20} MiB: select less, aggregate it, or ask the "
                "run's folder or Flight server, which give it batch by batch"
            )
        yield batch


class _Own:
    """Hands the rows of this node's monitor to the aggregator that it runs in."""

    def __init__(self, aggregator: MetricsAggregator) -> None:
        self._aggregator = aggregator

    def samples(self, batch: Any) -> None:
        self._aggregator.append(batch)

    def drain(self) -> None:
        pass


def check_resize(experiment: Mapping[str, Any], agents: int, *, one_sided: bool = False) -> None:
    """Raise `ConfigurationError` unless an experiment, as `describe` gives it, can have that many agents."""
    if one_sided:
        raise ConfigurationError(
            "the agents of the run do not wait for each other's steps, so there is none that all reach "
            "together: take late=(Late(agent=3, seconds=60),) for agents that join later"
        )
    least = experiment.get("min_agents", 1)
    check_count("agents", agents, least, experiment["agents"])
    mesh = experiment.get("mesh") or {"replicas": experiment["agents"]}
    replica = experiment["agents"] // mesh["replicas"]
    if agents % replica:
        possible = range(-(-least // replica) * replica, experiment["agents"] + 1, replica)
        raise ConfigurationError(
            f"agents is {agents}, and a replica of the run's mesh is {replica} agents, which come and go "
            f"together: take one of {', '.join(map(str, possible))}"
        )
