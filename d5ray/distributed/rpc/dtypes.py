"""NumPy's types by the names that members tell each other"""

from typing import Any

import numpy as np

PLAIN_TYPES = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16",
    "float32", "float64", "complex64", "complex128",
)  # fmt: skip


def plain_dtype(name: object) -> Any:
    """NumPy's type of a name that came from another process; `ValueError` for one that is no plain number."""
    if name not in PLAIN_TYPES:
        raise ValueError(f"arrays of {name!r} are not exchanged")
    return numpy_dtype(str(name))


def numpy_dtype(name: str) -> Any:
    """NumPy's type of this name; bfloat16 comes from ml_dtypes."""
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes  # noqa: PLC0415 - takes a while, and is rarely needed

    return np.dtype(ml_dtypes.bfloat16)
