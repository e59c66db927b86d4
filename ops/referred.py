"""ReferredOp: an array operator with its node context, for frameworks to call and to differentiate"""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients, WithoutGradient
from d5ray.operators.custom.custom_operator import CustomOp
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.arrays.narrow import NARROW, cast_to


@final
class ReferredOp(CustomOp):
    """An operator for which a framework has no function, on arrays: NumPy's, or CuPy's on a GPU.

    Tensors that only hold the numbers of a narrower type, such as int4, become arrays of that type, as the
    context knows it.
    """

    def __init__(self, operator: ArrayOperator, context: NodeContext) -> None:
        self.operator, self.context = operator, context

    @property
    def operator_name(self) -> str:
        return self.context.node.type

    @property
    def differentiable(self) -> bool:
        return not isinstance(self.operator, WithoutGradient)

    def run_forward(self, xp: Any, inputs: Sequence[Array | None]) -> Arrays:
        made = self.operator.forward(xp, self.context, self._typed(inputs))
        return tuple(xp.asarray(each) for each in made[: len(self.context.node.outputs)])

    def run_backward(
        self, xp: Any, grads: Sequence[Array], inputs: Sequence[Array | None], outputs: Sequence[Array]
    ) -> Gradients:
        typed = self._typed(inputs)
        made = self.operator.forward(xp, self.context, typed)  # with what is kept for the way back
        given = [*grads, *[None] * (len(made) - len(grads))]
        return self.operator.backward(xp, self.context, given, typed, made)

    def expected(self) -> list[TensorDescriptor | None]:
        """The outputs' descriptors, None for those not known."""
        return [*self.context.outputs] or [None] * len(self.context.node.outputs)

    def _typed(self, inputs: Sequence[Array | None]) -> list[Array | None]:
        kinds = [None if each is None else each.dtype for each in self.context.inputs]
        kinds += [None] * (len(inputs) - len(kinds))
        return [
            cast_to(np, array, kind)
            if array is not None and kind is not None and kind.name in NARROW
            else array
            for array, kind in zip(inputs, kinds, strict=True)
        ]
