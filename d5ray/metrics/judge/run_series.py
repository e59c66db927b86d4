"""A series: runs of one recipe that are judged together, such as one for each of several seeds

It is a folder of its own, `<D5RAY_HOME>/series/<name>/`: a row that lists its runs, and the joint verdicts.
Every run names its series in its own row.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, final

import pyarrow as pa
import pyarrow.compute as pc

from d5ray.checks import check_path
from d5ray.errors import ConfigurationError, StorageError, some
from d5ray.metrics.queries.run_queries import Queryable
from d5ray.metrics.queries.source import Limits, QuerySource, Shelf, StoredRows
from d5ray.metrics.record.files import read_parquet, storing, write_parquet
from d5ray.metrics.record.folders import home, make_folder
from d5ray.metrics.record.liveness import row_of
from d5ray.metrics.record.reader import Run, list_runs
from d5ray.metrics.record.schema import INSTANT, TABLES, VERDICTS, checked

COUNTED = ("completed", "nan_loss")  # the status of runs that are judged
TUNING = "tuning"  # the purpose of a search, whose runs are not judged together
SERIES = pa.schema(
    [
        pa.field("series_id", pa.utf8(), nullable=False),
        pa.field("purpose", pa.utf8(), nullable=False),  # seeds, determinism, tuning
        pa.field("recipe", pa.utf8()),
        pa.field("recipe_hash", pa.utf8()),
        pa.field("runs", pa.list_(pa.utf8())),  # their names, in the order in which they were made
        pa.field("seeds", pa.list_(pa.int64())),  # that were asked for
        pa.field("status", pa.utf8(), nullable=False),  # running, completed, nan_loss, interrupted, failed
        pa.field("stop_reason", pa.utf8()),
        pa.field("verdict", pa.utf8()),
        pa.field("detail", pa.utf8()),  # JSON, by purpose
        pa.field("started", INSTANT),
        pa.field("ended", INSTANT),
        pa.field("host", pa.utf8()),
        pa.field("driver_pid", pa.int64()),
    ]
)


class RunSeries(Queryable):
    """A series on disk. It is asked like a run: the rows are those of `tables`."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = folder = check_path("folder", folder)
        self.name = folder.resolve().name

    def __repr__(self) -> str:
        return f"RunSeries({str(self.folder)!r})"

    def _source(self, limits: Limits | None = None) -> QuerySource:
        from d5ray.metrics.queries.database import Database  # noqa: PLC0415 (loaded by those who ask)

        return Database(_Joined(self), limits)

    @classmethod
    def is_one(cls, folder: Path) -> bool:
        """True if a series is kept in this folder."""
        try:
            return (folder / "series.parquet").is_file()
        except (OSError, ValueError):  # a name that is too long, or has a zero in it
            return False

    @property
    def row(self) -> dict[str, Any]:
        """The row of the series, times as datetime in UTC; raises `StorageError`."""
        file = self.folder / "series.parquet"
        try:
            table = checked(read_parquet(file), SERIES)
        except FileNotFoundError:
            raise StorageError(f"{self.folder} is no series: it has no series.parquet") from None
        except pa.ArrowException as error:
            raise StorageError(f"{file} does not fit a series: {error}") from error
        if table.num_rows != 1:
            raise StorageError(f"{file} has {table.num_rows} rows instead of 1")
        return row_of(table)

    @property
    def runs_root(self) -> Path:
        """The folder with the series' runs."""
        return self.folder.resolve().parent.parent / "runs"

    @property
    def runs(self) -> list[Run]:
        """The runs that are there, in the order in which they were made."""
        folders = [self.runs_root / name for name in self.row["runs"] or ()]
        return [Run(folder) for folder in folders if (folder / "runs.parquet").is_file()]

    @property
    def verdicts(self) -> pa.Table:
        """The joint verdicts of the series."""
        try:
            return checked(read_parquet(self.folder / "verdicts.parquet"), VERDICTS)
        except FileNotFoundError:
            return VERDICTS.empty_table()

    def counted(self) -> list[Run]:
        """The runs that came to an end, and so are judged."""
        return [run for run in self.runs if run.row["status"] in COUNTED]

    def tables(self) -> dict[str, pa.Table]:
        """The tables of all runs that are judged, one below the other, and with the joint verdicts.

        `rep` counts on from run to run, so that pairs of processes of different runs stay apart.
        """
        tables = joined([run.tables() for run in self.counted()])
        return tables | {"verdicts": pa.concat_tables([tables["verdicts"], self.verdicts])}

    def write(self, columns: Mapping[str, Any], verdicts: pa.Table | None = None) -> None:
        """Replace the series' row, and the joint verdicts if they are given; raises `StorageError`."""
        with storing(self.folder):
            make_folder(self.folder)
        row = pa.Table.from_pylist([{"series_id": self.name, **columns}], schema=SERIES)
        write_parquet(self.folder / "series.parquet", SERIES, [row])
        if verdicts is not None:
            write_parquet(self.folder / "verdicts.parquet", VERDICTS, [verdicts])


