"""Samples in Parquet files, one a row; read when they are asked for"""

import hashlib
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count, check_names
from d5ray.errors import ConfigurationError, DataError
from d5ray.training.datasets.image_files import numbers_shape
from d5ray.training.datasets.row_groups import RowGroups
from d5ray.training.datasets.samples import Array, Classified, Labels, Shape
from d5ray.training.datasets.table_columns import content_of, labels_of, rows_of

CACHE_BYTES = 1 << 28


@final
class Parquet(Classified):
    """The rows of a Parquet file, or of all in a folder in the order of their names; a row is a sample.

    Whole row groups are read, and the last used ones kept. Where the data is larger than `cache_bytes`, take
    `BlockShuffleSampler(block=rows of a group, window=groups that fit)`: a shuffle of all rows would read a
    group for nearly every sample.

    Args:
        path: a file, a folder, or an address that `pyarrow.fs` knows, such as s3://…; agents get the path.
        inputs: the column of numbers, of lists of them of equal length, nested to any depth, of encoded
            images, or of raw bytes; or the names of several columns of numbers, together a sample (columns,).
            Fractions become float32, integers int64; bytes, and lists of uint8, float32 in 0..1.
        labels: the column of integers, of lists of them of equal length, or of texts.
        shape: of one sample, where the column does not say it, such as (C, H, W) of raw bytes or flat lists.
        size: of encoded images, scaled and cut to that: pixels, or (height, width); channels: 3, or 1.
        classes: the names of the classes, a text's label being its place in them; None: the texts, sorted, or
            '0', '1', … where labels are numbers.
        cache_bytes: of the row groups that an agent keeps, as Arrow has them; at least one is.

    Raises:
        ConfigurationError: the options do not fit the columns.
        DataError: no such file or column, or no rows; later, a row that cannot be read, with its number.
    """

    def __init__(
        self,
        path: str | Path,
        inputs: str | tuple[str, ...] = "inputs",
        labels: str = "label",
        *,
        shape: Shape | None = None,
        size: int | tuple[int, int] | None = None,
        channels: int = 3,
        classes: tuple[str, ...] | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        check_count("cache_bytes", cache_bytes)
        wanted = "the name of a column, or a tuple of names"
        names = (inputs,) if isinstance(inputs, str) else check_names("inputs", inputs, wanted)
        shape = numbers_shape(shape)
        if not names or not all(isinstance(name, str) for name in (*names, labels)):
            raise ConfigurationError(
                f"inputs is {inputs!r} and labels is {labels!r}: they must be names of columns"
            )
        self._groups = RowGroups(path, names, cache_bytes)
        if not len(self._groups):
            raise DataError(f"{self._groups.path}: found no rows, expected at least one sample: add some")
        (_, first), *_ = self._groups.rows(np.zeros(1, np.int64))
        self._content = content_of(names, first, shape, size, channels)
        self.sample_shape = self._content.shape
        found = RowGroups(path, (labels,), 1).whole(labels)
        try:
            self._labels, self.classes = labels_of(
                found,
                None if classes is None else check_names("classes", classes, "a tuple of the classes' names"),
            )
        except ValueError as error:
            raise DataError(f"{self._groups.path}, column {labels!r}: {error}") from error

    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Array, Labels]:
        inputs = np.empty((len(indices), *self.sample_shape), self._content.dtype)
        for places, columns in self._groups.rows(indices):
            inputs[places] = rows_of(self._content, columns, self._groups.path, indices[places])
        return inputs, self._labels[indices]

    def add_to(self, digest: "hashlib._Hash", part: str) -> None:
        """Columns, row groups with their rows and bytes, and the labels; not what the inputs hold."""
        groups = self._groups
        digest.update(f"{part} rows {groups.columns} {self._content} {groups.types}\n".encode())
        for numbers in (groups.sizes, self._labels):
            digest.update(np.ascontiguousarray(numbers, dtype="<i8").tobytes())
