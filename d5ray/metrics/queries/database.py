"""A DuckDB that sees the tables of some runs, and nothing else"""

import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, final

import pyarrow as pa

from d5ray.errors import ConfigurationError, StorageError, first_line
from d5ray.metrics.judge.summary import KEYS, STOPPED, SUMMARY, summary
from d5ray.metrics.queries import read_only
from d5ray.metrics.queries.source import Answer, Limits, QuerySource, Shelf, StoredRows
from d5ray.metrics.queries.sql import parquet_of, quoted
from d5ray.metrics.record.schema import SAMPLES, TABLES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

BATCH_ROWS = 1 << 16
_USED = (*KEYS, "rep", "step", "rank", "value")  # columns, by the summary
_STORED = " (stored)"  # after the name of a table that is partly in files
# A query sees the tables of its runs and nothing else: no other file, no variable of the calling program.
_ALONE: dict[str, str | bool | int | float | list[str]] = {
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
}
_CLOSED = (
    "SET temp_directory = ''",  # what does not fit memory is refused, and never lies around in a file
    "SET enable_external_access = false",
    "SET python_enable_replacements = false",
    "SET TimeZone = 'UTC'",
    "SET lock_configuration = true",
)


@final
class Database(QuerySource):
    """Answers queries on what a shelf has. Set up once, and again where that has changed."""

    def __init__(self, shelf: Shelf, limits: Limits | None = None) -> None:
        self._shelf, self._limits = shelf, limits or Limits()
        self._connection: DuckDBPyConnection | None = None
        self._files: tuple[str, ...] = ()
        self._shown: dict[str, StoredRows | None] = {}
        self._summarised: dict[str, StoredRows] = {}
        self._told: set[str] = set()
        self._lock = threading.Lock()
        self._asker = 0  # the thread whose turn it is

    @contextmanager
    def ask(self, query: str) -> Iterator[Answer]:
        import duckdb  # noqa: PLC0415 (loaded by those who ask)

        with self._turn(), _Bound(self, self._limits) as bound, ExitStack() as opened:
            try:
                connection = self._readied(query)
                read_only.check(connection, query)
                relation = connection.sql(query)
                if relation is None:
                    raise ConfigurationError(f"The query {query!r} has no result: write a SELECT")
                reader = opened.enter_context(relation.to_arrow_reader(BATCH_ROWS))
                yield Answer(reader.schema, bound.read(reader))
            except duckdb.InterruptException as error:
                raise bound.interrupted() from error
            except duckdb.OutOfMemoryException as error:
                raise bound.too_much(error) from error
            except duckdb.Error as error:
                text = self._with_place(error, query)
                raise ConfigurationError(f"The query failed. {text}{self._missing()}") from error

    def interrupt(self) -> None:
        if self._connection is not None:
            self._connection.interrupt()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One query at a time; a thread that still reads an answer would wait for itself."""
        if self._asker == threading.get_ident():
            raise ConfigurationError("Another answer is still being read: leave it before the next query")
        with self._lock:
            self._asker = threading.get_ident()
            try:
                yield
            finally:
                self._asker = 0

    def _readied(self, query: str) -> "DuckDBPyConnection":
        try:
            return self._ready(query)
        except FileNotFoundError:  # the run was closed between two looks
            try:
                return self._ready(query)
            except FileNotFoundError as error:
                raise StorageError(f"a run is being removed while it is read: {error}") from error

    def _ready(self, query: str) -> "DuckDBPyConnection":
        """The connection, on which every table that the query names is as it is now."""
        self._shelf.look()
        connection = self._connection
        if connection is None or self._files != self._shelf.files:
            self.close()
            connection = self._connection = self._connected()
        named = [name for name in TABLES if re.search(rf"\b{name}\b", query, re.IGNORECASE)]
        for name in named:
            rows = self._shelf.rows(name)
            if not rows.same(self._shown[name]):
                _show(connection, name, rows)
                self._shown[name] = rows
        if re.search(r"\bsummary\b", query, re.IGNORECASE):
            self._summarise(connection)
        for note in self._shelf.notes:
            if note not in self._told:
                self._told.add(note)
                warnings.warn(note, stacklevel=6)
        return connection

    def _connected(self) -> "DuckDBPyConnection":
        import duckdb  # noqa: PLC0415

        connection = duckdb.connect(":memory:", config=_ALONE)
        self._files = self._shelf.files
        self._shown, self._summarised = dict.fromkeys(TABLES), {}
        for name, schema in (*TABLES.items(), ("summary", SUMMARY)):
            connection.register(name, schema.empty_table())  # until a query names it
        allowed = ", ".join(map(quoted, self._files))
        connection.execute(f"SET memory_limit = '{self._limits.memory}'")
        if self._limits.threads is not None:
            connection.execute(f"SET threads = {self._limits.threads}")
        connection.execute(f"SET allowed_paths = [{allowed}]")
        for setting in _CLOSED:
            connection.execute(setting)
        return connection

    def _summarise(self, connection: "DuckDBPyConnection") -> None:
        """The table `summary`, made again where the rows are others."""
        rows = {name: self._shelf.rows(name) for name in ("samples", "events", "runs")}
        if not all(each.same(self._summarised.get(name)) for name, each in rows.items()):
            for name, each in rows.items():
                _show(connection, name, each)
                self._shown[name] = each
            connection.register("summary", summary_of(connection))
            self._summarised = rows

    def _with_place(self, error: Exception, query: str) -> str:
        """DuckDB's message with the place in the query, which an unknown name only has on another way."""
        import duckdb  # noqa: PLC0415

        named = isinstance(error, (duckdb.BinderException, duckdb.CatalogException))
        if named and self._connection is not None:
            try:
                self._connection.execute(query)
            except duckdb.Error as placed:
                return str(placed)
        return str(error)

    def _missing(self) -> str:
        notes = self._shelf.notes
        return f"\n{notes[0]}" if notes else ""


