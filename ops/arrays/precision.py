"""Floating-point numbers of 16 and fewer bits compute in 32 bits and are rounded once, at the end"""

from typing import Any

from d5ray.operators.array_operator import Array


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
