"""Operators that PyTorch has no function for, computed as NumPy and CuPy compute them"""

from typing import Any

from d5ray.operators.array_operator import ArrayOperator
from d5ray.operators.nodes.kernel_factory import Builder, Built
from d5ray.operators.nodes.node_context import Site
from d5ray.ops.referred import ReferredOp


def by_reference(operator: ArrayOperator) -> Builder:
    """A builder of the array operator, which shares the memory of tensors, and whose `backward` is theirs."""

    def build(site: Site) -> Built:
        from d5ray.ops.custom.torch_operation import TorchOperation  # noqa: PLC0415 - imports these types

        operation = TorchOperation(ReferredOp(operator, site))
        one = len(site.node.outputs) == 1

        def call(*inputs: Any) -> Any:
            return operation(*inputs) if one else tuple(operation(*inputs))

        return call

    return build
