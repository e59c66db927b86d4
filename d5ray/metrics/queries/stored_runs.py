"""The tables of a run, or of all runs in a folder, on any file system that pyarrow knows"""

from pathlib import Path, PurePosixPath
from typing import Any, final

import pyarrow as pa
from pyarrow import fs

from d5ray.errors import StorageError, first_line
from d5ray.metrics.queries.source import Shelf, StoredRows
from d5ray.metrics.queries.sql import is_pattern
from d5ray.metrics.record.files import check_plain, read_parquet_of
from d5ray.metrics.record.liveness import with_status
from d5ray.metrics.record.schema import TABLES, check_version, checked, with_later_columns
from d5ray.metrics.views.growing_streams import Growing

LARGE = ("samples", "events")  # read from their files, as far as a query needs them
ENDINGS = ("parquet", "arrows")
_OURS = frozenset(f"{name}.{ending}" for name in TABLES for ending in ENDINGS)
_SERIES = "series.parquet"  # a folder with it is no run

Found = dict[str, Any]  # from the name of a file to its FileInfo


@final
class StoredRuns(Shelf):
    """The runs in the folder `base` of a file system. local: DuckDB may read its files itself."""

    def __init__(self, files: fs.FileSystem, base: str, shown: str, *, local: bool) -> None:
        self._system, self._base, self._shown, self._local = files, base.rstrip("/") or "/", shown, local
        self._runs: dict[str, _StoredRun] = {}
        self._joined: dict[str, tuple[tuple[StoredRows, ...], StoredRows]] = {}
        self._notes: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(file for run in self._runs.values() for file in run.files) if self._local else ()

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self._notes, *(note for run in self._runs.values() for note in run.notes))

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of the runs."""
        return tuple(self._runs)

    def look(self) -> None:
        found = self._found()
        own = found.pop(self._base, {})
        alone = bool(own)
        if alone:
            found = {self._base: own}
        notes, runs = [], {}
        for folder, files in found.items():
            run = self._runs.get(folder) or _StoredRun(self._system, folder, self._local)
            try:
                run.look(files)
            except StorageError as error:
                if alone:
                    raise
                notes.append(f"{error}; it is left out")
                continue
            runs[folder] = run
        if not runs and not notes:
            raise StorageError(f"{self._shown} is no run, and no folder of runs: it has no runs.parquet")
        self._runs, self._notes = runs, tuple(notes)

    def rows(self, table: str) -> StoredRows:
        parts, failed = [], []
        for run in self._runs.values():
            try:
                parts.append(run.rows(table))
            except StorageError as error:
                if len(self._runs) == 1:
                    raise
                failed.append(f"{error}; it is left out")
        self._notes = tuple(dict.fromkeys((*self._notes, *failed)))
        if len(parts) == 1:
            return parts[0]
        before, joined = self._joined.get(table, ((), StoredRows()))
        if len(before) != len(parts) or not all(a is b for a, b in zip(before, parts, strict=True)):
            joined = _joined(table, parts)
            self._joined[table] = (tuple(parts), joined)
        return joined

    def _found(self) -> dict[str, Found]:
        """The tables' files by folder: those of the base itself, and those of the folders in it."""
        try:
            if not self._local:
                entries = self._system.get_file_info(fs.FileSelector(self._base, recursive=True))
            else:
                entries = self._system.get_file_info(fs.FileSelector(self._base))
                for entry in list(entries):
                    if entry.type == fs.FileType.Directory:
                        entries += self._system.get_file_info(fs.FileSelector(entry.path))
        except FileNotFoundError as error:
            raise StorageError(f"{self._shown} is not there: no run can be read from it") from error
        except OSError as error:
            raise StorageError(f"{self._shown} cannot be read: {error}") from error
        by_folder: dict[str, Found] = {}
        for entry in entries:
            path = PurePosixPath(entry.path)
            if path.name in _OURS or (path.name == _SERIES and entry.type == fs.FileType.File):
                by_folder.setdefault(str(path.parent), {})[path.name] = entry
        depth = len(PurePosixPath(self._base).parts) + 1
        return {
            folder: files
            for folder, files in sorted(by_folder.items())
            if _SERIES not in files and len(PurePosixPath(folder).parts) <= depth
        }


