"""GroupNormalization and InstanceNormalization: each image for itself, channels in groups"""

import math
from collections.abc import Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.standardization import (
    EPSILON,
    affine_gradients,
    along_channels,
    standardized,
    through_standardized,
)
from d5ray.ops.arrays.wide import WideOperator, kept, outputs_and_kept


@final
class GroupNormalization(WideOperator):
    """y = (x − mean) / √(variance + epsilon) · scale + shift, over groups of channels (arXiv:1803.08494).

    x (batch, channels, ...), scale and shift (channels,); num_groups groups of neighbouring channels.
    """

    needs = 3

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        return _normalized_in_groups(xp, context, inputs, int(context.required("num_groups")))

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        return _through_groups(context, gradients, inputs, outputs)


@final
class InstanceNormalization(WideOperator):
    """y = (x − mean) / √(variance + epsilon) · scale + shift, per image and channel (arXiv:1607.08022)."""

    needs = 3

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        return _normalized_in_groups(xp, context, inputs, x.shape[1])

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        return _through_groups(context, gradients, inputs, outputs)


def _normalized_in_groups(
    xp: Any, context: NodeContext, inputs: Sequence[Array | None], groups: int
) -> Arrays:
    x, scale, shift = inputs
    assert x is not None
    if x.ndim < 2 or x.shape[1] % groups:
        raise ConfigurationError(
            f"{context.node} has {groups} groups for x of {x.shape}: they must divide its second axis"
        )
    grouped = x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    normalized, _, _, factor = standardized(xp, grouped, (2,), context.attribute("epsilon", EPSILON))
    y = normalized.reshape(x.shape) * along_channels(scale, x.ndim) + along_channels(shift, x.ndim)
    return outputs_and_kept(context, (y,), normalized, factor)


def _through_groups(
    context: NodeContext,
    gradients: Sequence[Array | None],
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
) -> Gradients:
    x, scale, gradient, (normalized, factor) = inputs[0], inputs[1], gradients[0], kept(context, outputs)
    assert x is not None and scale is not None and gradient is not None
    of_scale, of_shift = affine_gradients(gradient, normalized.reshape(x.shape), scale.shape)
    scaled = (gradient * along_channels(scale, x.ndim)).reshape(normalized.shape)
    of_x = through_standardized(scaled, normalized, factor, (2,)).reshape(x.shape)
    return of_x, of_scale, of_shift
