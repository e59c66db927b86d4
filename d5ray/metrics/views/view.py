"""A run as DuckDB tables that follow it: the files of a finished one, the new rows of one that goes on"""

import math
import re
import threading
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from d5ray.errors import StorageError, first_line
from d5ray.metrics.queries.sql import is_pattern, parquet_of
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.schema import TABLES
from d5ray.metrics.views.growing_streams import Growing

LARGE = ("samples", "events")


class RunView:
    """The six tables of a run in a database of its own, for queries of d5ray itself (not of users).

    `refresh()` takes what is new: of a run that goes on only the new bytes are read. `version` grows with
    every refresh that found something. Threads may share a view. Raises `StorageError` for a run that cannot
    be read, with what to do.

    seconds: after which reading a long stream stops for now, also when it is opened; `behind` says so.
    """

    def __init__(self, run: Run, seconds: float = math.inf) -> None:
        import duckdb  # noqa: PLC0415 (loaded by those who ask)

        self.run = run
        self.version = 0
        self.behind = False
        self.row: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._growing: dict[str, Growing] = {}
        self._finished: set[str] = set()
        self._stamp: tuple[float, ...] = ()
        self._origin: int | None = None
        self._made: set[str] = set()
        self._connection = duckdb.connect(":memory:")
        try:
            self._connection.execute("SET TimeZone = 'UTC'")
            self._connection.execute("ATTACH ':memory:' AS kept (COMPRESS)")
            self._connection.execute("USE kept")
            for name in LARGE:
                self._make(f"{name}_grown", TABLES[name].empty_table())
                self._connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {name}_grown")
                self._growing[name] = Growing(self.run.folder / f"{name}.arrows", TABLES[name])
            self.refresh(seconds)
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        """The run's name."""
        return self.run.name

    @property
    def running(self) -> bool:
        """True if the run goes on, so that more rows are to come."""
        return self.behind or self.row["status"] == "running"

    @property
    def origin(self) -> int:
        """The time of the first step or event, in ns of the wall's clock: seconds count from there."""
        if self._origin is None:
            found = self.one(
                "SELECT least((SELECT min(epoch_ns(t_wall)) FROM samples), "
                "(SELECT min(epoch_ns(t_wall) - CAST(value * 1e9 AS BIGINT)) FROM samples "
                "WHERE metric = 'step_time' AND isfinite(value)), "
                "(SELECT min(epoch_ns(t_wall) - CAST(coalesce(duration, 0) * 1e9 AS BIGINT)) FROM events)) "
                "AS earliest"
            )
            self._origin = found["earliest"]
        return self._origin or 0

    def refresh(self, seconds: float = math.inf) -> bool:
        """Take what is new, for about so long; whether something is."""
        with self._lock:
            row = self.run.row  # before the rows: what it says has ended is on disk by then
            news = row != self.row
            self.row = row
            self.behind = False
            end = time.monotonic() + seconds
            for name in reversed(LARGE):
                news |= self._follow(name, end)
            news |= self._small()
            self.version += news
            return news

    def ask(self, query: str, **parameters: object) -> pa.Table:
        """The answer to a query of d5ray's own on `samples`, `events`, `runs`, …; parameters stand as $name.

        Parameters that the query does not name are left out.
        """
        import duckdb  # noqa: PLC0415

        named = {name: value for name, value in parameters.items() if re.search(rf"\${name}\b", query)}
        with self._lock:
            try:
                return self._connection.sql(query, params=named).to_arrow_table()
            except duckdb.Error as error:
                raise StorageError(f"the run {self.name} cannot be read: {first_line(error)}") from error

    def one(self, query: str, **parameters: object) -> dict[str, Any]:
        """The first row of the answer; {} where there is none."""
        rows = self.ask(query, **parameters).slice(0, 1).to_pylist()
        return rows[0] if rows else {}

    def make(self, name: str, query: str) -> None:
        """Keep the answer to a query of d5ray's own as a table, for as long as the view is open.

        Others may ask meanwhile; of a run that goes on the table would soon be out of date.
        """
        with self._connection.cursor() as cursor:
            cursor.execute("USE kept")
            cursor.execute(f"CREATE OR REPLACE TABLE {name} AS {query}")
        self._made.add(name)

    def has(self, name: str) -> bool:
        """True if a table of this name was made."""
        return name in self._made

    def close(self) -> None:
        """Give back the view's memory."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    # --------------------------------------------------------------------------------------------------

    def _follow(self, name: str, end: float) -> bool:
        """Take the new rows of a large table until `end`; whether there are any."""
        if name in self._finished:
            return False
        finished = self.run.folder / f"{name}.parquet"
        news = False
        while not finished.exists() and (batches := self._growing[name].read()):
            news = True
            self._add(name, pa.Table.from_batches(batches).unify_dictionaries())
            if time.monotonic() > end:
                self.behind = True
                return True
        if not finished.exists():
            self.run.check_rows()
            return news
        files = self.run.finished([name])
        source = f"{name}_other"
        if name in files and not is_pattern(files[name]):
            source = parquet_of([files[name]])
        elif name in files:
            import pyarrow.dataset as ds  # noqa: PLC0415 - for folders with such names alone

            self._connection.register(source, ds.dataset(files[name], format="parquet"))
        else:  # of another version; or no table, which is an error that says so
            self._make(source, self._read(name))
        self._connection.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {source}")
        self._connection.execute(f"DROP TABLE {name}_grown")
        self._finished.add(name)
        return True

    def _add(self, name: str, table: pa.Table) -> None:
        self._connection.register("arrived", table)
        self._connection.execute(f"INSERT INTO {name}_grown SELECT * FROM arrived")
        self._connection.unregister("arrived")

    def _small(self) -> bool:
        """The tables that are replaced as a whole; whether one was."""
        names = [name for name in TABLES if name not in LARGE]
        stamp = tuple(_changed(self.run.folder / f"{name}.parquet") for name in names)
        if stamp == self._stamp:
            return False
        for name, table in self.run.tables(without=LARGE).items():
            self._make(name, table)
        self._stamp = stamp
        return True

    def _make(self, name: str, table: pa.Table) -> None:
        self._connection.register("arrived", table)
        self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM arrived")
        self._connection.unregister("arrived")

    def _read(self, name: str) -> pa.Table:
        others = tuple(other for other in TABLES if other != name)
        try:
            return self.run.tables(without=others)[name]
        except StorageError as error:
            raise StorageError(f"{error}{self._versions()}") from error

    def _versions(self) -> str:
        """The advice for a run of another version; empty for one of this version."""
        written = self.row.get("d5ray_version")
        try:
            own = version("d5ray")
        except PackageNotFoundError:
            return ""
        if written in (None, own):
            return ""
        return f" (it was written by d5ray {written}, this is {own}: look at it with that version)"


def opened(name: str | Path, root: Path | None = None, seconds: float = math.inf) -> RunView:
    """The view of a run by its name, the beginning of one, its folder, or "last"; see `Run.find`."""
    return RunView(Run.find(name, root), seconds)


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0.0
