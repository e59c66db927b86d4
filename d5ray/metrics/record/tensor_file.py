"""Arrays in one file in the format of safetensors, written and read without a copy in between"""

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from d5ray.errors import StorageError

Array = np.ndarray[Any, Any]

NAMES: Final = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32",
    "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64", "complex64": "C64",
}  # fmt: skip
NO_FACTS: Final[Mapping[str, str]] = {}
WRONG: Final = (ValueError, KeyError, TypeError, AttributeError)  # what a file of something else raises
PIECE = 2**22  # bytes that are summed up and written at a time
ALIGNMENT = 64


def pieces(
    arrays: Mapping[str, Array], text: str | None, facts: Mapping[str, str] = NO_FACTS
) -> Iterator[memoryview]:
    """The bytes of a file with these arrays, contiguous ones, and a text, or other facts beside them.

    8 bytes with the length of the header, little endian; the header, JSON that says for every array its type,
    shape and place; the arrays' bytes. Text and facts stand in the header as `__metadata__`. The format is
    that of github.com/huggingface/safetensors, which reads such a file.
    """
    header: dict[str, Any] = {"__metadata__": {**facts, **({} if text is None else {"state": text})}}
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    place = 0
    for name, array in ordered:
        kind = array.dtype.newbyteorder("=").name
        if kind not in NAMES:
            raise StorageError(f"{name} is an array of {array.dtype}, which a checkpoint cannot hold")
        header[name] = {
            "dtype": NAMES[kind],
            "shape": list(array.shape),
            "data_offsets": [place, place + array.nbytes],
        }
        place += array.nbytes
    described = json.dumps(header).encode()
    described += b" " * (-(len(described) + 8) % ALIGNMENT)
    yield memoryview(len(described).to_bytes(8, "little") + described)
    for _, array in ordered:
        if not array.nbytes:
            continue
        flat = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        for begin in range(0, len(flat), PIECE):
            yield flat[begin : begin + PIECE]


def parsed(data: Array, what: str) -> tuple[dict[str, Array], str]:
    """The arrays of a file (bytes, uint8), as views of it, and its text; `StorageError` if it is none."""
    try:
        arrays, facts = _parsed(data)
        return arrays, facts["state"]
    except WRONG as error:
        raise StorageError(f"{what} is not a file that a checkpoint wrote: {error}") from error


def parsed_with_facts(data: Array, what: str) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays of a file (bytes, uint8), as views of it, and its facts; `StorageError` if it is none."""
    try:
        return _parsed(data)
    except WRONG as error:
        raise StorageError(f"{what} is not a file in the format of safetensors: {error}") from error


def _parsed(data: Array) -> tuple[dict[str, Array], dict[str, str]]:
    length = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8 : 8 + length].tobytes())
    facts: dict[str, str] = header.pop("__metadata__", {})
    kinds = {code: name for name, code in NAMES.items()}
    body = data[8 + length :]
    arrays = {}
    for name, each in header.items():
        begin, end = each["data_offsets"]
        arrays[name] = body[begin:end].view(_dtype(kinds[each["dtype"]])).reshape(each["shape"])
    return arrays, facts


def checksum(data: Any, before: int = 0) -> int:
    """CRC-32 of these bytes, after those that had the checksum `before`."""
    return zlib.crc32(data, before)


def _dtype(name: str) -> Any:
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes  # noqa: PLC0415 - takes a while, and is rarely needed

    return np.dtype(ml_dtypes.bfloat16)
