"""A data set of tables in memory, of pandas, Arrow or the like: a row is a sample"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from d5ray.checks import check_names, shown
from d5ray.errors import ConfigurationError, DataError, first_line, nearest
from d5ray.training.datasets.arrays import from_arrays
from d5ray.training.datasets.dataset import Dataset, class_names
from d5ray.training.datasets.image_files import numbers_shape
from d5ray.training.datasets.numbers import PIXELS
from d5ray.training.datasets.row_groups import joined
from d5ray.training.datasets.samples import Array, Shape
from d5ray.training.datasets.table_columns import Content, Numbers, RawBytes, content_of, labels_of, rows_of


def from_table(
    train: Any,
    *,
    inputs: str | Iterable[str] | None = None,
    labels: str = "label",
    validation: Any = None,
    test: Any = None,
    classes: Iterable[str] | int | None = None,
    shape: Shape | None = None,
    size: int | tuple[int, int] | None = None,
    channels: int = 3,
    name: str = "table",
    split_seed: int = 500,
) -> Dataset:
    """A data set of a table: a pandas `DataFrame`, an Arrow `Table`, or whatever has `to_arrow`.

    Its rows become arrays in memory, as the rows of a `Parquet` file do; pixels stay bytes.

    Args:
        train: the table to train on.
        inputs: the column of numbers, of lists of them of equal length, nested to any depth, of encoded
            images, or of raw bytes; or several columns of numbers; None: all beside the labels.
        labels: the column of integers, of lists of them, of texts, which are numbered in their order, or of
            floating numbers, which are targets and no classes.
        validation, test: further tables, or a share of the rows, drawn by `split_seed`.
        classes: their names, or their number; None: the texts, sorted, or as many as the labels say.
        shape: of one sample, where the column does not say it. size, channels: of encoded images.
        name: of the data set, for people.

    Raises:
        ConfigurationError: the options do not fit the columns.
        DataError: no such column, or a row that is missing or of another shape, with its number.
    """
    names = None if classes is None else class_names(classes)
    table = _table("train", train)
    columns = _columns(table, inputs, labels)
    shape = numbers_shape(shape)
    content: Content | None = None
    pairs: dict[str, Any] = {}
    for part, each in (("train", train), ("validation", validation), ("test", test)):
        if each is None or isinstance(each, (int, float)):
            pairs[part] = each
            continue
        found = table if part == "train" else _table(part, each)
        for column in (*columns, labels):
            if column not in found.column_names:
                raise DataError(f"{part}: found no column {column!r}: {nearest(column, found.column_names)}")
        rows = [joined(found.column(column)) for column in columns]
        if content is None:
            if not len(found):
                raise DataError("train: found no rows, expected at least one sample: add some")
            content = _kept_as_bytes(content_of(columns, [row[:1] for row in rows], shape, size, channels))
        y, names = _labels(part, labels, joined(found.column(labels)), names)
        which = f"column {columns[0]!r}" if len(columns) == 1 else f"columns {', '.join(columns)}"
        pairs[part] = rows_of(content, rows, f"{part}, {which}", range(len(found))), y
    x, y = pairs.pop("train")
    return from_arrays(x, y, **pairs, classes=names, name=name, split_seed=split_seed)


def _table(part: str, given: Any) -> pa.Table:
    try:
        if isinstance(given, pa.Table):
            return given
        if isinstance(given, pa.RecordBatch):
            return pa.Table.from_batches([given])
        if hasattr(given, "to_arrow"):
            return given.to_arrow()
        if type(given).__module__.partition(".")[0] == "pandas" and hasattr(given, "columns"):
            return pa.Table.from_pandas(given, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{part}: found a table that Arrow does not take ({first_line(error)})") from error
    raise ConfigurationError(
        f"{part} is {shown(given)}: it must be a pandas DataFrame or an Arrow Table, or for test and "
        "validation a share of the rows, such as 0.2"
    )


def _columns(table: pa.Table, inputs: str | Iterable[str] | None, labels: object) -> tuple[str, ...]:
    if not isinstance(labels, str):
        raise ConfigurationError(f"labels is {shown(labels)}: it must be the name of a column")
    if inputs is None:
        names = tuple(column for column in table.column_names if column != labels)
    elif isinstance(inputs, str):
        names = (inputs,)
    else:
        names = check_names("inputs", inputs, "the name of a column, or a tuple of names")
    if not names:
        raise ConfigurationError(f"inputs is {shown(inputs)}: it must name a column beside {labels!r}")
    return names


def _kept_as_bytes(content: Content) -> Content:
    if isinstance(content, Numbers) and content.pixels:
        return replace(content, dtype=PIXELS, pixels=False)
    return replace(content, dtype=PIXELS) if isinstance(content, RawBytes) else content


def _labels(
    part: str, name: str, column: pa.Array, names: tuple[str, ...] | None
) -> tuple[Array, tuple[str, ...] | None]:
    kind = column.type
    where = f"{part}, column {name!r}"
    if column.null_count:
        missing = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise DataError(
            f"{where}, row {missing}: found no label, expected one: fill it, or leave the row out"
        )
    try:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
            return labels_of(column, names)
        content = content_of((name,), [column[:1]], None, None, 3)
        return content.array([column]), names
    except (ValueError, DataError, ConfigurationError) as error:
        raise DataError(f"{where}: {first_line(error)}") from error
