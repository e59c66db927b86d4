"""The writer of a run's folder: streams while the run goes on, Parquet tables when it is over."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d5ray.errors import ConfigurationError, StorageError, nearest
from d5ray.metrics.record.files import (
    StreamFile,
    read_parquet,
    read_stream,
    read_together,
    storing,
    write_parquet,
)
from d5ray.metrics.record.folders import check_writable, home, make_folder, runs_root
from d5ray.metrics.record.reader import Run, list_runs
from d5ray.metrics.record.schema import EVENTS, RUNS, SAMPLES, TABLES, VERSION, checked, table_of

__all__ = ["Run", "RunWriter", "check_writable", "home", "list_runs", "runs_root"]

ROWS_PER_GROUP = 1 << 17  # of a finished Parquet file: what is in memory at once while it is written

MOST_WAITING = 24 * ROWS_PER_GROUP  # rows of all metrics together that wait for their groups to fill

STREAMS = {"samples": SAMPLES, "events": EVENTS}  # the tables that grow row by row
_SMALL = ("runs", "metrics", "environment", "verdicts")


class RunWriter:
    """Writes `<root>/<run_id>/`; a row is with the operating system when the call that brought it returns.

    A process that is killed loses nothing it acknowledged; a new RunWriter for the same run continues it.
    Errors of the file system are StorageErrors, and leave readable what was stored before.
    """

    def __init__(self, root: Path, run_id: str) -> None:
        if not run_id or run_id in (".", "..", "last") or "/" in run_id:
            raise ConfigurationError(f"A run cannot be called {run_id!r}: use letters, digits, '-' and '_'")
        self.folder = root / run_id
        self.run_id = run_id
        self._streams: dict[str, StreamFile] = {}
        self._next: dict[tuple[str, int], int] = {}
        self._steps: dict[tuple[str, int], int] = {}  # the last step of which there are rows
        self._events: set[tuple[Any, ...]] = set()
        self._refused: dict[tuple[str, int], StorageError] = {}  # what was not stored, until it comes again

    def open(self, run_row: Mapping[str, Any], metrics: Iterable[Mapping[str, Any]] = ()) -> None:
        """Makes the folder with the run's row and the rows of `metrics`, or continues a run that died."""
        if (self.folder / "samples.parquet").exists():
            raise StorageError(f"{self.folder} holds a finished run: give the new run another name")
        with storing(self.folder):
            make_folder(self.folder)
        try:
            self._open_streams(STREAMS)
            self._write_row(run_row, metrics)
        except BaseException:
            self.leave()
            raise

    def resume(self) -> None:
        """Continues the run of a writer that died, also one that died while it closed it."""
        finished = [
            name
            for name in STREAMS
            if self._path(name, "parquet").exists() and not self._path(name, "arrows").exists()
        ]
        try:
            with storing(self.folder):
                for half in chain(self.folder.glob(".*.parquet.*.tmp"), self.folder.glob(".*.part*")):
                    half.unlink(missing_ok=True)  # of a file that it was writing
                if "events" in finished:
                    finished.remove("events")
                    self._begin_events_again()
            self._open_streams(STREAMS.keys() - finished)
        except BaseException:
            self.leave()
            raise

    def arrived(self, agent: str, attempt: int) -> dict[str, int | None]:
        """The rows stored of an agent's attempt, and the last step of which there are some."""
        key = agent, attempt
        return {"rows": self._next.get(key, 0), "rows_until_step": self._steps.get(key)}

    def update_run(self, **columns: Any) -> None:
        """Changes columns of the run's row, such as `status`, `ended`, `verdict`; also of a finished run."""
        try:
            row = read_parquet(self._path("runs", "parquet"))
        except FileNotFoundError as error:
            raise StorageError(f"{self.folder} has no run yet: call open() first") from error
        for name, value in columns.items():
            if name not in RUNS.names:
                raise ConfigurationError(f"A run has no column {name!r}: {nearest(name, RUNS.names)}")
            try:
                column = pa.array([value], RUNS.field(name).type)
            except (pa.ArrowException, OverflowError) as error:
                raise ConfigurationError(f"{value!r} does not fit the column {name!r}: {error}") from error
            row = row.set_column(RUNS.get_field_index(name), name, column)
        self.write_table("runs", row)

    def append(self, batch: pa.RecordBatch) -> int:
        """Stores the rows of `samples` that are new, and returns how many they were.

        Rows that came before (same agent, attempt and seq) are dropped. Raises StorageError if rows are
        missing between the last one and these: the same as before where those could not be stored. Nothing
        of `batch` is kept.
        """
        stored = 0
        for (agent, attempt), part in _by_writer(self._fitting(batch, SAMPLES)):
            expected = self._next.get((agent, attempt), 0)
            found = part["seq"].to_numpy()
            if found[0] > expected or (np.diff(found) != 1).any():
                if refused := self._refused.get((agent, attempt)):
                    raise type(refused)(str(refused))
                raise StorageError(
                    f"Run {self.run_id}: rows of {agent} (attempt {attempt}) were lost: {found[0]} to "
                    f"{found[-1]} came, {expected} is the next: send everything from {expected} on"
                )
            fresh = part.slice(expected - found[0])
            if fresh.num_rows:
                try:
                    self._stream("samples").append(fresh)
                except StorageError as error:
                    self._refused[agent, attempt] = error
                    raise
                self._refused.pop((agent, attempt), None)
                self._take_note((agent, attempt), fresh)
                stored += fresh.num_rows
        return stored

    def append_events(self, batch: pa.RecordBatch) -> int:
        """Stores the events that are new (agent, rank, name, times), and returns how many they were."""
        batch = self._fitting(batch, EVENTS)
        keys = _event_keys(batch)
        fresh = batch.filter(pa.array([key not in self._events for key in keys], pa.bool_()))
        if fresh.num_rows:
            self._stream("events").append(fresh)
            self._events.update(keys)
        return int(fresh.num_rows)

    def write_table(self, name: str, table: pa.Table) -> None:
        """Replaces one of the small tables: `runs`, `metrics`, `environment`, `verdicts`."""
        if name not in _SMALL:
            raise ConfigurationError(f"The table {name!r} is not written as a whole: {nearest(name, _SMALL)}")
        write_parquet(self._path(name, "parquet"), TABLES[name], [self._fitting(table, TABLES[name])])

    def received(self) -> dict[tuple[str, int], int]:
        """The rows stored of each (agent, attempt), which is the seq that comes next."""
        return dict(self._next)

    def close(self) -> None:
        """Turns the streams into `samples.parquet` and `events.parquet`; a second call does nothing."""
        for name in list(self._streams):
            stream = self._path(name, "arrows")
            write_parquet(self._path(name, "parquet"), TABLES[name], _groups(stream, TABLES[name]))
            self._streams.pop(name).close()
            with storing(stream):
                stream.unlink(missing_ok=True)

    def leave(self) -> None:
        """Lets go of the streams as they are: the run can be read, and another RunWriter can continue it."""
        for name in list(self._streams):
            self._streams.pop(name).close()

    def _open_streams(self, names: Iterable[str]) -> None:
        for name in names:
            stream = self._path(name, "arrows")
            self._streams[name] = StreamFile(stream, STREAMS[name])
            for batch, _ in read_stream(stream):
                if name == "events":
                    self._events.update(_event_keys(batch))
                    continue
                for key, part in _by_writer(batch):
                    self._take_note(key, part)

    def _begin_events_again(self) -> None:
        """Makes a stream of the finished events, since the death of the writer is one more."""
        path = self.folder / ".events.part"
        stream = StreamFile(path, EVENTS)
        for batch in read_parquet(self._path("events", "parquet")).combine_chunks().to_batches():
            stream.append(batch)
        stream.close()
        path.replace(self._path("events", "arrows"))

    def _take_note(self, key: tuple[str, int], part: pa.RecordBatch) -> None:
        self._next[key] = part["seq"][-1].as_py() + 1
        step = pc.max(part["step"]).as_py()
        if step is not None:
            self._steps[key] = max(step, self._steps.get(key, step))

    def _write_row(self, run_row: Mapping[str, Any], metrics: Iterable[Mapping[str, Any]]) -> None:
        row = {"status": "running", "schema_version": VERSION} | dict(run_row) | {"run_id": self.run_id}
        self.write_table("metrics", table_of("metrics", metrics))
        self.write_table("runs", table_of("runs", [row]))

    def _path(self, name: str, ending: str) -> Path:
        return self.folder / f"{name}.{ending}"

    def _stream(self, name: str) -> StreamFile:
        if name not in self._streams:
            raise StorageError(
                f"Run {self.run_id} is not open for {name}: call open() first, and close() last"
            )
        return self._streams[name]

    def _fitting(self, rows: pa.RecordBatch | pa.Table, schema: pa.Schema) -> Any:
        try:
            rows = checked(rows, schema)
        except pa.ArrowException as error:
            raise StorageError(f"Run {self.run_id}: rows do not fit their table: {error}") from error
        if rows.num_rows and "run_id" in schema.names:
            runs = rows["run_id"].unique().to_pylist()
            if runs != [self.run_id]:
                raise StorageError(f"Run {self.run_id} got rows of another run: {runs}")
        return rows


