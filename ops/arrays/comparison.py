"""Comparisons, logic, bits, and Where"""

from collections.abc import Mapping, Sequence
from typing import Any, final

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating, narrowed, wide
from d5ray.ops.arrays.formula import Predicate, summed_to_shape


def shifted(xp: Any, x: Array, y: Array, direction: str) -> Array:
    """x with its bits moved y places; by as many as it has, or by less than none, only the sign's stay."""
    bits = 8 * x.dtype.itemsize
    within = (y >= 0) & (y < bits)
    places = xp.where(within, y, y.dtype.type(0))
    if direction == "LEFT":
        return xp.where(within, x << places, x.dtype.type(0))
    return xp.where(within, x >> places, -(x < 0).astype(x.dtype))


def is_infinite(xp: Any, x: Array, detect_negative: int, detect_positive: int) -> Array:
    """True where x is +∞ or −∞, of those two the ones to be detected."""
    signs = xp.where(x > 0, bool(detect_positive), bool(detect_negative))
    return xp.isinf(x) & signs


@final
class Where(ArrayOperator):
    """z = x where the condition holds, y elsewhere; every element's gradient goes where it came from."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        return (xp.where(*inputs),)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dz,), (condition, x, y) = gradients, inputs
        if dz is None or x is None or y is None or not is_floating(x):
            return (None, None, None)
        dz = wide(dz)
        dx, dy = xp.where(condition, dz, 0), xp.where(condition, 0, dz)
        return (
            None,
            narrowed(xp, summed_to_shape(dx, x.shape), x),
            narrowed(xp, summed_to_shape(dy, y.shape), y),
        )


OPERATORS: Mapping[str, ArrayOperator] = {
    "And": Predicate(lambda xp, x, y: x & y),
    "BitShift": Predicate(shifted, {"direction": None}),
    "BitwiseAnd": Predicate(lambda xp, x, y: x & y),
    "BitwiseNot": Predicate(lambda xp, x: ~x),
    "BitwiseOr": Predicate(lambda xp, x, y: x | y),
    "BitwiseXor": Predicate(lambda xp, x, y: x ^ y),
    "Equal": Predicate(lambda xp, x, y: x == y),
    "Greater": Predicate(lambda xp, x, y: x > y),
    "GreaterOrEqual": Predicate(lambda xp, x, y: x >= y),
    "IsInf": Predicate(is_infinite, {"detect_negative": 1, "detect_positive": 1}),
    "IsNaN": Predicate(lambda xp, x: xp.isnan(x)),
    "Less": Predicate(lambda xp, x, y: x < y),
    "LessOrEqual": Predicate(lambda xp, x, y: x <= y),
    "Not": Predicate(lambda xp, x: ~x),
    "Or": Predicate(lambda xp, x, y: x | y),
    "Where": Where(),
    "Xor": Predicate(lambda xp, x, y: x ^ y),
}
