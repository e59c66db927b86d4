"""Arithmetic of integers as ONNX has it, where NumPy's differs: quotients and powers"""

from typing import Any

from d5ray.operators.array_operator import Array


def truncated_quotient(x: Array, y: Array) -> Array:
    """x / y rounded towards zero, as C divides; `//` rounds down. A division by zero is not defined.

    >>> import numpy as np
    >>> truncated_quotient(np.array([7, -7, 7]), np.array([2, 2, -2]))
    array([ 3, -3, -3])
    """
    down = x // y
    return down + ((down * y != x) & ((x < 0) != (y < 0))).astype(down.dtype)


def integer_power(xp: Any, x: Array, y: Array) -> Array:
    """x to the power of y in 64 bits, rounded towards zero where y is negative, which NumPy refuses.

    >>> import numpy as np
    >>> integer_power(np, np.array([2, 2, 1, -1, -1]), np.array([3, -3, -3, -3, -4]))
    array([ 8,  0,  1, -1,  1])
    """
    x, y = x.astype("int64"), y.astype("int64")
    below = xp.where(xp.abs(x) == 1, x ** (y & 1), 0)  # ±1 to any power is ±1; the others vanish
    return xp.where(y < 0, below, x ** xp.maximum(y, 0))