def _by_writer(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    """The rows of each (agent, attempt), in their order; nearly always there is only one."""
    agents, attempts = batch["agent"].unique().to_pylist(), batch["attempt"].unique().to_pylist()
    if len(agents) == len(attempts) == 1:
        yield (agents[0], attempts[0]), batch
        return
    for agent in agents:
        for attempt in attempts:
            theirs = pc.and_(pc.equal(batch["agent"], agent), pc.equal(batch["attempt"], attempt))
            part = batch.filter(theirs)
            if part.num_rows:
                yield (agent, attempt), part


def _event_keys(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    columns = [batch[name].to_pylist() for name in ("agent", "rank", "name", "t_mono")]
    return list(zip(*columns, batch["t_wall"].cast(pa.int64()).to_pylist(), strict=True))


def _groups(stream: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """The batches of a stream, put together to large tables with one numbering of words each.

    Of a long table with metrics a group has the rows of one, in their order: who asks for a metric, as most
    do, reads no other's rows. What is left of each at the end shares the last groups.
    """
    batches = read_together(stream, schema, ROWS_PER_GROUP // 16)
    begin: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        begin.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_PER_GROUP:
            break
    else:
        if begin:
            yield _joined(begin, schema)
        return
    waiting: dict[str, list[pa.RecordBatch]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    for batch in chain(begin, batches):
        for word, part in _by_metric(batch):
            waiting[word].append(part)
            counts[word] += part.num_rows
            if counts[word] >= ROWS_PER_GROUP or sum(counts.values()) >= MOST_WAITING:
                largest = max(counts, key=lambda word: counts[word])
                yield _joined(waiting.pop(largest), schema)
                del counts[largest]
    rest: list[pa.RecordBatch] = []
    for word in sorted(waiting):
        rest += waiting[word]
        if sum(part.num_rows for part in rest) >= ROWS_PER_GROUP:
            yield _joined(rest, schema)
            rest = []
    if rest:
        yield _joined(rest, schema)


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(batches, schema).unify_dictionaries()


def _by_metric(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each metric, in their order; all rows together where they have none."""
    if "metric" not in batch.schema.names:
        yield "", batch
        return
    column = batch["metric"]
    codes = column.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    edges = np.flatnonzero(np.diff(ordered)) + 1
    sorted_batch = batch.take(pa.array(order))
    for first, last in pairwise([0, *edges.tolist(), len(ordered)]):
        if last > first:
            yield column.dictionary[int(ordered[first])].as_py(), sorted_batch.slice(first, last - first)
