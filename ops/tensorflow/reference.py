"""Operators that TensorFlow has no function for, computed as NumPy computes them"""

from collections.abc import Sequence
from typing import Any, final

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.custom.custom_operator import CustomOp
from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.referred import ReferredOp
from d5ray.ops.tensorflow.held import as_held, holder
from d5ray.ops.tensorflow.tensors import Tensor


@final
class HeldOp(CustomOp):
    """An operator whose arrays are of types that TensorFlow has: what it does not, is held in others."""

    def __init__(self, operator: ReferredOp) -> None:
        self._operator = operator

    @property
    def operator_name(self) -> str:
        return self._operator.operator_name

    @property
    def differentiable(self) -> bool:
        return self._operator.differentiable

    def run_forward(self, xp: Any, inputs: Sequence[Array | None]) -> Arrays:
        return tuple(map(as_held, self._operator.run_forward(xp, inputs)))

    def run_backward(
        self, xp: Any, grads: Sequence[Array], inputs: Sequence[Array | None], outputs: Sequence[Array]
    ) -> Gradients:
        return self._operator.run_backward(xp, grads, inputs, outputs)

    def infer(self, inputs: Sequence[TensorDescriptor | None]) -> tuple[TensorDescriptor, ...] | None:
        """The outputs' descriptors as the network knows them; by itself, all of the first input's type."""
        first = next((each for each in inputs if each is not None), None)
        found = []
        for known in self._operator.expected():
            if known is None and first is None:
                return None
            kind = holder(known.dtype) if known is not None else first.dtype  # type: ignore[union-attr]
            found.append(TensorDescriptor(kind, None if known is None else known.shape))
        return tuple(found)


def by_reference(operator: ArrayOperator) -> KernelFactory:
    """A kernel factory of the array operator: in host memory, differentiated by its `backward`."""

    def build(context: NodeContext) -> Kernel:
        from d5ray.ops.custom.tensorflow_operation import TensorflowOperation  # noqa: PLC0415 - imports these

        operation = TensorflowOperation(HeldOp(ReferredOp(operator, context)))
        if len(context.node.outputs) == 1:
            return operation

        def several(*inputs: Tensor | None) -> Any:
            return tuple(operation(*inputs))

        return several

    return build
