"""Dropout"""

from collections.abc import Mapping, Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.known import numbers
from d5ray.ops.arrays.wide import WideOperator, gradient_of, outputs_and_kept


@final
class Dropout(WideOperator):
    """y = mask · x / (1 − ratio), the mask 1 with probability 1 − ratio; y = x unless it trains.

    Inputs: x, ratio (0.5 where it is left out), training_mode (false). The mask comes from `context.random`,
    a uniform number for each element, so that a run's seed decides; the attribute `seed` would give the same
    mask at every step.
    """

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        ratio = ratio_of(context, inputs)
        if ratio == 0:
            mask = (xp.ones(x.shape, dtype=bool),) if context.has_output(1) else ()
            return (x, *mask)
        mask = context.random.random(x.shape) >= ratio
        y = x * mask
        if ratio < 1:
            y *= 1 / (1 - ratio)
        return outputs_and_kept(context, (y, mask), mask)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        ratio, gradient = ratio_of(context, inputs), gradient_of(gradients, 0)
        if gradient is not None and ratio > 0:
            gradient = gradient * outputs[-1]
            if ratio < 1:
                gradient *= 1 / (1 - ratio)
        return (gradient, None, None)[: len(inputs)]


def ratio_of(context: NodeContext, inputs: Sequence[Array | None]) -> float:
    """The share of elements that are dropped, 0 unless it trains."""
    if context.evaluating or not any(numbers(context, inputs, 2) or ()):
        return 0.0
    (ratio,) = numbers(context, inputs, 1) or (0.5,)
    if not 0 <= ratio <= 1:
        raise ConfigurationError(f"{context.node} has the ratio {ratio}: it must lie between 0 and 1")
    return float(ratio)


OPERATORS: Mapping[str, ArrayOperator] = {"Dropout": Dropout()}