@final
class _StoredRun:
    """One run; what was read of its files is kept until they change."""

    def __init__(self, files: fs.FileSystem, folder: str, local: bool) -> None:
        self._system, self._folder, self._local = files, folder, local
        self._there: Found = {}
        self._kept: dict[str, tuple[Any, StoredRows]] = {}
        self._growing: dict[str, _Stream] = {}
        self._unread: dict[str, str] = {}

    @property
    def files(self) -> list[str]:
        return [self._path(f"{name}.parquet") for name in LARGE if f"{name}.parquet" in self._there]

    @property
    def notes(self) -> list[str]:
        found = list(self._unread.values())
        for name in ("runs", *LARGE):
            if not {f"{name}.parquet", f"{name}.arrows"} & self._there.keys():
                found.append(f"{self._folder} has no {name}.parquet: it is only partly there")
        found += [note for stream in self._growing.values() if (note := stream.note)]
        return found

    def look(self, files: Found) -> None:
        for name, info in files.items():
            if info.type != fs.FileType.File:
                raise StorageError(f"{self._path(name)} is not a file: it must be a table that d5ray wrote")
        self._there = files
        if "runs.parquet" in files:
            try:
                check_version(self.rows("runs").held, self._folder)
            except _Unreadable as error:
                self._unread["runs"] = str(error)

    def rows(self, table: str) -> StoredRows:
        finished, growing = f"{table}.parquet", f"{table}.arrows"
        if finished in self._there:
            try:
                found = self._remembered(finished, table)
                return self._with_liveness(found) if table == "runs" else found
            except _Unreadable as error:
                self._unread[table] = str(error)
                if growing not in self._there:
                    raise
        if growing in self._there:
            stream = self._growing.setdefault(table, _Stream(self._system, self._path(growing), table))
            return stream.rows(self._there[growing].size, over=finished in self._there or not self._runs_on())
        return self._remembered("", table)

    def _remembered(self, file: str, table: str) -> StoredRows:
        info = self._there.get(file)
        seen = None if info is None else (info.size, info.mtime_ns)
        kept = self._kept.get(table)
        if kept is None or kept[0] != seen:
            kept = self._kept[table] = (seen, self._read(file, table) if file else StoredRows())
        return kept[1]

    def _with_liveness(self, found: StoredRows) -> StoredRows:
        """The run's row, which says "running" no more when the run's driver is gone from this host."""
        if not self._local or (held := with_status(found.held)) is found.held:
            return found
        self._kept["runs"] = self._kept["runs"][0], StoredRows(held=held)
        return self._kept["runs"][1]

    def _read(self, file: str, table: str) -> StoredRows:
        import pyarrow.dataset as ds  # noqa: PLC0415 (loaded by those who ask)
        import pyarrow.parquet as pq  # noqa: PLC0415

        path = self._path(file)
        if self._local:
            check_plain(Path(path))
        try:
            if table in LARGE:
                with self._system.open_input_file(path) as opened:
                    same = pq.read_schema(opened).equals(TABLES[table])
                if same and self._local and not is_pattern(path):
                    return StoredRows(files=(path,))
                if same:
                    return StoredRows(held=ds.dataset(path, filesystem=self._system, format="parquet"))
            with self._system.open_input_file(path) as opened:
                return StoredRows(
                    held=checked(with_later_columns(table, read_parquet_of(opened)), TABLES[table])
                )
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            why = first_line(error)
            raise _Unreadable(f"{path} cannot be read ({why}): the table {table!r} is missing") from error

    def _runs_on(self) -> bool:
        held = self._kept.get("runs", (None, StoredRows()))[1].held
        return held is not None and held.num_rows == 1 and held["status"][0].as_py() == "running"

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"


@final
class _Stream:
    """All complete batches of a stream that is being written, or was, as one table; each is read once."""

    def __init__(self, files: fs.FileSystem, path: str, table: str) -> None:
        self._system, self._path, self._table = files, path, table
        self.note = ""
        self._begin()

    def _begin(self) -> None:
        self._growing = Growing(self._path, TABLES[self._table], self._system)
        self._size = 0
        self._rows = StoredRows(held=TABLES[self._table].empty_table())

    def rows(self, size: int, *, over: bool) -> StoredRows:
        """The rows of the first `size` bytes of the file. over: nobody writes it any more."""
        if size < self._growing.offset:  # another run that is called the same
            self._begin()
        if size != self._size:
            parts = [self._rows.held]
            while batches := self._growing.read():
                parts.append(pa.Table.from_batches(batches))
            if len(parts) > 1:
                self._rows = StoredRows(held=pa.concat_tables(parts).unify_dictionaries())
            self._size = size
        cut = size - self._growing.offset
        text = f"{self._path}: the last {cut} bytes are incomplete and left out"
        self.note = text if over and cut > 0 else ""
        return self._rows


class _Unreadable(StorageError):
    """A file that is not what it should be."""


def _joined(table: str, parts: list[StoredRows]) -> StoredRows:
    import pyarrow.dataset as ds  # noqa: PLC0415

    files = tuple(file for part in parts for file in part.files)
    tables = [part.held for part in parts if isinstance(part.held, pa.Table)]
    datasets = [part.held for part in parts if isinstance(part.held, ds.Dataset)]
    whole = pa.concat_tables([TABLES[table].empty_table(), *tables]).unify_dictionaries()
    if table == "metrics":  # nearly the same in every run
        whole = whole.group_by(whole.column_names).aggregate([]).sort_by("name")
    if datasets:
        return StoredRows(
            files, ds.dataset([*datasets, ds.dataset(whole)]) if whole.num_rows else ds.dataset(datasets)
        )
    return StoredRows(files, whole if whole.num_rows or not files else None)
