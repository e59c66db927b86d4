"""Element types that TensorFlow does not compute with, held in types that have all their numbers"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from d5ray.ops.arrays.narrow import cast_to

HOLDERS: Mapping[str, type[Any]] = {
    "int4": np.int8,
    "uint4": np.uint8,
    "int2": np.int8,
    "uint2": np.uint8,
    "float4_e2m1fn": np.float32,
    "float8_e4m3fn": np.float32,
    "float8_e4m3fnuz": np.float32,
    "float8_e5m2": np.float32,
    "float8_e5m2fnuz": np.float32,
    "float8_e8m0fnu": np.float64,  # float32 has its least number as a denormal one, which kernels drop
}


Array = np.ndarray[Any, Any]


def holder(kind: "np.dtype[Any]") -> "np.dtype[Any]":
    """The type in which numbers of this one are held: for most types this one itself."""
    return np.dtype(HOLDERS.get(kind.name, kind))


def as_held(array: Array) -> Array:
    """The array, in the type in which its numbers are held."""
    made: Array = cast_to(np, array, holder(array.dtype))
    return made
