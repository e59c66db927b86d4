"""A vector as rows of equal length, so that each can have a scale of its own"""

from typing import Any

import numpy as np

from d5ray.checks import check_count

Array = np.ndarray[Any, Any]


def rows(vector: Array, bucket: int | None) -> Array:
    """The vector (n,) as (buckets, size); zeros fill the last row. bucket None: one row for all.

    >>> rows(np.array([1.0, 2.0, 3.0]), 2).tolist()
    [[1.0, 2.0], [3.0, 0.0]]
    """
    n, size = len(vector), row_size(len(vector), bucket)
    if n % size == 0:
        return vector.reshape(-1, size)
    padded = np.zeros(-(-n // size) * size, dtype=vector.dtype)
    padded[:n] = vector
    return padded.reshape(-1, size)


def row_size(n: int, bucket: int | None) -> int:
    """The length of the rows of a vector (n,); a vector shorter than a bucket is one row."""
    return max(1, n if bucket is None else min(bucket, n))


def row_count(n: int, bucket: int | None) -> int:
    """The number of rows of a vector (n,)."""
    return -(-n // row_size(n, bucket))


def row_lengths(n: int, bucket: int | None) -> Array:
    """The number of entries of the vector (n,) in each row, (buckets,)."""
    lengths = np.full(row_count(n, bucket), row_size(n, bucket))
    lengths[-1:] -= len(lengths) * row_size(n, bucket) - n
    return lengths


def check_bucket(bucket: object) -> None:
    """Raise `ConfigurationError` unless this is an integer of at least 1, or None."""
    if bucket is not None:
        check_count("bucket", bucket, of="entries", other="None for the whole vector")
