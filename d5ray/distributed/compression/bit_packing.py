"""Layout of messages: integers of a few bits each without gaps, and rows that can each have a scale"""

from typing import Any

import numpy as np

from d5ray.checks import check_count
from d5ray.distributed.communicators.communicator import Message

Numbers = np.ndarray[Any, Any]


def packed_bytes(count: int, width: int) -> int:
    """The bytes of `count` numbers of `width` bits.

    >>> packed_bytes(16, 9)
    18
    """
    return (count * width + 7) // 8


def pack(numbers: Numbers, width: int) -> Message:
    """Numbers (count,) in [0, 2**width), the lowest bit first.

    >>> pack(np.array([1, 0, 3, 2]), 2).tolist()
    [177]
    """
    if width == 8:
        return numbers.astype(np.uint8)
    if width in (2, 4):
        return _pack_aligned(numbers, width)
    size = _word(width)
    words = np.ascontiguousarray(numbers, dtype=f"<u{size}").view(np.uint8).reshape(-1, size)
    return np.packbits(np.unpackbits(words, axis=1, count=width, bitorder="little"), bitorder="little")


def unpack(message: Message, count: int, width: int) -> Numbers:
    """The first `count` numbers of `width` bits in a message, unsigned.

    >>> unpack(np.array([177], dtype=np.uint8), 4, 2).tolist()
    [1, 0, 3, 2]
    """
    used = message[: packed_bytes(count, width)]
    if width == 8:
        return used
    if width in (2, 4):
        shifts = np.arange(0, 8, width, dtype=np.uint8)
        return ((used[:, None] >> shifts) & np.uint8(2**width - 1)).reshape(-1)[:count]
    size = _word(width)
    bits = np.zeros((count, 8 * size), dtype=np.uint8)
    bits[:, :width] = np.unpackbits(used, count=count * width, bitorder="little").reshape(count, width)
    return np.packbits(bits, axis=1, bitorder="little").view(f"<u{size}").reshape(-1)


def _pack_aligned(numbers: Numbers, width: int) -> Message:
    """Several numbers a byte, none across two: by shifts, which is faster than bit by bit."""
    lanes = 8 // width
    padded = np.zeros((-(-len(numbers) // lanes), lanes), dtype=np.uint8)
    padded.reshape(-1)[: len(numbers)] = numbers
    packed = padded[:, 0].copy()
    for lane in range(1, lanes):
        packed |= padded[:, lane] << np.uint8(lane * width)
    return packed


def _word(width: int) -> int:
    """The bytes of the smallest unsigned type of NumPy that holds this many bits."""
    return next(size for size in (1, 2, 4, 8) if width <= 8 * size)


def rows(vector: Numbers, bucket: int | None) -> Numbers:
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


def row_lengths(n: int, bucket: int | None) -> Numbers:
    """The number of entries of the vector (n,) in each row, (buckets,)."""
    lengths = np.full(row_count(n, bucket), row_size(n, bucket))
    lengths[-1:] -= len(lengths) * row_size(n, bucket) - n
    return lengths


def check_bucket(bucket: object) -> None:
    """Raise `ConfigurationError` unless this is an integer of at least 1, or None."""
    if bucket is not None:
        check_count("bucket", bucket, of="entries", other="None for the whole vector")
