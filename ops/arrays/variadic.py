"""Max, Min, Sum and Mean of any number of operands, broadcast to one shape"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, final

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating, narrowed, wide
from d5ray.ops.arrays.formula import silently, summed_to_shape

Derivatives = list[Array]


@final
@dataclass(frozen=True)
class Variadic(ArrayOperator):
    """y = f(x₁, …, xₙ).

    function(xp, operands) gives y; derivatives(xp, dy, operands, y) gives every operand's gradient in the
    broadcast shape.
    """

    function: Callable[[Any, Sequence[Array]], Array]
    derivatives: Callable[[Any, Array, Sequence[Array], Array], Derivatives]

    @silently
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        operands = [wide(x) for x in inputs if x is not None]
        return (narrowed(xp, self.function(xp, operands), inputs[0]),)

    @silently
    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,) = gradients
        if dy is None or not is_floating(outputs[0]):
            return (None,) * len(inputs)
        operands = [wide(x) for x in inputs if x is not None]
        parts = self.derivatives(xp, wide(dy), operands, wide(outputs[0]))
        return tuple(
            narrowed(xp, summed_to_shape(part, operand.shape), outputs[0])
            for part, operand in zip(parts, operands, strict=True)
        )


def total(xp: Any, operands: Sequence[Array]) -> Array:
    """The sum of all operands, broadcast to one shape."""
    return reduce(lambda x, y: x + y, operands)


def shared(xp: Any, dy: Array, operands: Sequence[Array], y: Array) -> Derivatives:
    """The gradients of an extreme: operands equal to it share alike, as a tie's central difference has it."""
    chosen = [x == y for x in operands]
    share = dy / total(xp, [each.astype(dy.dtype) for each in chosen])
    return [xp.where(each, share, 0) for each in chosen]


OPERATORS: Mapping[str, ArrayOperator] = {
    "Max": Variadic(lambda xp, operands: reduce(xp.maximum, operands), shared),
    "Mean": Variadic(
        lambda xp, operands: total(xp, operands) / len(operands),
        lambda xp, dy, operands, y: [dy / len(operands)] * len(operands),
    ),
    "Min": Variadic(lambda xp, operands: reduce(xp.minimum, operands), shared),
    "Sum": Variadic(total, lambda xp, dy, operands, y: [dy] * len(operands)),
}
