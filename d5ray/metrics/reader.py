"""The reader of a run's folder: while it is written, after a crash, and when it is finished."""

import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from d5ray.errors import ConfigurationError, StorageError, nearest
from d5ray.metrics.files import read_parquet, read_stream
from d5ray.metrics.folders import runs_root
from d5ray.metrics.schema import TABLES, checked

_LONGEST_CLOCK_STEP = 60.0  # s; a process younger than that after its run began may still be the run's driver

LATER = {"runs": ("series", "criteria", "graph")}  # columns that came after the first release


class Run:
    """A run on disk. `folder` holds its tables, `name` is its run_id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.resolve().name

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @classmethod
    def find(cls, name: str | Path, root: Path | None = None) -> "Run":
        """The run called `name`, or whose name begins so, or in the folder `name`, or the "last" one.

        root: the folder with the runs, by default `runs_root()`. Raises ConfigurationError for an unknown
        name (it tells the nearest one) and for a beginning that several runs share (it tells them).
        """
        root = runs_root() if root is None else root
        for folder in (root / name, Path(name)):
            if str(name) and _is_run(folder):
                return cls(folder)
        runs = list_runs(root)
        if str(name) == "last" and runs:
            return runs[0]
        fitting = [run for run in runs if str(name) and run.name.startswith(str(name))]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            names = ", ".join(sorted(run.name for run in fitting))
            raise ConfigurationError(
                f"Several runs in {root} begin with {str(name)!r}: {names}: write more of it"
            )
        raise ConfigurationError(
            f"There is no run {str(name)!r} in {root}: {nearest(name, [run.name for run in runs])}"
        )

    @property
    def row(self) -> dict[str, Any]:
        """The run's row of `runs`, times as datetime in UTC.

        The status is "died" where the row still says "running" and its driver is gone from this host.
        """
        table = self._table("runs")
        if table.num_rows != 1:
            raise StorageError(
                f"{self.folder} is not a run: runs.parquet has {table.num_rows} rows instead of 1"
            )
        # as datetime has no nanoseconds
        for name in ("started", "ended"):
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, table[name].cast(pa.timestamp("us", "UTC"), safe=False))
        row: dict[str, Any] = table.to_pylist()[0]
        return alive(row)

    def tables(self, without: Iterable[str] = ()) -> dict[str, pa.Table]:
        """All tables by name; of a run that is being written, or died, everything that was stored."""
        return {name: self._table(name) for name in TABLES if name not in without}

    def finished(self, names: Iterable[str]) -> dict[str, Path]:
        """The files of those of these tables that are complete and have exactly their columns."""
        import pyarrow.parquet as pq  # noqa: PLC0415

        files = {name: (self.folder / f"{name}.parquet").resolve() for name in names}
        found = {}
        for name, file in files.items():
            try:
                if pq.read_schema(file).equals(TABLES[name]):
                    found[name] = file
            except (FileNotFoundError, pa.ArrowInvalid):
                continue
        return found

    def _table(self, name: str) -> pa.Table:
        schema = TABLES[name]
        finished, growing = self.folder / f"{name}.parquet", self.folder / f"{name}.arrows"
        for _ in range(2):  # the run may be closed between the two looks
            try:
                return checked(_with_later_columns(name, read_parquet(finished)), schema)
            except FileNotFoundError:
                pass
            except pa.ArrowException as error:
                raise StorageError(f"{finished} does not fit the table {name!r}: {error}") from error
            try:
                batches = [batch for batch, _ in read_stream(growing)]
                return pa.Table.from_batches(batches, schema).unify_dictionaries()
            except FileNotFoundError:
                continue
        return schema.empty_table()


def list_runs(root: Path | None = None) -> list[Run]:
    """The runs in `root` (by default `runs_root()`), the newest first; other folders are passed over."""
    root = runs_root() if root is None else root
    if not root.is_dir():
        return []
    dated = []
    for folder in root.iterdir():
        if _is_run(folder):
            try:
                started = Run(folder).row["started"] or datetime.min.replace(tzinfo=UTC)
            except StorageError:
                continue
            dated.append((started, folder.name, folder))
    return [Run(folder) for _, _, folder in sorted(dated, reverse=True)]


def _with_later_columns(name: str, table: pa.Table) -> pa.Table:
    """Runs that were kept before a column existed have nulls there."""
    for column in LATER.get(name, ()):
        if column not in table.column_names:
            kind = TABLES[name].field(column).type
            table = table.append_column(column, pa.nulls(table.num_rows, kind))
    return table


def _is_run(folder: Path) -> bool:
    return (folder / "runs.parquet").is_file()


def alive(row: dict[str, Any]) -> dict[str, Any]:
    """The row; its status is "died" where it still says "running" and its driver is gone from this host."""
    if row["status"] == "running" and row["host"] == platform.node() and _is_gone(row):
        row["status"] = "died"
    return row


def _is_gone(row: dict[str, Any]) -> bool:
    """Whether the driver that the row names has ended; its number may belong to a younger process now."""
    import psutil  # noqa: PLC0415 (agents that only record never need it)

    if row["driver_pid"] is None:
        return False
    try:
        process = psutil.Process(row["driver_pid"])
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        started = row["started"]
        return started is not None and process.create_time() > started.timestamp() + _LONGEST_CLOCK_STEP
    except psutil.NoSuchProcess:
        return True
