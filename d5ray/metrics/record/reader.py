"""The reader of a run's folder: while it is written, after a crash, and when it is finished."""

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from d5ray.checks import check_path
from d5ray.errors import FEW, ConfigurationError, StorageError, first_line, nearest, some
from d5ray.metrics.queries.run_queries import Queryable
from d5ray.metrics.queries.source import Limits, QuerySource
from d5ray.metrics.record.files import not_allowed, read_parquet, read_together
from d5ray.metrics.record.folders import runs_root
from d5ray.metrics.record.liveness import row_of
from d5ray.metrics.record.model_state import kept_model
from d5ray.metrics.record.schema import TABLES, check_version, checked, with_later_columns

ROWS_TOGETHER = 1 << 16  # of a run that goes on, in one batch
DESCRIBED: dict[str, type] = {
    "experiment": dict, "fixed": dict, "mutable": dict, "graph": dict, "criteria": list,
}  # fmt: skip


class Run(Queryable):
    """A run, or all runs of a folder as one set of tables with their `run_id`, on disk or elsewhere.

    where: a folder; a run's name, the beginning of one, or "last"; an address: file://, s3://, gs:// and what
    else pyarrow or fsspec opens, or grpc+tcp://HOST:PORT of a server (`d5ray run --flight`), with its token.
    Raises `ConfigurationError` for a name that fits no run (it tells the nearest) or several.
    """

    def __init__(self, where: str | Path, *, token: str | None = None) -> None:
        if "://" not in str(where):
            check_path("where", where)
        from_file = isinstance(where, str) and where.startswith("file://")
        self._where, self._token = where, token
        self._folder: Path | None = None
        if isinstance(where, Path):
            self._folder = check_path("where", where)
        elif from_file:
            self._folder = Path(unquote(urlsplit(where).path))
        elif "://" not in where:
            self._folder = _folder_named(where)
        self.name = str(where) if self._folder is None else self._folder.resolve().name

    def __repr__(self) -> str:
        return f"Run({str(self._where)!r})"

    @property
    def folder(self) -> Path:
        """The folder of the run's tables; raises `ConfigurationError` if that is not on this machine."""
        if self._folder is None:
            raise ConfigurationError(f"{self._where} is not a folder of this machine: ask it with .sql(…)")
        return self._folder

    def _source(self, limits: Limits | None = None) -> QuerySource:
        from d5ray.metrics.queries import locations  # noqa: PLC0415 (loaded by those who ask)

        if self._folder is None:
            return locations.source_at(str(self._where), self._token, limits)
        return locations.source_in(self._folder, limits)

    def _status(self, row: dict[str, Any]) -> str:
        alone = self._folder is not None and _is_run(self._folder)
        return str(self.row["status"] if alone else row["status"])

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
            if str(name) and _is_closed(folder):
                raise not_allowed(folder)
        runs = list_runs(root)
        if str(name) == "last" and runs:
            return runs[0]
        fitting = [run for run in runs if str(name) and run.name.startswith(str(name))]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            names = some([run.name for run in fitting])
            raise ConfigurationError(
                f"Several runs in {root} begin with {str(name)!r}: {names}: write more of it"
            )
        raise ConfigurationError(
            f"There is no run {str(name)!r} in {root}: {nearest(name, [run.name for run in runs], FEW)}"
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
        row = row_of(table)
        _check_described(row, self.folder)
        return row

    def tables(self, without: Iterable[str] = ()) -> dict[str, pa.Table]:
        """All tables by name; of a run that is being written, or died, everything that was stored."""
        here = self._folder is not None and not holds_runs(self._folder)
        return {
            name: self._table(name) if here else self.table(name).arrow
            for name in TABLES
            if name not in without
        }

    def state_dict(self) -> dict[str, Any]:
        """The tensors of the trained model that the run keeps, by the model's own names and in its types.

        Tensors of PyTorch where the run's agents were PyTorch's, otherwise arrays of NumPy. `load_model`
        makes the model itself. Raises `ConfigurationError` where the run keeps none.
        """
        return kept_model(self.folder).state_dict()

    def finished(self, names: Iterable[str]) -> dict[str, Path]:
        """The files of those of these tables that are complete and have exactly their columns."""
        import pyarrow.parquet as pq  # noqa: PLC0415

        files = {name: (self.folder / f"{name}.parquet").resolve() for name in names}
        found = {}
        for name, file in files.items():
            try:
                if file.is_file() and pq.read_schema(file).equals(TABLES[name]):
                    found[name] = file
            except (OSError, pa.ArrowException):
                continue
        return found

    def _table(self, name: str) -> pa.Table:
        schema = TABLES[name]
        finished, growing = self.folder / f"{name}.parquet", self.folder / f"{name}.arrows"
        for _ in range(2):  # the run may be closed between the two looks
            try:
                table = with_later_columns(name, read_parquet(finished))
                if name == "runs":
                    check_version(table, self.folder)
                return checked(table, schema)
            except FileNotFoundError:
                pass
            except pa.ArrowException as error:
                raise StorageError(f"{finished} does not fit the table {name!r}: {error}") from error
            try:
                batches = read_together(growing, schema, ROWS_TOGETHER)
                return pa.Table.from_batches(batches, schema).unify_dictionaries()
            except FileNotFoundError:
                continue
        if name == "samples":
            self.check_rows()
        return schema.empty_table()

    def check_rows(self) -> None:
        """Raise `StorageError` where the run has recorded rows, and their file is gone."""
        rows = sum(n or 0 for n in self._table("runs")["rows"].to_pylist())
        if rows and not any((self.folder / f"samples.{end}").exists() for end in ("parquet", "arrows")):
            raise StorageError(
                f"{self.folder / 'samples.parquet'} is not there, and {rows:,} rows were recorded in it: "
                "copy it from where the run was made"
            )


def list_runs(root: Path | None = None) -> list[Run]:
    """The runs in `root` (by default `runs_root()`), the newest first; what cannot be read is passed over."""
    return looked_for(root)[0]


def looked_for(root: Path | None = None) -> tuple[list[Run], list[str]]:
    """The runs in `root` (by default `runs_root()`), the newest first; why others cannot be read."""
    root = runs_root() if root is None else root
    dated, unread = [], []
    try:
        folders = sorted(root.iterdir()) if root.is_dir() else []
    except PermissionError as error:
        raise not_allowed(root) from error
    for folder in folders:
        if _is_closed(folder):
            unread.append(str(not_allowed(folder)))
        elif _is_run(folder):
            try:
                started = Run(folder).row["started"] or datetime.min.replace(tzinfo=UTC)
                dated.append((started, folder.name, folder))
            except StorageError as error:
                unread.append(str(error))
    return [Run(folder) for _, _, folder in sorted(dated, reverse=True)], unread


def holds_runs(folder: Path) -> bool:
    """True if the folder is no run itself, but has runs in it; `AccessError` where nobody may look."""
    try:
        if _is_run(folder) or not folder.is_dir():
            return False
        return any(_is_run(inner) for inner in folder.iterdir())
    except PermissionError as error:
        raise not_allowed(folder) from error
    except (OSError, ValueError):  # a name that is too long, or has a zero in it
        return False


def _folder_named(name: str) -> Path:
    """The folder of the run with this name or beginning, or one with runs in it."""
    if name and holds_runs(Path(name)):
        return Path(name)
    return Run.find(name).folder


def _is_run(folder: Path) -> bool:
    try:
        return (folder / "runs.parquet").is_file()
    except (OSError, ValueError):  # a name that is too long, or has a zero in it
        return False


def _is_closed(folder: Path) -> bool:
    """True if the folder does not let this user know what is in it."""
    try:
        return folder.is_dir() and not os.access(folder, os.X_OK)
    except (OSError, ValueError):
        return False


def _check_described(row: dict[str, Any], folder: Path) -> None:
    """Raise `StorageError` unless the columns that are JSON hold what they must."""
    for column, kind in DESCRIBED.items():
        try:
            found = json.loads(row[column] or "null")
        except (ValueError, RecursionError) as error:
            raise StorageError(
                f"{folder}: the column {column!r} of runs.parquet is not JSON ({first_line(error)}): d5ray"
                " did not write it so"
            ) from None
        if found is not None and not isinstance(found, kind):
            raise StorageError(
                f"{folder}: the column {column!r} of runs.parquet is {row[column][:40]!r}: it must be a "
                f"{kind.__name__} in JSON"
            )