class _Bound:
    """The time of one query: when it is over, the query is interrupted."""

    def __init__(self, database: Database, limits: Limits) -> None:
        self._database, self._limits, self._late = database, limits, False
        self._timer = None if limits.seconds is None else threading.Timer(limits.seconds, self._end)

    def __enter__(self) -> "_Bound":
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def read(self, reader: Any) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                yield reader.read_next_batch()
            except StopIteration:
                return
            except OSError as error:  # what DuckDB's errors become on their way through Arrow
                if "INTERRUPT" in str(error):
                    raise self.interrupted() from error
                if "Out of Memory" in str(error):
                    raise self.too_much(error) from error
                raise ConfigurationError(f"The query failed. {error}") from error

    def too_much(self, error: Exception) -> ConfigurationError:
        return ConfigurationError(
            f"The query needs more memory than it may have ({self._limits.memory}): select fewer columns or "
            f"rows, or aggregate them. {first_line(error)}"
        )

    def interrupted(self) -> ConfigurationError:
        if self._late:
            return ConfigurationError(
                f"The query was ended after {self._limits.seconds:g} s: select less, or aggregate it"
            )
        return ConfigurationError("The query was interrupted")

    def _end(self) -> None:
        self._late = True
        self._database.interrupt()


def _show(connection: "DuckDBPyConnection", name: str, rows: StoredRows) -> None:
    """Let the connection see a table under its name."""
    stored = f'"{name}{_STORED}"'
    if not rows.files:
        held = TABLES[name].empty_table() if rows.held is None else rows.held
        connection.register(name, held)
        return
    columns = ", ".join(f'"{column}"' for column in TABLES[name].names)
    both = f"SELECT {columns} FROM {parquet_of(rows.files)}"
    if rows.held is not None:
        connection.register(stored.strip('"'), rows.held)
        both += f" UNION ALL SELECT {columns} FROM {stored}"
    connection.unregister(name)
    connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {both}")


def summary_of(connection: "DuckDBPyConnection") -> pa.Table:
    """The summary of every run that a connection sees; one run at a time is in memory."""
    wanted = pa.schema([SAMPLES.field(name) for name in _USED])
    runs = connection.sql("SELECT DISTINCT run_id FROM samples ORDER BY run_id").to_arrow_table()
    tables = [SUMMARY.empty_table()]
    for (name,) in zip(runs["run_id"].to_pylist(), strict=True):
        rows = connection.sql(f"SELECT {', '.join(_USED)} FROM samples WHERE run_id = $1", params=[name])
        batches = [batch.cast(wanted) for batch in rows.to_arrow_reader(1 << 17)]
        events = connection.sql(
            "SELECT run_id, name, detail FROM events WHERE run_id = $1 AND name = $2", params=[name, STOPPED]
        ).to_arrow_table()
        row = connection.sql("SELECT run_id, stop_reason FROM runs WHERE run_id = $1", params=[name])
        of_run = {"samples": pa.Table.from_batches(batches, wanted), "events": events}
        tables.append(summary({**of_run, "runs": row.to_arrow_table()}))
    return pa.concat_tables(tables)
