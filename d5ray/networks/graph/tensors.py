"""The values in an ONNX model: its tensors as NumPy arrays, whose sizes are what they claim to be."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.files import external_data
from d5ray.networks.graph.graph import Array

KINDS = onnx.TensorProto
BITS = {KINDS.INT4: 4, KINDS.UINT4: 4, KINDS.FLOAT4E2M1: 4, KINDS.INT2: 2, KINDS.UINT2: 2}


def dtype_from(kind: int, what: str) -> "np.dtype[Any]":
    """NumPy's (or ml_dtypes') type for one of ONNX's."""
    try:
        found: np.dtype[Any] = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
    except (KeyError, ValueError) as error:
        raise ConfigurationError(
            f"{what} has elements of a type that ONNX does not define ({kind})"
        ) from error
    if found.kind == "O":
        raise ConfigurationError(
            f"{what} holds texts: networks of d5ray compute with numbers and booleans; convert the texts to "
            "numbers before the network"
        )
    return found


def size_of(tensor: onnx.TensorProto, what: str) -> int:
    """The bytes that the type and the shape of a tensor take in a file."""
    if tensor.HasField("segment"):
        raise ConfigurationError(f"{what} is a segment of a larger tensor, which d5ray does not read")
    for axis, size in enumerate(tensor.dims):
        if size < 0:
            raise ConfigurationError(
                f"{what} has a size of {size} on axis {axis}: sizes are integers from 0 up"
            )
    kind: Any = tensor.data_type
    bits: int = BITS.get(kind) or 8 * dtype_from(kind, what).itemsize
    elements: int = math.prod(tensor.dims)
    return -(-elements * bits // 8)


def is_external(tensor: onnx.TensorProto) -> bool:
    """True if the value stands in a data file."""
    return tensor.data_location == KINDS.EXTERNAL or bool(tensor.external_data)


def value_of(tensor: onnx.TensorProto, folder: Path | None, what: str) -> Array:
    """The value of a tensor, which cannot be written to. Raises `ConfigurationError` unless it is all there.

    folder: where its data file may be, None where it may have none.
    """
    size = size_of(tensor, what)
    data = external_data(tensor, size, folder, what) if is_external(tensor) else None
    if data is None and tensor.HasField("raw_data"):
        data = tensor.raw_data
        if len(data) != size:
            raise ConfigurationError(
                f"{what} claims {_shown(tensor)}, which takes {size:,} bytes, and has {len(data):,}: the "
                "model is corrupt"
            )
    try:
        return read_only(numpy_helper.to_array(tensor) if data is None else _of_bytes(tensor, data))
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ConfigurationError(
            f"{what} claims {_shown(tensor)}, and does not have as many elements: the model is corrupt"
        ) from error


def read_only(value: Array) -> Array:
    """A view of the array that nobody can write to."""
    view = value.view()
    view.flags.writeable = False
    return view


def is_floating(dtype: "np.dtype[Any]") -> bool:
    """True if these are floating-point numbers that have gradients: of 16 bits or more, bfloat16 among them.

    >>> is_floating(np.dtype("float64")), is_floating(np.dtype("int8"))
    (True, False)
    """
    return dtype.itemsize > 1 and dtype.name.startswith(("float", "bfloat"))


def _of_bytes(tensor: onnx.TensorProto, data: bytes) -> Array:
    if tensor.data_type in BITS:
        return numpy_helper.to_array(
            onnx.TensorProto(dims=tensor.dims, data_type=tensor.data_type, raw_data=data)
        )
    dtype: np.dtype[Any] = dtype_from(tensor.data_type, "a tensor")
    found: Array = np.frombuffer(data, dtype.newbyteorder("<") if dtype.kind in "iufc" else dtype)
    return found.astype(dtype, copy=False).reshape(tuple(tensor.dims))


def _shown(tensor: onnx.TensorProto) -> str:
    return f"{onnx.TensorProto.DataType.Name(tensor.data_type).lower()} {tuple(tensor.dims)}"
