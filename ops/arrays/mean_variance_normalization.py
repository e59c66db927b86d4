"""MeanVarianceNormalization"""

from collections.abc import Sequence
from typing import Any, final

from d5ray.operators.array_operator import Array, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.wide import WideOperator, kept, outputs_and_kept


@final
class MeanVarianceNormalization(WideOperator):
    """y = (x − mean) / (√variance + 1e-9) over the axes."""

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        axes = tuple(context.attribute("axes", (0, 2, 3)))
        centred = x - x.mean(axis=axes, keepdims=True)
        deviation = xp.sqrt(xp.square(centred).mean(axis=axes, keepdims=True))
        return outputs_and_kept(context, (centred / (deviation + 1e-9),), deviation)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        y, (deviation,) = outputs[0], kept(context, outputs)
        axes = tuple(context.attribute("axes", (0, 2, 3)))
        constant = deviation == 0  # there the deviation has a corner: no gradient comes from it
        ratio = xp.where(constant, 0, (deviation + 1e-9) / xp.where(constant, 1, deviation))
        gradient: Array = gradients[0]
        result = gradient - gradient.mean(axis=axes, keepdims=True)
        result -= y * (ratio * (gradient * y).mean(axis=axes, keepdims=True))
        result /= deviation + 1e-9
        return (result,)
