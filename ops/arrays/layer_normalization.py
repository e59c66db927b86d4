"""LayerNormalization and RMSNormalization: over the last axes"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.formula import summed_to_shape
from d5ray.ops.arrays.standardization import EPSILON, standardized, through_standardized
from d5ray.ops.arrays.wide import WideOperator, gradient_of, kept, optional, outputs_and_kept


@final
class LayerNormalization(WideOperator):
    """y = (x − mean) / √(variance + epsilon) · scale + shift over the axes from `axis` on (arXiv:1607.06450).

    Two more outputs are the mean and 1 / √(variance + epsilon), with axes of size 1.
    """

    needs = 2
    types = MappingProxyType({1: None, 2: None})

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, scale, shift = inputs[0], inputs[1], optional(inputs, 2)
        assert x is not None
        normalized, mean, _, factor = standardized(
            xp, x, _from_axis(context, x), context.attribute("epsilon", EPSILON)
        )
        y = normalized * scale
        if shift is not None:
            y += shift
        stored = (each.astype(_stash_type(context), copy=False) for each in (mean, factor))
        return outputs_and_kept(context, (y, *stored), normalized, factor)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, scale, shift, gradient = inputs[0], inputs[1], optional(inputs, 2), gradients[0]
        assert x is not None and scale is not None
        axes, (normalized, factor) = _from_axis(context, x), kept(context, outputs)
        of_x, of_scale, of_shift = xp.zeros_like(x), xp.zeros_like(scale), None
        if gradient is not None:
            of_x = through_standardized(gradient * scale, normalized, factor, axes)
            of_scale = summed_to_shape(gradient * normalized, scale.shape)
        if shift is not None:
            of_shift = xp.zeros_like(shift) if gradient is None else summed_to_shape(gradient, shift.shape)
        count = x.size // max(1, factor.size)
        if (of_mean := gradient_of(gradients, 1)) is not None:
            of_x += of_mean.astype(x.dtype, copy=False) / count
        if (of_factor := gradient_of(gradients, 2)) is not None:
            of_x -= of_factor.astype(x.dtype, copy=False) * xp.square(factor) * normalized / count
        return (of_x, of_scale, of_shift)[: len(inputs)]


@final
class RMSNormalization(WideOperator):
    """y = x / √(mean(x²) + epsilon) · scale over the axes from `axis` on (arXiv:1910.07467)."""

    needs = 2

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, scale = inputs
        assert x is not None
        mean = xp.square(x).mean(axis=_from_axis(context, x), keepdims=True)
        factor = 1 / xp.sqrt(mean + context.attribute("epsilon", EPSILON))
        return outputs_and_kept(context, (x * factor * scale,), factor)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, scale, gradient, (factor,) = inputs[0], inputs[1], gradients[0], kept(context, outputs)
        assert x is not None and scale is not None and gradient is not None
        normalized, scaled = x * factor, gradient * scale
        mean = (scaled * normalized).mean(axis=_from_axis(context, x), keepdims=True)
        of_x = factor * (scaled - normalized * mean)
        return of_x, summed_to_shape(gradient * normalized, scale.shape)


def _from_axis(context: NodeContext, x: Array) -> tuple[int, ...]:
    axis = int(context.attribute("axis", -1))
    if not -x.ndim <= axis < x.ndim:
        raise ConfigurationError(
            f"{context.node} has axis {axis} for x of {x.shape}: it must be one of x's axes"
        )
    return tuple(range(axis % x.ndim, x.ndim))


def _stash_type(context: NodeContext) -> Any:
    """The type of a LayerNormalization's mean, as ONNX numbers types: 1 is float32."""
    return {1: np.float32, 11: np.float64}.get(int(context.attribute("stash_type", 1)), np.float32)
