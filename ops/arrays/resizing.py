"""Resize"""

from collections.abc import Mapping, Sequence
from typing import Any, final

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.known import numbers
from d5ray.ops.arrays.wide import WideOperator
from d5ray.ops.geometry.interpolation import AxisPlan, axis_plans


@final
class Resize(WideOperator):
    """y[…, o, …] = Σ_n w[o, n] · x[…, i[o, n], …], axis after axis, with i and w of `axis_plans`.

    Inputs: x, roi, scales, sizes. Whole numbers are computed in float64, rounded, and kept in range.
    """

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        result = x
        for plan in _plans(context, inputs):
            result = _resized(xp, result, plan, context.attribute("extrapolation_value", 0.0))
        if result.dtype != x.dtype:
            limits = xp.iinfo(x.dtype)
            result = xp.clip(xp.rint(result), limits.min, limits.max).astype(x.dtype)
        return (result,)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, result = inputs[0], gradients[0]
        assert x is not None
        for plan in reversed(_plans(context, inputs)):
            matrix = xp.asarray(plan.matrix, dtype=x.dtype)
            result = xp.moveaxis(xp.tensordot(result, matrix, axes=(plan.axis, 0)), -1, plan.axis)
        return (result, None, None, None)[: len(inputs)]


def _plans(context: NodeContext, inputs: Sequence[Array | None]) -> list[AxisPlan]:
    x: Array = inputs[0]
    regions, scales, sizes = (numbers(context, inputs, index) or None for index in (1, 2, 3))
    return axis_plans(context, x.shape, regions, scales, sizes)


def _resized(xp: Any, x: Array, plan: AxisPlan, extrapolation: float) -> Array:
    trailing = (1,) * (x.ndim - plan.axis - 1)
    indices = xp.asarray(plan.indices)
    if plan.selects:
        result = xp.take(x, indices[:, 0], axis=plan.axis)
    else:
        kind = x.dtype if x.dtype.kind == "f" else "float64"
        weights = xp.asarray(plan.weights, dtype=kind)
        result = 0
        for neighbour in range(indices.shape[1]):
            part = xp.take(x, indices[:, neighbour], axis=plan.axis)
            result = result + part * weights[:, neighbour].reshape(-1, *trailing)
    if plan.outside is None:
        return result
    return xp.where(xp.asarray(plan.outside).reshape(-1, *trailing), extrapolation, result).astype(
        result.dtype, copy=False
    )


OPERATORS: Mapping[str, ArrayOperator] = {"Resize": Resize()}
