"""Tensors that are made, not computed: constants, ranges, shapes"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, WithoutGradient
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating, onnx_type, wide
from d5ray.ops.arrays.known import on_host, required_numbers


@final
class Constant(WithoutGradient):
    """The value that the node holds: `value`, or numbers as float32 or int64."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        for name, dtype in _KINDS.items():
            if name in context.node.attributes:
                return (xp.asarray(context.node.attributes[name], dtype=dtype),)
        raise ConfigurationError(
            f"the node {context.node} has no value that d5ray knows: give it one of {', '.join(_KINDS)}"
        )


_KINDS = {
    "value": None, "value_float": "float32", "value_floats": "float32",
    "value_int": "int64", "value_ints": "int64",
}  # fmt: skip


@final
class ConstantOfShape(WithoutGradient):
    """A tensor of a shape with one number in all places; 0 of float32 where none is given."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        value = context.attribute("value", np.zeros(1, "float32"))
        shape = tuple(required_numbers(context, inputs, 0, "shape"))
        return (xp.full(shape, value.item(), dtype=value.dtype),)


@final
class EyeLike(WithoutGradient):
    """1 on the k-th diagonal of a matrix of the input's shape, 0 elsewhere."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        (x,) = inputs
        assert x is not None
        dtype = (
            onnx_type(context, context.node.attributes["dtype"])
            if "dtype" in context.node.attributes
            else x.dtype
        )
        rows, columns = x.shape
        on_diagonal = xp.arange(columns) - xp.arange(rows)[:, None] == context.attribute("k", 0)
        return (on_diagonal.astype(dtype),)


@final
class Range(WithoutGradient):
    """start + i · delta for all i until limit, which is not reached."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        given = [on_host(x) for x in inputs]
        dtype = given[0].dtype
        start, limit, delta = (wide(x).reshape(()) for x in given)
        if not delta:
            raise ConfigurationError(f"the node {context.node} counts in steps of 0: give it another delta")
        if is_floating(start):
            count = max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
        else:
            count = len(range(int(start), int(limit), int(delta)))
        places = xp.arange(count).astype(start.dtype)
        return ((places * xp.asarray(delta) + xp.asarray(start)).astype(dtype),)


@final
class Shape(WithoutGradient):
    """The sizes of the axes from `start` to `end`, int64."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        (x,) = inputs
        assert x is not None
        sizes = x.shape[context.attribute("start", 0) : context.attribute("end")]
        return (xp.asarray(sizes, dtype="int64"),)


@final
class Size(WithoutGradient):
    """The number of elements, int64."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        (x,) = inputs
        assert x is not None
        return (xp.asarray(x.size, dtype="int64"),)


OPERATORS: Mapping[str, ArrayOperator] = {
    "Constant": Constant(),
    "ConstantOfShape": ConstantOfShape(),
    "EyeLike": EyeLike(),
    "Range": Range(),
    "Shape": Shape(),
    "Size": Size(),
}
