"""Columns of a table as samples: their contents, and the arrays that they become"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pyarrow as pa

from d5ray.errors import ConfigurationError, DataError, first_line
from d5ray.training.datasets.image_files import decoded, image_shape
from d5ray.training.datasets.numbers import PIXELS
from d5ray.training.datasets.samples import Array, Shape

FLOAT32 = np.dtype(np.float32)


class Content(ABC):
    """A conversion of rows to one array (n, *shape) of float32 or int64. Wrong ones raise `ValueError`."""

    shape: Shape
    dtype: np.dtype[Any]

    @abstractmethod
    def array(self, columns: list[pa.Array]) -> Array:
        """The rows (n, *shape) of these columns, each of n."""


@final
@dataclass(frozen=True)
class Numbers(Content):
    """One column of numbers, or of lists of them; uint8 in lists is scaled to 0..1 where `pixels` is set."""

    shape: Shape
    dtype: np.dtype[Any]
    pixels: bool

    def array(self, columns: list[pa.Array]) -> Array:
        values = columns[0]
        rows = len(values)
        while _is_list(values.type):
            _refuse_missing(values)
            values = values.flatten()
        _refuse_missing(values)
        expected = int(np.prod(self.shape))
        if len(values) != rows * expected:
            raise ValueError(f"found {len(values) / rows:g} numbers a row, expected {expected}, {self.shape}")
        found: Array = values.to_numpy(zero_copy_only=False).astype(self.dtype).reshape(rows, *self.shape)
        return found / np.float32(255) if self.pixels else found


@final
@dataclass(frozen=True)
class Several(Content):
    """Columns of numbers side by side: (n, columns)."""

    shape: Shape
    dtype: np.dtype[Any]

    def array(self, columns: list[pa.Array]) -> Array:
        for column in columns:
            _refuse_missing(column)
        return np.stack([c.to_numpy(zero_copy_only=False).astype(self.dtype) for c in columns], axis=1)


@final
@dataclass(frozen=True)
class RawBytes(Content):
    """Bytes that are the numbers 0..255 of a sample, scaled to 0..1 unless they stay uint8."""

    shape: Shape
    dtype: np.dtype[Any] = FLOAT32

    def array(self, columns: list[pa.Array]) -> Array:
        expected = int(np.prod(self.shape))
        values = [_bytes(value) for value in columns[0]]
        for value in values:
            if len(value) != expected:
                raise ValueError(f"found {len(value)} bytes, expected {expected}, {self.shape}")
        found = np.frombuffer(b"".join(values), np.uint8).reshape(len(values), *self.shape)
        return found.copy() if self.dtype == PIXELS else found.astype(np.float32) / np.float32(255)


@final
@dataclass(frozen=True)
class Images(Content):
    """Encoded images, as bytes or in a structure with the field `bytes`."""

    shape: Shape
    dtype: np.dtype[Any] = FLOAT32

    def array(self, columns: list[pa.Array]) -> Array:
        found = np.empty((len(columns[0]), *self.shape), np.float32)
        for place, value in enumerate(columns[0]):
            found[place] = decoded(_bytes(value), self.shape, "the image")
        return found


def rows_of(content: Content, columns: list[pa.Array], where: str, numbers: Sequence[int] | Array) -> Array:
    """The rows (n, *shape) of these columns; raises `DataError` with the number of the first wrong one."""
    try:
        return content.array(columns)
    except (ValueError, DataError) as error:
        for at, number in enumerate(numbers):
            try:
                content.array([column[at : at + 1] for column in columns])
            except (ValueError, DataError) as own:
                raise DataError(f"{where}, row {number}: {first_line(own)}") from error
        raise DataError(f"{where}: {first_line(error)}") from error


def content_of(
    names: tuple[str, ...], first: list[pa.Array], shape: Shape | None, size: Any, channels: int
) -> Content:
    """The conversion for columns of inputs, by their first row. Raises `ConfigurationError`."""
    if len(first) > 1:
        for name, column in zip(names, first, strict=True):
            if not _is_number(column.type):
                raise ConfigurationError(
                    f"the column {name!r} holds {column.type}: several columns together must hold numbers, "
                    "one a row"
                )
        whole = all(pa.types.is_integer(column.type) for column in first)
        return Several((len(first),), np.dtype(np.int64 if whole else np.float32))
    column, kind = first[0], first[0].type
    if pa.types.is_struct(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        if size is not None:
            return Images(image_shape(size, channels))
        if shape is not None:
            return RawBytes(tuple(shape))
        raise ConfigurationError(
            f"the column {names[0]!r} holds {kind}: say size=224 or the like if these are encoded images, or "
            "shape=(3, 32, 32) or the like if they are the pixels themselves"
        )
    found, leaf = _lists(column)
    if not _is_number(leaf) or size is not None:
        raise ConfigurationError(
            f"the column {names[0]!r} holds {kind}: inputs must be numbers, lists of them, or bytes; size is "
            "for encoded images alone"
        )
    pixels = pa.types.is_uint8(leaf)
    whole = pa.types.is_integer(leaf) and not pixels
    return Numbers(tuple(shape or found), np.dtype(np.int64 if whole else np.float32), pixels)


def labels_of(column: pa.Array, classes: tuple[str, ...] | None) -> tuple[Array, tuple[str, ...]]:
    """Labels (N, ...) of int64, and the names of the classes. Raises `ValueError` for what is none."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        _refuse_missing(column)
        texts = column.to_pylist()
        names = tuple(sorted(set(texts))) if classes is None else classes
        places = {name: place for place, name in enumerate(names)}
        strangers = [text for text in texts if text not in places]
        if strangers:
            raise ValueError(f"found the label {strangers[0]!r}, expected one of {', '.join(names[:10])}")
        return np.array([places[text] for text in texts], dtype=np.int64), names
    shape, leaf = _lists(column[:1])
    if not (pa.types.is_integer(leaf) or pa.types.is_boolean(leaf)):
        raise ValueError(f"found {column.type}, expected integers, lists of them, or texts")
    labels = Numbers(shape, np.dtype(np.int64), pixels=False).array([column])
    if labels.min(initial=0) < 0:
        raise ValueError(f"found the label {labels.min()}, expected 0 or more: number the classes from 0")
    count = int(labels.max(initial=-1)) + 1
    return labels, classes if classes is not None else tuple(map(str, range(count)))


def _lists(column: pa.Array) -> tuple[Shape, pa.DataType]:
    """The lengths of nested lists in the first row, and the type that is in them."""
    shape: Shape = ()
    while _is_list(column.type):
        length = column.type.list_size if pa.types.is_fixed_size_list(column.type) else None
        if length is None:
            length = len(column[0]) if len(column) and column[0].is_valid else 0
        shape = (*shape, length)
        column = column[:1].flatten()
    return shape, column.type


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _bytes(value: pa.Scalar) -> bytes:
    if isinstance(value, pa.StructScalar):
        value = value["bytes"]
    if not value.is_valid:
        raise ValueError("found nothing, expected bytes")
    return bytes(value.as_py())


def _refuse_missing(column: pa.Array) -> None:
    if column.null_count:
        raise ValueError(f"found {column.null_count} missing values, expected none")
