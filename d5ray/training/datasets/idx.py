"""The IDX format of MNIST: a magic number, the sizes of the axes, then the bytes."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from d5ray.training.datasets.published_files import unfit, unreadable

UNSIGNED_BYTE = 0x08
TYPE_NAMES = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}
MAX_BYTES = 1 << 30  # MNIST's largest file has 47 MB; a header that promises more than this is wrong


def read_idx(path: Path, rank: int) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, gzip-compressed if its name ends with .gz.

    The header is big-endian: two zero bytes, the type code (0x08: unsigned byte), the number of
    axes, then one 32-bit size per axis; the data follow in C order and end the file.

    Args:
        path: the file.
        rank: the number of axes that it must have (3 for images, 1 for labels).

    Returns:
        The array, uint8, with the sizes that the header states.

    Raises:
        DataError: the file is no such file, or is shorter or longer than its header says.

    Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits".
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            magic = stream.read(4)
            _check_magic(path, magic, rank)
            header = stream.read(4 * rank)
            if len(header) < 4 * rank:
                raise unfit(path, f"{4 + len(header)} bytes", f"a header of {4 + 4 * rank} bytes")
            shape = struct.unpack(f">{rank}I", header)
            size = _check_size(path, shape)
            # One byte more than promised: it tells a longer file, and makes gzip check its sum.
            data = stream.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from error
    if len(data) != size:
        found = f"{len(data)} bytes" if len(data) < size else "more bytes"
        raise unfit(path, f"{found} after the header", f"{size} bytes for the shape {shape}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _check_magic(path: Path, magic: bytes, rank: int) -> None:
    expected = bytes([0, 0, UNSIGNED_BYTE, rank])
    if magic == expected:
        return
    found = f"the magic number 0x{magic.hex()}" if magic else "an empty file"
    if len(magic) == 4 and magic[:2] == b"\0\0":
        found += f" (IDX, {TYPE_NAMES.get(magic[2], 'an unknown type')}, axes: {magic[3]})"
    raise unfit(path, found, f"0x{expected.hex()} (IDX, uint8, axes: {rank})")


def _check_size(path: Path, shape: tuple[int, ...]) -> int:
    size = math.prod(shape)
    if not 0 < size <= MAX_BYTES:
        raise unfit(path, f"the shape {shape}, {size} bytes, in the header", f"1 to {MAX_BYTES} bytes")
    return size
