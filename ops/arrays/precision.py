"""16-bit floating-point numbers compute in 32 bits and are rounded once, at the end"""

from typing import Any

from d5ray.operators.array_operator import Array


def is_floating(array: Array) -> bool:
    """Whether the elements are floating-point numbers, bfloat16 among them: what has a gradient."""
    return array.dtype.kind in "fV"  # NumPy files bfloat16 under V


def wide(array: Array) -> Array:
    """The array in a type to compute in: float32 for 16-bit numbers, its own for all others."""
    if array.dtype.itemsize == 2 and array.dtype.kind in "fV":
        return array.astype("float32")
    return array


def narrowed(xp: Any, result: Array, like: Array) -> Array:
    """The result as an array of the type of `like`; NumPy gives a scalar where there are no axes."""
    return xp.asarray(result, dtype=like.dtype)
