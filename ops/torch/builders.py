"""Common parts of kernel factories: functions as they are, values read once or at every call, some outputs"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext

Value = Any  # what `tolist` gives: a number, or lists of numbers


def directly(function: Kernel) -> KernelFactory:
    """A kernel factory of the framework's own function, wherever it stands."""

    def build(context: NodeContext) -> Kernel:
        return function

    return build


def with_values(*indices: int) -> Callable[[Callable[..., Kernel]], KernelFactory]:
    """Decorates `make(context, *values)`, which builds from the values of these inputs.

    Values are lists of Python's numbers, or None for an input that is left out.

    Where they are constants, it builds once. Otherwise every call reads them, which waits for the device.
    """

    def decorate(make: Callable[..., Kernel]) -> KernelFactory:
        def build(context: NodeContext) -> Kernel:
            if all(index in context.constants or not context.has_input(index) for index in indices):
                return make(context, *(constant(context, index) for index in indices))

            def call(*inputs: Tensor | None) -> Any:
                return make(context, *(_value(context, inputs, index) for index in indices))(*inputs)

            return call

        return build

    return decorate


def constant(context: NodeContext, index: int) -> Value:
    """The value of an input that is constant, None where it is not, or is left out."""
    if index not in context.constants:
        return None
    array = context.constants[index]
    return (array.astype(np.float32) if array.dtype.name == "bfloat16" else array).tolist()


def _value(context: NodeContext, inputs: Sequence[Tensor | None], index: int) -> Value:
    if index in context.constants:
        return constant(context, index)
    tensor = inputs[index] if index < len(inputs) else None
    return None if tensor is None else tensor.tolist()


def asked(context: NodeContext, function: Callable[..., Sequence[Any]]) -> Kernel:
    """The function that gives all outputs a type may have, cut to those that the node has."""
    count = len(context.node.outputs)
    if count == 1:

        def first(*inputs: Tensor | None) -> Any:
            return function(*inputs)[0]

        return first

    def several(*inputs: Tensor | None) -> Any:
        return tuple(function(*inputs)[:count])

    return several


def number(value: Value) -> Any:
    """The only element of what may stand in lists: in some models a OneHot has the depth 5, in others [5]."""
    while isinstance(value, list):
        (value,) = value
    return value
