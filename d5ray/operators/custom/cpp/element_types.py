"""The types of elements as C++ and the descriptors of C have them"""

import ctypes
from collections.abc import Sequence

from d5ray.errors import ConfigurationError
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "deep500::float16",
    "bfloat16": "deep500::bfloat16",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "bool",
}
_CODES = {
    "int8": 1, "int16": 2, "int32": 3, "int64": 4, "uint8": 5, "uint16": 6, "uint32": 7, "uint64": 8,
    "float16": 9, "float32": 10, "float64": 11, "bfloat16": 13, "bool": 14,
}  # fmt: skip


class Tensor(ctypes.Structure):
    """The C++ side's `deep500::tensor_t`."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("order", ctypes.c_int),
        ("dims", ctypes.c_uint8),
        ("sizes", ctypes.POINTER(ctypes.c_uint64)),
    )


def element(operator: str, descriptor: TensorDescriptor) -> str:
    """The element type in C++. Raises `ConfigurationError` for a type that the header lacks."""
    name = str(descriptor.dtype)
    if name not in TYPES or not descriptor.dtype.isnative:
        raise ConfigurationError(
            f"the C++ operator {operator} has a tensor {descriptor}, but C++ operators know the types "
            f"{', '.join(TYPES)}, in this machine's byte order"
        )
    return TYPES[name]


def tensors(descriptors: Sequence[TensorDescriptor]) -> "ctypes.Array[Tensor]":
    """The descriptors as an array of C."""
    made = []
    for descriptor in descriptors:
        sizes = descriptor.sizes
        made.append(
            Tensor(
                _CODES[str(descriptor.dtype)], 0, len(sizes), (ctypes.c_uint64 * max(1, len(sizes)))(*sizes)
            )
        )
    return (Tensor * len(made))(*made)
