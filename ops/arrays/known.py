"""Inputs that say what is to be done, such as axes and shapes: their numbers, in Python"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array
from d5ray.operators.nodes.node_context import NodeContext


def numbers(context: NodeContext, inputs: Sequence[Array | None], index: int) -> list[Any] | None:
    """The elements of an input in order, None where it is left out.

    Where the network holds them they are read there, and a GPU need not be waited for.
    """
    if index in context.constants:
        return list(context.constants[index].ravel().tolist())
    if index >= len(inputs) or inputs[index] is None:
        return None
    return list(on_host(inputs[index]).ravel().tolist())


def required_numbers(
    context: NodeContext, inputs: Sequence[Array | None], index: int, what: str
) -> list[Any]:
    """The numbers of an input that must be there. Raises `ConfigurationError` if it is not."""
    found = numbers(context, inputs, index)
    if found is None:
        raise ConfigurationError(f"the node {context.node} lacks its input {index}, the {what}: give it")
    return found


def required_number(context: NodeContext, inputs: Sequence[Array | None], index: int, what: str) -> Any:
    """The only element of an input. Raises `ConfigurationError` where it has none, or several."""
    found = required_numbers(context, inputs, index, what)
    if len(found) != 1:
        raise ConfigurationError(
            f"the {what} of the node {context.node} has {len(found)} elements: it must have one"
        )
    return found[0]


def on_host(array: Array) -> "np.ndarray[Any, Any]":
    """The array in NumPy; one of CuPy is copied from its device."""
    return array.get() if hasattr(array, "get") else np.asarray(array)


def checked_axis(context: NodeContext, axis: int, axes: int) -> int:
    """The axis counted from the front. Raises `ConfigurationError` where the tensor has none such."""
    if not -axes <= axis < axes:
        raise ConfigurationError(
            f"the node {context.node} names the axis {axis} of a tensor with {axes} axes: it must be from "
            f"{-axes} up to {axes - 1}"
        )
    return axis % axes
