"""Types of elements: ONNX's numbers for them, and the precision in which those of few bits compute"""

from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import element_type

_NAMES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16", 17: "float8_e4m3fn",
    18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4",
    23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2",
}  # fmt: skip


def onnx_type(context: NodeContext, number: int) -> "np.dtype[Any]":
    """NumPy's dtype for the `onnx.TensorProto.DataType` that the node names.

    Raises `ConfigurationError` for one that is not computed with: text, complex.
    """
    if number not in _NAMES:
        raise ConfigurationError(
            f"the node {context.node} names ONNX's element type {number}, which d5ray does not have: it has "
            + ", ".join(f"{name} ({each})" for each, name in _NAMES.items())
        )
    return element_type(_NAMES[number])


def is_floating(array: Array) -> bool:
    """True if the elements are floating-point numbers, those of ml_dtypes among them: what has a gradient."""
    dtype = array.dtype  # NumPy files bfloat16 under V, as it does int4
    return bool(dtype.kind == "f" or (dtype.kind == "V" and dtype.name.startswith(("bfloat", "float"))))


def wide(array: Array) -> Array:
    """The array in a type to compute in: float32 for 16 bits and fewer, its own for all others."""
    if array.dtype.itemsize <= 2 and is_floating(array):
        return array.astype("float32")
    return array


def narrowed(xp: Any, result: Array, like: Array) -> Array:
    """The result as an array of the type of `like`; NumPy gives a scalar where there are no axes."""
    return xp.asarray(result, dtype=like.dtype)
