"""Operators that PyTorch has no function for, computed as NumPy and CuPy compute them"""

from typing import Any

from d5ray.operators.array_operator import ArrayOperator
from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.referred import ReferredOp


def by_reference(operator: ArrayOperator) -> KernelFactory:
    """A kernel factory of the array operator, which shares tensors' memory; its `backward` is theirs."""

    def build(context: NodeContext) -> Kernel:
        from d5ray.ops.custom.torch_operation import TorchOperation  # noqa: PLC0415 - imports these types

        operation = TorchOperation(ReferredOp(operator, context))
        one = len(context.node.outputs) == 1

        def call(*inputs: Any) -> Any:
            return operation(*inputs) if one else tuple(operation(*inputs))

        return call

    return build
