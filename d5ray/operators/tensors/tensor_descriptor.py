"""TensorDescriptor: the type and shape of a tensor, as far as they are known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.checks import check_items
from d5ray.errors import ConfigurationError

Dimension = int | str | None  # a size, the name of one that is open such as "batch", or nothing known

# The element types of ONNX that NumPy has by way of ml_dtypes.
FLOATS_OF_8_BITS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
SUB_BYTE = ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")
OF_ML_DTYPES = frozenset({"bfloat16", "float8_e8m0fnu", *FLOATS_OF_8_BITS, *SUB_BYTE})


@final
@dataclass(frozen=True, init=False)
class TensorDescriptor:
    """The element type and the shape of a tensor.

    dtype: what NumPy takes for a type, or the name of one of `ml_dtypes`, such as "bfloat16". shape: for
    every axis a size, or a name where the size is open ("batch"), or None; the whole shape is None where not
    even the number of axes is known.

    >>> TensorDescriptor("float32", ("batch", 3, 8, 8))
    float32 (batch, 3, 8, 8)
    """

    dtype: "np.dtype[Any]"
    shape: tuple[Dimension, ...] | None

    def __init__(self, dtype: Any, shape: Sequence[Dimension] | None = ()) -> None:
        object.__setattr__(self, "dtype", element_type(dtype))
        object.__setattr__(self, "shape", _shape(shape))

    def __repr__(self) -> str:
        if self.shape is None:
            return f"{self.dtype} of any shape"
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.dtype} ({sizes}{',' if len(self.shape) == 1 else ''})"

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape, all of whose sizes are known. Raises `ConfigurationError` where one is open."""
        if self.shape is None or not all(isinstance(size, int) for size in self.shape):
            raise ConfigurationError(
                f"the shape of a tensor must be known here, found {self}: give its sizes"
            )
        return self.shape  # type: ignore[return-value]  # every size was looked at

    @property
    def bytes(self) -> int:
        """The memory of the elements in bytes. Raises `ConfigurationError` if a size is open."""
        return int(np.prod(self.sizes, dtype=np.int64)) * self.dtype.itemsize


def element_type(dtype: Any) -> "np.dtype[Any]":
    """NumPy's dtype of what stands for one. Raises `ConfigurationError` where nothing does.

    >>> element_type("bfloat16").itemsize
    2
    """
    if str(dtype) in OF_ML_DTYPES:
        import ml_dtypes  # noqa: PLC0415 - takes a while, and is rarely needed

        dtype = getattr(ml_dtypes, str(dtype))
    try:
        made: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:  # NumPy reads a text as a list of types
        raise ConfigurationError(
            f"{dtype!r} is no type of elements: give one of NumPy's, such as 'float32', or 'bfloat16'"
        ) from error
    return made


def _shape(shape: object) -> tuple[Dimension, ...] | None:
    if shape is None:
        return None
    return tuple(_dimension(size) for size in check_items("shape", shape, "a tuple of sizes, or None"))


def _dimension(size: object) -> Dimension:
    if size is None or isinstance(size, str):
        return size
    if isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size >= 0:
        return int(size)
    raise ConfigurationError(
        f"{size!r} is no size of an axis: give an integer from 0 up, a name for an open size, or None"
    )


@final
class tensordesc:
    """A `TensorDescriptor` of a type and a shape in either order; one number is the size of the only axis.

    >>> tensordesc(100, "float32"), tensordesc("float64", (3, 4)), tensordesc.runtime_shape("int64")
    (float32 (100,), float64 (3, 4), int64 of any shape)
    """

    def __new__(cls, first: Any, second: Any) -> TensorDescriptor:  # type: ignore[misc]  # makes another class
        """Raises `ConfigurationError` for what is no type of elements, or no size."""
        dtype, shape = (second, first) if _is_shape(first) else (first, second)
        return TensorDescriptor(dtype, shape if isinstance(shape, Sequence) else (shape,))

    @staticmethod
    def runtime_shape(dtype: Any) -> TensorDescriptor:
        """A tensor of a type, whose shape is known when the operator is called."""
        return TensorDescriptor(dtype, None)


def _is_shape(value: object) -> bool:
    return isinstance(value, (int, list, tuple))
