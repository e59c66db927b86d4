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
from d5ray.operators.nodes.kernel_factory import Builder, Built
from d5ray.operators.nodes.node_context import Site
from d5ray.ops.torch.builders import Value, number, with_values
from d5ray.ops.torch.types import onnx_type, tensor_of


def constant(site: Site) -> Built:
    """The node's value, on PyTorch's default device."""
    value = tensor_of(_value(site))

    def constant() -> Tensor:
        return value.to(torch.empty(0).device)  # the default one, as torch.compile can see it

    return constant


def _value(site: Site) -> np.ndarray[Any, Any]:
    """The value in the attribute that the node has: a tensor, a number or numbers."""
    for name, kind in (
        ("value_float", "float32"),
        ("value_floats", "float32"),
        ("value_int", "int64"),
        ("value_ints", "int64"),
    ):
        if name in site.node.attributes:
            return np.asarray(site.required(name), kind)
    if "value" not in site.node.attributes:
        raise ConfigurationError(
            f"the node {site.node} holds {', '.join(site.node.attributes) or 'nothing'}: PyTorch takes dense "
            "numbers, which are in the attributes value, value_float(s) or value_int(s)"
        )
    return np.array(site.required("value"))  # its own memory: the caller's cannot change it


@with_values(0)
def constant_of_shape(site: Site, shape: Value) -> Built:
    """A tensor of the given shape filled with the node's value, 0 in float32 by default."""
    element = tensor_of(np.array(site.attribute("value", np.zeros(1, np.float32))).reshape(()))
    value, kind, sizes = element.item(), element.dtype, tuple(shape)

    def full(shape: Tensor) -> Tensor:
        return torch.full(sizes, value, dtype=kind, device=shape.device)

    return full


def eye_like(site: Site) -> Built:
    """Ones on the k-th diagonal, to the right of the main one."""
    kind = onnx_type(site, "dtype") if "dtype" in site.node.attributes else None
    shift = site.attribute("k", 0)

    def eye(x: Tensor) -> Tensor:
        rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
        on_diagonal: Tensor = columns == rows.unsqueeze(1) + shift
        return on_diagonal.to(kind or x.dtype)

    return eye


def random_normal(site: Site) -> Built:
    """Normal numbers of the node's shape, anew in every call, from PyTorch's own generator."""
    kind, shape = onnx_type(site, "dtype", 1), tuple(site.required("shape"))
    mean, scale = site.attribute("mean", 0.0), site.attribute("scale", 1.0)

    def normal() -> Tensor:
        return torch.empty(shape, dtype=kind).normal_(mean, scale)

    return normal


def random_normal_like(site: Site) -> Built:
    """Normal numbers of the input's shape, anew in every call, from PyTorch's own generator."""
    kind = onnx_type(site, "dtype") if "dtype" in site.node.attributes else None
    mean, scale = site.attribute("mean", 0.0), site.attribute("scale", 1.0)

    def normal_like(x: Tensor) -> Tensor:
        return torch.empty_like(x, dtype=kind or x.dtype).normal_(mean, scale)

    return normal_like


def random_uniform(site: Site) -> Built:
    """Uniform numbers of the node's shape, anew in every call, from PyTorch's own generator."""
    kind, shape = onnx_type(site, "dtype", 1), tuple(site.required("shape"))
    low, high = site.attribute("low", 0.0), site.attribute("high", 1.0)

    def uniform() -> Tensor:
        return torch.empty(shape, dtype=kind).uniform_(low, high)

    return uniform


def random_uniform_like(site: Site) -> Built:
    """Uniform numbers of the input's shape, anew in every call, from PyTorch's own generator."""
    kind = onnx_type(site, "dtype") if "dtype" in site.node.attributes else None
    low, high = site.attribute("low", 0.0), site.attribute("high", 1.0)

    def uniform_like(x: Tensor) -> Tensor:
        return torch.empty_like(x, dtype=kind or x.dtype).uniform_(low, high)

    return uniform_like


@with_values(0, 1, 2)
def arange(site: Site, start: Value, limit: Value, delta: Value) -> Built:
    """ONNX's Range: first, first + step, … as long as they lie before the end; none where there are none."""
    first, end, step = number(start), number(limit), number(delta)
    count = max(-int((first - end) // step), 0)

    def arange(like: Tensor, *others: Tensor) -> Tensor:
        exact = torch.float64 if like.is_floating_point() else torch.int64
        places = torch.arange(count, dtype=exact, device=like.device)
        values: Tensor = first + places * step
        return values.to(like.dtype)

    return arange


def shape(site: Site) -> Built:
    """The input's shape as int64, from the axis `start` to the one before `end`."""
    start, end = site.attribute("start", 0), site.attribute("end")

    def shape(x: Tensor) -> Tensor:
        return torch.tensor(x.shape[start:end], dtype=torch.int64, device=x.device)

    return shape


def size(site: Site) -> Built:
    """The number of elements of the input, int64 ()."""

    def size(x: Tensor) -> Tensor:
        return torch.tensor(x.numel(), dtype=torch.int64, device=x.device)

    return size


BUILDERS: Mapping[str, Builder] = {
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
