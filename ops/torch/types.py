"""Element types: PyTorch's for NumPy's and for ONNX's, and tensors of arrays"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import element_type

# By the numbers that ONNX's attributes have for types (onnx.TensorProto.DataType).
ONNX_TYPES: Mapping[int, torch.dtype] = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    4: torch.uint16,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    12: torch.uint32,
    13: torch.uint64,
    14: torch.complex64,
    15: torch.complex128,
    16: torch.bfloat16,
    17: torch.float8_e4m3fn,
    18: torch.float8_e4m3fnuz,
    19: torch.float8_e5m2,
    20: torch.float8_e5m2fnuz,
    24: torch.float8_e8m0fnu,
}
# Types that NumPy has by way of ml_dtypes, and the integers as which their bits travel.
BY_BITS: Mapping[str, tuple[type[Any], torch.dtype]] = {
    "bfloat16": (np.int16, torch.bfloat16),
    "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
    "float8_e4m3fnuz": (np.uint8, torch.float8_e4m3fnuz),
    "float8_e5m2": (np.uint8, torch.float8_e5m2),
    "float8_e5m2fnuz": (np.uint8, torch.float8_e5m2fnuz),
    "float8_e8m0fnu": (np.uint8, torch.float8_e8m0fnu),
}
_SIGNED = {np.int16: torch.int16, np.uint8: torch.uint8}
_BITS = {kind: (bits, name) for name, (bits, kind) in BY_BITS.items()}
# Types that PyTorch does not compute with, and those that hold all their numbers in their place.
HOLDERS: Mapping[str, type[Any]] = {
    "int4": np.int8,
    "uint4": np.uint8,
    "int2": np.int8,
    "uint2": np.uint8,
    "float4_e2m1fn": np.float32,
}
HELD_NUMBERS = {21: "uint4", 22: "int4", 23: "float4_e2m1fn", 25: "uint2", 26: "int2"}  # of ONNX
UNSIGNED = ("uint16", "uint32", "uint64")  # for which PyTorch has few functions


def onnx_type(context: NodeContext, attribute: str, default: int | None = None) -> torch.dtype:
    """The type that an attribute names by ONNX's number. Raises `ConfigurationError` for unknown ones."""
    number = context.required(attribute) if default is None else context.attribute(attribute, default)
    if number not in ONNX_TYPES:
        raise ConfigurationError(
            f"the node {context.node} asks for ONNX's element type {number}, which PyTorch has not: "
            f"choose another {attribute!r}, or run this network under NumPy"
        )
    return ONNX_TYPES[number]


def tensor_of(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor of a NumPy array, which it shares memory with; types of fewer than 8 bits are held in others.

    Raises `ConfigurationError` for types that PyTorch has not.
    """
    if (name := array.dtype.name) in BY_BITS:
        bits, kind = BY_BITS[name]
        return torch.from_numpy(np.asarray(array, order="C").view(bits)).view(kind)
    if name in HOLDERS:
        array = array.astype(HOLDERS[name])
    try:
        return torch.from_numpy(np.asarray(array))
    except TypeError as error:
        raise ConfigurationError(
            f"PyTorch has no elements of type {array.dtype}: convert them, to float32 for example"
        ) from error


def array_of(tensor: Tensor, kind: "np.dtype[Any] | None" = None) -> np.ndarray[Any, Any]:
    """A NumPy array over a tensor's memory, or over a copy of it where that is on a device.

    kind: the type in the network, of which the tensor may only hold the numbers.
    """
    tensor = tensor.detach().cpu()
    if tensor.dtype in _BITS:
        bits, name = _BITS[tensor.dtype]
        return tensor.contiguous().view(_SIGNED[bits]).numpy().view(element_type(name))
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array if kind is None or kind.name not in HOLDERS else array.astype(kind)


def is_plain(kind: "np.dtype[Any]") -> bool:
    """True if PyTorch shares arrays of this type with NumPy as they are."""
    return kind.name not in BY_BITS and kind.name not in HOLDERS


def known_type(context: NodeContext, index: int = 0) -> str | None:
    """The name of an input's element type, such as "float32", None where it is not known."""
    descriptor = context.inputs[index] if index < len(context.inputs) else None
    return None if descriptor is None else descriptor.dtype.name


def is_floating(context: NodeContext, index: int = 0) -> bool:
    """True if an input is known to be of a floating-point type."""
    return (known_type(context, index) or "").startswith(("float", "bfloat"))


def known_rank(context: NodeContext, index: int = 0) -> int | None:
    """The number of an input's axes, None where it is not known."""
    descriptor = context.inputs[index] if index < len(context.inputs) else None
    if index in context.constants:
        return context.constants[index].ndim
    return None if descriptor is None or descriptor.shape is None else len(descriptor.shape)


def known_sizes(context: NodeContext, index: int = 0, start: int = 0) -> tuple[int, ...] | None:
    """The sizes of an input's axes from `start` on, None where one of them is open."""
    descriptor = context.inputs[index] if index < len(context.inputs) else None
    if descriptor is None or descriptor.shape is None:
        return None
    sizes = tuple(size for size in descriptor.shape[start:] if isinstance(size, int))
    return sizes if len(sizes) == len(descriptor.shape[start:]) else None