@final
class _Joined(Shelf):
    """The joined tables of a series, read again when there are other runs."""

    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __init__(self, series: RunSeries) -> None:
        self._series = series
        self._seen: object = None
        self._rows: dict[str, StoredRows] = {}

    def look(self) -> None:
        row = self._series.row
        seen = [row["runs"], row["status"], [run.name for run in self._series.counted()]]
        if seen != self._seen:
            self._rows = {name: StoredRows(held=table) for name, table in self._series.tables().items()}
            self._seen = seen

    def rows(self, table: str) -> StoredRows:
        return self._rows[table]


def joined(runs: Iterable[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """The tables of several runs, one below the other; `rep` counts on from run to run."""
    parts: dict[str, list[pa.Table]] = {name: [schema.empty_table()] for name, schema in TABLES.items()}
    first = 0
    for tables in runs:
        for name, table in tables.items():
            parts[name].append(table)
        samples = parts["samples"][-1]
        if samples.num_rows:
            place = samples.schema.get_field_index("rep")
            reps = pc.add(samples["rep"], pa.scalar(first, pa.int32()))
            parts["samples"][-1] = samples.set_column(place, samples.schema.field(place), reps)
            first = pc.max(reps).as_py() + 1
    parts["metrics"] = parts["metrics"][:2]  # the same in every run of a recipe
    return {name: pa.concat_tables(tables).unify_dictionaries() for name, tables in parts.items()}


def series_root() -> Path:
    """The folder with one folder per series."""
    return home() / "series"


def list_series(root: Path | None = None) -> list[RunSeries]:
    """The series in `root` (by default `series_root()`), the newest first."""
    root = series_root() if root is None else root
    if not root.is_dir():
        return []
    found = [RunSeries(folder) for folder in root.iterdir() if RunSeries.is_one(folder)]
    return sorted(found, key=lambda series: str(series.row["started"]), reverse=True)


def find(name: str | Path) -> Run | RunSeries:
    """The run or the series with this name, or whose name begins so, or in this folder.

    Raises `ConfigurationError` for a name that fits none, or several.
    """
    for folder in (series_root() / name, Path(name)):
        if str(name) and RunSeries.is_one(folder):
            return RunSeries(folder)
    begins = [series for series in list_series() if str(name) and series.name.startswith(str(name))]
    if not begins or any(run.name.startswith(str(name)) for run in list_runs()):
        return Run.find(name)
    if len(begins) > 1:
        names = some([series.name for series in begins])
        raise ConfigurationError(f"Several series begin with {str(name)!r}: {names}: write more of it")
    return begins[0]


def runs_of(found: Run | RunSeries) -> list[Run]:
    """The run itself, or those of a series that came to an end."""
    return [found] if isinstance(found, Run) else found.counted()
