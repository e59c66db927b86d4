"""Costs of a node: floating-point operations and bytes, forwards and backwards"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.counting.counted_context import Counted
from d5ray.ops.counting.flops import backward_flops, forward_flops


@final
@dataclass(frozen=True)
class NodeCost:
    """Operations (a multiplication and an addition are two), and bytes that are read and written once."""

    flops: int
    bytes: int

    @property
    def intensity(self) -> float:
        """Operations for each byte, which a roofline has on its horizontal axis (Williams et al., 2009)."""
        return self.flops / self.bytes if self.bytes else 0.0


def forward_cost(context: NodeContext) -> NodeCost:
    """The cost of the node, from its descriptors: every input is read, every output written once.

    Raises `ConfigurationError` where a descriptor is unknown or its sizes are open, or for a type that the
    catalogue has not. How operations are counted: `d5ray.ops.counting.flops`.

    >>> from d5ray.operators.nodes.node import Node
    >>> matrix = TensorDescriptor("float32", (64, 64))
    >>> product = Node("MatMul", ("a", "b"), ("y",))
    >>> forward_cost(NodeContext(product, inputs=(matrix, matrix), outputs=(matrix,)))
    NodeCost(flops=524288, bytes=49152)
    """
    counted = _counted(context)
    moved = sum(each.bytes for each in (*_given(counted.inputs), *_given(counted.outputs)))
    return NodeCost(forward_flops(counted), moved)


def backward_cost(context: NodeContext) -> NodeCost | None:
    """The cost of the gradients of all floating-point inputs together; None for a type that has no gradient.

    Read are the inputs and the gradients of the outputs, written are the gradients of the inputs.
    """
    counted = _counted(context)
    flops = backward_flops(counted)
    if flops is None:
        return None
    read = sum(each.bytes for each in (*_given(counted.inputs), *_floating(counted.outputs)))
    return NodeCost(flops, read + sum(each.bytes for each in _floating(counted.inputs)))


def _counted(context: NodeContext) -> Counted:
    return Counted(
        context,
        tuple(_known(context, context.node.inputs, context.inputs, "input")),
        tuple(_known(context, context.node.outputs, context.outputs, "output")),
    )


def _known(
    context: NodeContext, names: Iterable[str], found: tuple[TensorDescriptor | None, ...], kind: str
) -> Iterable[TensorDescriptor | None]:
    for index, name in enumerate(names):
        descriptor = found[index] if index < len(found) else None
        if name and descriptor is None:
            raise ConfigurationError(
                f"the cost of {context.node} cannot be told: give the type and shape of its {kind} {name!r}"
            )
        yield descriptor if name else None


def _given(descriptors: Iterable[TensorDescriptor | None]) -> Iterable[TensorDescriptor]:
    return (each for each in descriptors if each is not None)


def _floating(descriptors: Iterable[TensorDescriptor | None]) -> Iterable[TensorDescriptor]:
    return (each for each in _given(descriptors) if each.dtype.kind == "f" or each.dtype.name == "bfloat16")
