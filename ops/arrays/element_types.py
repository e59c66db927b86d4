"""ONNX's numbers for the types of elements"""

from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError
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
