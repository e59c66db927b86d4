"""Common parts of builders: functions as they are, values read once or at every call, outputs asked for"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from d5ray.operators.nodes.kernel_factory import Builder, Built
from d5ray.operators.nodes.node_context import Site

Value = Any  # what `tolist` gives: a number, or lists of numbers


def directly(function: Built) -> Builder:
    """A builder of the framework's own function, wherever it stands."""

    def build(site: Site) -> Built:
        return function

    return build


def with_values(*indices: int) -> Callable[[Callable[..., Built]], Builder]:
    """Decorates `make(site, *values)`, which builds from the values of these inputs.

    Values are lists of Python's numbers, or None for an input that is left out.

    Where they are constants, it builds once. Otherwise every call reads them, which waits for the device.
    """

    def decorate(make: Callable[..., Built]) -> Builder:
        def build(site: Site) -> Built:
            if all(index in site.constants or not site.has_input(index) for index in indices):
                return make(site, *(constant(site, index) for index in indices))

            def call(*inputs: Tensor | None) -> Any:
                return make(site, *(_value(site, inputs, index) for index in indices))(*inputs)

            return call

        return build

    return decorate


def constant(site: Site, index: int) -> Value:
    """The value of an input that is constant, None where it is not, or is left out."""
    if index not in site.constants:
        return None
    array = site.constants[index]
    return (array.astype(np.float32) if array.dtype.name == "bfloat16" else array).tolist()


def _value(site: Site, inputs: Sequence[Tensor | None], index: int) -> Value:
    if index in site.constants:
        return constant(site, index)
    tensor = inputs[index] if index < len(inputs) else None
    return None if tensor is None else tensor.tolist()


def asked(site: Site, function: Callable[..., Sequence[Any]]) -> Built:
    """The function that gives all outputs a type may have, cut to those that the node has."""
    count = len(site.node.outputs)
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
