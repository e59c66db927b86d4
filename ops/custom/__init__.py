"""Operators of one's own as implementations of nodes, and as operations of the frameworks."""

from typing import TYPE_CHECKING, Any

from d5ray.operators.nodes.node_context import Kernel, NodeContext

if TYPE_CHECKING:
    from d5ray.ops.custom.arrays import CustomArrayOperator


def implementation(framework: str, context: NodeContext) -> Any:
    """An `ArrayOperator` for numpy and cupy, what is `Kernel` of the node for torch and tensorflow.

    Raises `ConfigurationError`, naming the node, where nothing is registered for it.
    """
    if framework == "torch":
        return torch_builder(context)
    return tensorflow_builder(context) if framework == "tensorflow" else array_operator(context)


def array_operator(context: NodeContext) -> "CustomArrayOperator":
    """The registered operator of the node, in terms of an array module.

    Raises `ConfigurationError`, naming the node, where nothing is registered for it.
    """
    from d5ray.ops.custom.arrays import CustomArrayOperator  # noqa: PLC0415 - beside the other two

    return CustomArrayOperator(context.node)


def torch_builder(context: NodeContext) -> Kernel:
    """The registered operator of the node as a function of PyTorch; a `KernelFactory`."""
    from d5ray.ops.custom.torch_operation import built  # noqa: PLC0415 - imports torch

    return built(context)


def tensorflow_builder(context: NodeContext) -> Kernel:
    """The registered operator of the node as a function of TensorFlow; a `KernelFactory`."""
    from d5ray.ops.custom.tensorflow_operation import built  # noqa: PLC0415 - imports tensorflow

    return built(context)
