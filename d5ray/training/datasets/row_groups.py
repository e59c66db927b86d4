"""The rows of Parquet files by number: whole row groups are read, and the last used ones kept"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from d5ray.checks import check_path
from d5ray.errors import DataError, first_line, nearest

OPEN_FILES = 16


class RowGroups:
    """The row groups of some columns of a file, or of every *.parquet below a folder, ordered by name.

    path: of a local file or folder, or an address that `pyarrow.fs` knows. cache_bytes: of row groups that
    are kept; at least one is. Pickled, it takes paths along, not rows. Several threads may read at a time.
    Raises `DataError` for files that cannot be read or do not have the columns.
    """

    def __init__(self, path: str | Path, columns: tuple[str, ...], cache_bytes: int) -> None:
        self.path = str(path) if "://" in str(path) else str(check_path("path", path).absolute())
        self.columns = columns
        self.cache_bytes = cache_bytes
        self._files: tuple[str, ...] = ()
        self._begin()
        self._files = self._listed()
        sizes: list[tuple[int, int, int, int]] = []  # file, row group in it, rows, bytes
        self.types: tuple[pa.DataType, ...] = ()
        for number, name in enumerate(self._files):
            file = self._file(number)
            self._check_columns(file.schema_arrow, name)
            for group in range(file.num_row_groups):
                facts = file.metadata.row_group(group)
                sizes.append((number, group, facts.num_rows, facts.total_byte_size))
        self.sizes = np.array(sizes, dtype=np.int64).reshape(-1, 4)
        self._ends = np.cumsum(self.sizes[:, 2])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getstate__(self) -> dict[str, Any]:
        own = ("_lock", "_kept", "_open", "_system", "_inner")
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def _begin(self) -> None:
        from pyarrow import fs  # noqa: PLC0415 - loaded when asked for

        self._lock = threading.Lock()
        self._kept: OrderedDict[int, pa.Table] = OrderedDict()
        self._open: OrderedDict[int, Any] = OrderedDict()
        with _reading(self.path):
            remote = "://" in self.path
            found: Any = fs.FileSystem.from_uri(self.path) if remote else (fs.LocalFileSystem(), self.path)
            self._system, self._inner = found

    @property
    def cached_bytes(self) -> int:
        """The bytes of the row groups that are kept now."""
        return sum(table.nbytes for table in self._kept.values())

    def rows(self, indices: npt.NDArray[np.int64]) -> Iterator[tuple[npt.NDArray[np.intp], list[pa.Array]]]:
        """The rows (n,) with these indices, by row group: which of the n they are, and their columns."""
        groups = np.searchsorted(self._ends, indices, side="right")
        for group in np.unique(groups):
            places = np.flatnonzero(groups == group)
            begin = self._ends[group] - self.sizes[group, 2]
            chosen = self._group(int(group)).take(pa.array(indices[places] - begin))
            yield places, [joined(chosen.column(at)) for at in range(chosen.num_columns)]

    def whole(self, column: str) -> pa.Array:
        """A column of all rows; it is not kept."""
        parts = []
        for number in range(len(self._files)):
            with _reading(self._files[number]):
                parts += self._file(number).read(columns=[column]).column(0).chunks
        return joined(pa.chunked_array(parts, self.types[self.columns.index(column)]))

    def _group(self, group: int) -> pa.Table:
        with self._lock:
            if group in self._kept:
                self._kept.move_to_end(group)
                return self._kept[group]
            number, inner = (int(value) for value in self.sizes[group, :2])
            with _reading(self._files[number]):
                table = self._file(number).read_row_group(inner, columns=list(self.columns))
            table = table.select([column.partition(".")[0] for column in self.columns])
            self._kept[group] = table
            while len(self._kept) > 1 and self.cached_bytes > self.cache_bytes:
                self._kept.popitem(last=False)
            return table

    def _file(self, number: int) -> Any:
        from pyarrow import parquet  # noqa: PLC0415 - loaded when asked for

        if number in self._open:
            self._open.move_to_end(number)
            return self._open[number]
        name = self._files[number]
        with _reading(name):
            self._open[number] = file = parquet.ParquetFile(self._system.open_input_file(name))
        if len(self._open) > OPEN_FILES:
            self._open.popitem(last=False)[1].close(force=True)
        return file

    def _listed(self) -> tuple[str, ...]:
        from pyarrow import fs  # noqa: PLC0415 - loaded when asked for

        with _reading(self.path):
            about = self._system.get_file_info(self._inner)
            if about.type == fs.FileType.File:
                return (self._inner,)
            selector = fs.FileSelector(self._inner, recursive=True, allow_not_found=True)
            names = [each.path for each in self._system.get_file_info(selector)]
        found = tuple(sorted(name for name in names if name.endswith(".parquet")))
        if not found:
            raise DataError(
                f"{self.path}: found no Parquet file, expected one, or a folder with files *.parquet: check "
                "the path, and that every node has it"
            )
        return found

    def _check_columns(self, schema: pa.Schema, name: str) -> None:
        for column in self.columns:
            if column.partition(".")[0] not in schema.names:
                raise DataError(f"{name}: found no column {column!r}: {nearest(column, schema.names)}")
        types = tuple(schema.field(column.partition(".")[0]).type for column in self.columns)
        self.types = self.types or types
        for column, found, expected in zip(self.columns, types, self.types, strict=True):
            if found != expected:
                raise DataError(
                    f"{name}: found {found} in the column {column!r}, expected {expected} as in "
                    f"{self._files[0]}: write all files with one schema"
                )


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Raise `DataError` for a file that Arrow cannot read."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{name}: found an unreadable file ({first_line(error)}), expected a complete Parquet file: "
            "check its rights, and that every node has it, or write it again"
        ) from error


def joined(column: pa.ChunkedArray) -> pa.Array:
    """The rows of a column of a table as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
