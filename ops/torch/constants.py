"""Tensors that are made, not computed: constants, ranges, shapes, random numbers

Those that are made of nothing come to be on PyTorch's default device (`with torch.device("cuda")`), the
others on the device of their input. Random numbers come from PyTorch's own generator (`torch.manual_seed`);
seeds in nodes, which would give the same numbers in every step, are not used.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.torch.builders import Value, number, with_values
from d5ray.ops.torch.types import onnx_type, tensor_of


def constant(context: NodeContext) -> Kernel:
    """The node's value, on PyTorch's default device."""
    value = tensor_of(_value(context))

    def constant() -> Tensor:
        return value.to(torch.empty(0).device)  # the default one, as torch.compile can see it

    return constant


def _value(context: NodeContext) -> np.ndarray[Any, Any]:
    """The value in the attribute that the node has: a tensor, a number or numbers."""
    for name, kind in (
        ("value_float", "float32"),
        ("value_floats", "float32"),
        ("value_int", "int64"),
        ("value_ints", "int64"),
    ):
        if name in context.node.attributes:
            return np.asarray(context.required(name), kind)
    if "value" not in context.node.attributes:
        raise ConfigurationError(
            f"the node {context.node} holds {', '.join(context.node.attributes) or 'nothing'}: PyTorch takes "
            "dense numbers, which are in the attributes value, value_float(s) or value_int(s)"
        )
    return np.array(context.required("value"))  # its own memory: the caller's cannot change it


@with_values(0)
def constant_of_shape(context: NodeContext, shape: Value) -> Kernel:
    """A tensor of the given shape filled with the node's value, 0 in float32 by default."""
    element = tensor_of(np.array(context.attribute("value", np.zeros(1, np.float32))).reshape(()))
    value, kind, sizes = element.item(), element.dtype, tuple(shape)

    def full(shape: Tensor) -> Tensor:
        return torch.full(sizes, value, dtype=kind, device=shape.device)

    return full


def eye_like(context: NodeContext) -> Kernel:
    """Ones on the k-th diagonal, to the right of the main one."""
    kind = onnx_type(context, "dtype") if "dtype" in context.node.attributes else None
    shift = context.attribute("k", 0)

    def eye(x: Tensor) -> Tensor:
        rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
        on_diagonal: Tensor = columns == rows.unsqueeze(1) + shift
        return on_diagonal.to(kind or x.dtype)

    return eye


def random_normal(context: NodeContext) -> Kernel:
    """Normal numbers of the node's shape, anew in every call, from PyTorch's own generator."""
    kind, shape = onnx_type(context, "dtype", 1), tuple(context.required("shape"))
    mean, scale = context.attribute("mean", 0.0), context.attribute("scale", 1.0)

    def normal() -> Tensor:
        return torch.empty(shape, dtype=kind).normal_(mean, scale)

    return normal


def random_normal_like(context: NodeContext) -> Kernel:
    """Normal numbers of the input's shape, anew in every call, from PyTorch's own generator."""
    kind = onnx_type(context, "dtype") if "dtype" in context.node.attributes else None
    mean, scale = context.attribute("mean", 0.0), context.attribute("scale", 1.0)

    def normal_like(x: Tensor) -> Tensor:
        return torch.empty_like(x, dtype=kind or x.dtype).normal_(mean, scale)

    return normal_like


def random_uniform(context: NodeContext) -> Kernel:
    """Uniform numbers of the node's shape, anew in every call, from PyTorch's own generator."""
    kind, shape = onnx_type(context, "dtype", 1), tuple(context.required("shape"))
    low, high = context.attribute("low", 0.0), context.attribute("high", 1.0)

    def uniform() -> Tensor:
        return torch.empty(shape, dtype=kind).uniform_(low, high)

    return uniform


def random_uniform_like(context: NodeContext) -> Kernel:
    """Uniform numbers of the input's shape, anew in every call, from PyTorch's own generator."""
    kind = onnx_type(context, "dtype") if "dtype" in context.node.attributes else None
    low, high = context.attribute("low", 0.0), context.attribute("high", 1.0)

    def uniform_like(x: Tensor) -> Tensor:
        return torch.empty_like(x, dtype=kind or x.dtype).uniform_(low, high)

    return uniform_like


@with_values(0, 1, 2)
def arange(context: NodeContext, start: Value, limit: Value, delta: Value) -> Kernel:
    """ONNX's Range: first, first + step, … as long as they lie before the end; none where there are none."""
    first, end, step = number(start), number(limit), number(delta)
    count = max(-int((first - end) // step), 0)

    def arange(like: Tensor, *others: Tensor) -> Tensor:
        exact = torch.float64 if like.is_floating_point() else torch.int64
        places = torch.arange(count, dtype=exact, device=like.device)
        values: Tensor = first + places * step
        return values.to(like.dtype)

    return arange


def shape(context: NodeContext) -> Kernel:
    """The input's shape as int64, from the axis `start` to the one before `end`."""
    start, end = context.attribute("start", 0), context.attribute("end")

    def shape(x: Tensor) -> Tensor:
        return torch.tensor(x.shape[start:end], dtype=torch.int64, device=x.device)

    return shape


def size(context: NodeContext) -> Kernel:
    """The number of elements of the input, int64 ()."""

    def size(x: Tensor) -> Tensor:
        return torch.tensor(x.numel(), dtype=torch.int64, device=x.device)

    return size


FACTORIES: Mapping[str, KernelFactory] = {
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "EyeLike": eye_like,
    "RandomNormal": random_normal,
    "RandomNormalLike": random_normal_like,
    "RandomUniform": random_uniform,
    "RandomUniformLike": random_uniform_like,
    "Range": arange,
    "Shape": shape,
    "Size": size,
}
