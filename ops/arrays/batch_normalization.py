"""BatchNormalization, in training and in use"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, final

from d5ray.operators.array_operator import Array, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.standardization import (
    EPSILON,
    affine_gradients,
    along_channels,
    but_channels,
    standardized,
    through_standardized,
)
from d5ray.ops.arrays.wide import WideOperator, kept, outputs_and_kept


@final
class BatchNormalization(WideOperator):
    """y = (x − mean) / √(variance + epsilon) · scale + shift, channel by channel (arXiv:1502.03167).

    Training, the statistics are the batch's, and two more outputs are the running ones, each momentum · old +
    (1 − momentum) · the batch's, with the variance of the population. Otherwise the statistics are the inputs
    3 and 4. No gradient goes into or through the running statistics, in training as in every framework.
    x (batch, channels, ...), all others (channels,).
    """

    needs = 5
    types = MappingProxyType({1: 3, 2: 4})

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, scale, shift, mean, variance = inputs
        assert x is not None and mean is not None and variance is not None
        epsilon = context.attribute("epsilon", EPSILON)
        if not _trains(context):
            factor = scale / xp.sqrt(variance + epsilon)
            offset = shift - mean * factor
            y = x * along_channels(factor, x.ndim) + along_channels(offset, x.ndim)
            return outputs_and_kept(context, (y.astype(x.dtype, copy=False), mean, variance))
        normalized, batch_mean, batch_variance, factor = standardized(xp, x, but_channels(x.ndim), epsilon)
        y = normalized * along_channels(scale, x.ndim) + along_channels(shift, x.ndim)
        momentum = context.attribute("momentum", 0.9)
        running_mean = mean * momentum + batch_mean.reshape(mean.shape) * (1 - momentum)
        running_variance = variance * momentum + batch_variance.reshape(variance.shape) * (1 - momentum)
        outputs = (
            y.astype(x.dtype, copy=False),
            running_mean.astype(mean.dtype, copy=False),
            running_variance.astype(variance.dtype, copy=False),
        )
        return outputs_and_kept(context, outputs, normalized, factor)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, scale, _, mean, variance = inputs
        gradient = gradients[0]
        if gradient is None:
            return (None,) * 5
        assert x is not None and scale is not None and mean is not None and variance is not None
        if _trains(context):
            normalized, factor = kept(context, outputs)
            of_scale, of_shift = affine_gradients(gradient, normalized, scale.shape)
            scaled = gradient * along_channels(scale, x.ndim)
            of_x = through_standardized(scaled, normalized, factor, but_channels(x.ndim))
            return of_x, of_scale, of_shift, None, None
        factor = 1 / xp.sqrt(variance + context.attribute("epsilon", EPSILON))
        normalized = (x - along_channels(mean, x.ndim)) * along_channels(factor, x.ndim)
        of_scale, of_shift = affine_gradients(gradient, normalized, scale.shape)
        of_x = gradient * along_channels(scale * factor, x.ndim)
        of_mean, of_variance = -of_shift * scale * factor, -0.5 * of_scale * scale * xp.square(factor)
        return of_x, of_scale, of_shift, of_mean, of_variance


def _trains(context: NodeContext) -> bool:
    return bool(context.attribute("training_mode", 0)) and not context.evaluating
