"""tensordesc: descriptors of tensors as Deep500's tutorials write them"""

from collections.abc import Sequence
from typing import Any, final

from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor


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
