"""Facts about tensors that kernel factories need: sizes, types, and values where these are known"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import helper

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.tensorflow.library import tf

Tensor = Any  # of TensorFlow
# The inputs that say which axes a tensor has: TensorFlow's graph must know them before it runs.
KNOWN_BEFORE: Mapping[str, tuple[int, ...]] = {"Pad": (3,), "Slice": (3,), "Squeeze": (1,), "Unsqueeze": (1,)}
Size = Any  # a number, or a scalar tensor where it is known only when the graph runs


def plain(function: Callable[..., Any]) -> KernelFactory:
    """The kernel factory of what needs no attributes: TensorFlow's own function, as it is."""

    def build(context: NodeContext) -> Kernel:
        return function

    return build


def sizes(x: Tensor) -> list[Size]:
    """The shape: a number for every size that is known, a scalar tensor (int32) for the others."""
    known: list[int | None] = x.shape.as_list()
    if None not in known:
        return known
    asked = tf.shape(x)
    return [asked[axis] if size is None else size for axis, size in enumerate(known)]


def rank(context: NodeContext, x: Tensor) -> int:
    """The number of axes. Raises `ConfigurationError` where even that is open."""
    if x.shape.rank is None:
        raise ConfigurationError(
            f"the node {context.node} needs the number of axes of what it reads, and TensorFlow's graph does "
            "not know it: make the input that gives the shape, or the axes, constant"
        )
    return int(x.shape.rank)


def axis_of(context: NodeContext, x: Tensor, name: str = "axis", default: int = 0) -> int:
    """The axis that the attribute names, counted from the front."""
    axis = int(context.attribute(name, default))
    return axis + rank(context, x) if axis < 0 else axis


def known(context: NodeContext, index: int, given: Tensor | None) -> Any:
    """The value (a NumPy array) of an input where it is known before anything runs, else None.

    It is where the network holds it as a constant, where TensorFlow can fold it, and always when eager.
    """
    if index in context.constants:
        return context.constants[index]
    return None if given is None else tf.get_static_value(given)


def integers(context: NodeContext, index: int, given: Tensor) -> tuple[int, ...]:
    """The numbers that this input holds. Raises `ConfigurationError` where only the running graph knows."""
    value = known(context, index, given)
    if value is None:
        raise must_be_known(context.node, index)
    return tuple(int(number) for number in np.reshape(value, -1))


def must_be_known(node: Node, index: int) -> ConfigurationError:
    """The error where only the running graph knows such an input."""
    return ConfigurationError(
        f"the node {node} reads {node.inputs[index]!r}, whose value TensorFlow must know when it builds the "
        "graph: make it a constant of the network"
    )


def from_front(axes: tuple[int, ...], count: int) -> list[int]:
    """The axes, counted from the front.

    >>> from_front((-1, 0), 4)
    [3, 0]
    """
    return [axis + count if axis < 0 else axis for axis in axes]


def type_of(number: int) -> Any:
    """TensorFlow's type for ONNX's number of one. Raises `ConfigurationError` where it has none."""
    try:
        return tf.as_dtype(helper.tensor_dtype_to_np_dtype(int(number)))
    except (TypeError, KeyError) as error:
        name = helper.tensor_dtype_to_string(int(number)).removeprefix("TensorProto.")
        raise ConfigurationError(f"TensorFlow has no element type for ONNX's {name}") from error


def through(wider: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, where TensorFlow has no kernel for a type: there, by way of a wider type."""

    def call(*given: Tensor) -> Tensor:
        return tf.cast(function(*(tf.cast(x, wider) for x in given)), given[0].dtype)

    return call


def root(x: Tensor, degree: float = 2) -> Tensor:
    """The root of what is not negative, with a gradient of 0, not of infinity, where x is 0."""
    zero = tf.equal(x, 0)
    safe = tf.where(zero, tf.ones_like(x), x)
    taken = tf.sqrt(safe) if degree == 2 else tf.pow(safe, tf.cast(1 / degree, x.dtype))
    return tf.where(zero, tf.zeros_like(x), taken)


def outputs(context: NodeContext, values: list[Tensor]) -> Any:
    """The values of a node: a tensor if it has one output, a tuple otherwise."""
    return values[0] if len(context.node.outputs) == 1 else tuple(values[: len(context.node.outputs)])
