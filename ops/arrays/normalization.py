"""Normalization over batches, layers, instances, groups, and by the root mean square"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.site import Site
from d5ray.ops.arrays.broadcasting import summed_to_shape
from d5ray.ops.arrays.normalization_by_size import LRN, LpNormalization
from d5ray.ops.arrays.standardization import (
    affine_gradients,
    along_channels,
    but_channels,
    standardized,
    through_standardized,
)
from d5ray.ops.arrays.wide import WideOperator, gradient_of, kept, optional, outputs_and_kept

EPSILON = 1e-5  # ONNX's default


@final
class BatchNormalization(WideOperator):
    """y = (x − mean) / √(variance + epsilon) · scale + shift, channel by channel (arXiv:1502.03167)

    Training, the statistics are the batch's, and two more outputs are the running ones, each momentum · old +
    (1 − momentum) · the batch's, with the variance of the population. Otherwise the statistics are the inputs
    3 and 4. No gradient goes into or through the running statistics, in training as in every framework.
    x (batch, channels, ...), all others (channels,).
    """

    needs = 5
    types = MappingProxyType({1: 3, 2: 4})

    def compute(self, xp: Any, site: Site, inputs: Sequence[Array | None]) -> Arrays:
        x, scale, shift, mean, variance = inputs
        assert x is not None and mean is not None and variance is not None
        epsilon = site.attribute("epsilon", EPSILON)
        if not _trains(site):
            factor = scale / xp.sqrt(variance + epsilon)
            offset = shift - mean * factor
            y = x * along_channels(factor, x.ndim) + along_channels(offset, x.ndim)
            return outputs_and_kept(site, (y.astype(x.dtype, copy=False), mean, variance))
        normalized, batch_mean, batch_variance, factor = standardized(xp, x, but_channels(x.ndim), epsilon)
        y = normalized * along_channels(scale, x.ndim) + along_channels(shift, x.ndim)
        momentum = site.attribute("momentum", 0.9)
        running_mean = mean * momentum + batch_mean.reshape(mean.shape) * (1 - momentum)
        running_variance = variance * momentum + batch_variance.reshape(variance.shape) * (1 - momentum)
        outputs = (
            y.astype(x.dtype, copy=False),
            running_mean.astype(mean.dtype, copy=False),
            running_variance.astype(variance.dtype, copy=False),
        )
        return outputs_and_kept(site, outputs, normalized, factor)

    def differentiate(
        self,
        xp: Any,
        site: Site,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, scale, _, mean, variance = inputs
        gradient = gradients[0]
        if gradient is None:
            return (None,) * 5
        assert x is not None and scale is not None and mean is not None and variance is not None
        if _trains(site):
            normalized, factor = kept(site, outputs)
            of_scale, of_shift = affine_gradients(gradient, normalized, scale.shape)
            scaled = gradient * along_channels(scale, x.ndim)
            of_x = through_standardized(scaled, normalized, factor, but_channels(x.ndim))
            return of_x, of_scale, of_shift, None, None
        factor = 1 / xp.sqrt(variance + site.attribute("epsilon", EPSILON))
        normalized = (x - along_channels(mean, x.ndim)) * along_channels(factor, x.ndim)
        of_scale, of_shift = affine_gradients(gradient, normalized, scale.shape)
        of_x = gradient * along_channels(scale * factor, x.ndim)
        of_mean, of_variance = -of_shift * scale * factor, -0.5 * of_scale * scale * xp.square(factor)
        return of_x, of_scale, of_shift, of_mean, of_variance


@final
class LayerNormalization(WideOperator):
    """y = (x − mean) / √(variance + epsilon) · scale + shift over the axes from `axis` on (arXiv:1607.06450)

    Two more outputs are the mean and 1 / √(variance + epsilon), with axes of size 1.
    """

    needs = 2
    types = MappingProxyType({1: None, 2: None})

    def compute(self, xp: Any, site: Site, inputs: Sequence[Array | None]) -> Arrays:
        x, scale, shift = inputs[0], inputs[1], optional(inputs, 2)
        assert x is not None
        normalized, mean, _, factor = standardized(
            xp, x, _from_axis(site, x), site.attribute("epsilon", EPSILON)
        )
        y = normalized * scale
        if shift is not None:
            y += shift
        stored = (each.astype(_stash_type(site), copy=False) for each in (mean, factor))
        return outputs_and_kept(site, (y, *stored), normalized, factor)

    def differentiate(
        self,
        xp: Any,
        site: Site,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, scale, shift, gradient = inputs[0], inputs[1], optional(inputs, 2), gradients[0]
        assert x is not None and scale is not None
        axes, (normalized, factor) = _from_axis(site, x), kept(site, outputs)
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
    """y = x / √(mean(x²) + epsilon) · scale over the axes from `axis` on (arXiv:1910.07467)"""

    needs = 2

    def compute(self, xp: Any, site: Site, inputs: Sequence[Array | None]) -> Arrays:
        x, scale = inputs
        assert x is not None
        mean = xp.square(x).mean(axis=_from_axis(site, x), keepdims=True)
        factor = 1 / xp.sqrt(mean + site.attribute("epsilon", EPSILON))
        return outputs_and_kept(site, (x * factor * scale,), factor)

    def differentiate(
        self,
        xp: Any,
        site: Site,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, scale, gradient, (factor,) = inputs[0], inputs[1], gradients[0], kept(site, outputs)
        assert x is not None and scale is not None and gradient is not None
        normalized, scaled = x * factor, gradient * scale
        mean = (scaled * normalized).mean(axis=_from_axis(site, x), keepdims=True)
        of_x = factor * (scaled - normalized * mean)
        return of_x, summed_to_shape(gradient * normalized, scale.shape)


@final
class GroupNormalization(WideOperator):
    """y = (x − mean) / √(variance + epsilon) · scale + shift, over groups of channels (arXiv:1803.08494)

    x (batch, channels, ...), scale and shift (channels,); num_groups groups of neighbouring channels.
    """

    needs = 3

    def compute(self, xp: Any, site: Site, inputs: Sequence[Array | None]) -> Arrays:
        return _normalized_in_groups(xp, site, inputs, int(site.required("num_groups")))

    def differentiate(
        self,
        xp: Any,
        site: Site,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        return _through_groups(site, gradients, inputs, outputs)


@final
class InstanceNormalization(WideOperator):
    """y = (x − mean) / √(variance + epsilon) · scale + shift, per image and channel (arXiv:1607.08022)"""

    needs = 3

    def compute(self, xp: Any, site: Site, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        return _normalized_in_groups(xp, site, inputs, x.shape[1])

    def differentiate(
        self,
        xp: Any,
        site: Site,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        return _through_groups(site, gradients, inputs, outputs)


@final
class MeanVarianceNormalization(WideOperator):
    """y = (x − mean) / (√variance + 1e-9) over the axes"""

    def compute(self, xp: Any, site: Site, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        axes = tuple(site.attribute("axes", (0, 2, 3)))
        centred = x - x.mean(axis=axes, keepdims=True)
        deviation = xp.sqrt(xp.square(centred).mean(axis=axes, keepdims=True))
        return outputs_and_kept(site, (centred / (deviation + 1e-9),), deviation)

    def differentiate(
        self,
        xp: Any,
        site: Site,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        y, (deviation,) = outputs[0], kept(site, outputs)
        axes = tuple(site.attribute("axes", (0, 2, 3)))
        constant = deviation == 0  # there the deviation has a corner: no gradient comes from it
        ratio = xp.where(constant, 0, (deviation + 1e-9) / xp.where(constant, 1, deviation))
        gradient: Array = gradients[0]
        result = gradient - gradient.mean(axis=axes, keepdims=True)
        result -= y * (ratio * (gradient * y).mean(axis=axes, keepdims=True))
        result /= deviation + 1e-9
        return (result,)


def _trains(site: Site) -> bool:
    return bool(site.attribute("training_mode", 0)) and not site.evaluating


def _from_axis(site: Site, x: Array) -> tuple[int, ...]:
    axis = int(site.attribute("axis", -1))
    if not -x.ndim <= axis < x.ndim:
        raise ConfigurationError(
            f"{site.node} has axis {axis} for x of {x.shape}: it must be one of x's axes"
        )
    return tuple(range(axis % x.ndim, x.ndim))


def _stash_type(site: Site) -> Any:
    """The type of a LayerNormalization's mean, as ONNX numbers types: 1 is float32."""
    return {1: np.float32, 11: np.float64}.get(int(site.attribute("stash_type", 1)), np.float32)


def _normalized_in_groups(xp: Any, site: Site, inputs: Sequence[Array | None], groups: int) -> Arrays:
    x, scale, shift = inputs
    assert x is not None
    if x.ndim < 2 or x.shape[1] % groups:
        raise ConfigurationError(
            f"{site.node} has {groups} groups for x of {x.shape}: they must divide its second axis"
        )
    grouped = x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    normalized, _, _, factor = standardized(xp, grouped, (2,), site.attribute("epsilon", EPSILON))
    y = normalized.reshape(x.shape) * along_channels(scale, x.ndim) + along_channels(shift, x.ndim)
    return outputs_and_kept(site, (y,), normalized, factor)


def _through_groups(
    site: Site, gradients: Sequence[Array | None], inputs: Sequence[Array | None], outputs: Sequence[Array]
) -> Gradients:
    x, scale, gradient, (normalized, factor) = inputs[0], inputs[1], gradients[0], kept(site, outputs)
    assert x is not None and scale is not None and gradient is not None
    of_scale, of_shift = affine_gradients(gradient, normalized.reshape(x.shape), scale.shape)
    scaled = (gradient * along_channels(scale, x.ndim)).reshape(normalized.shape)
    of_x = through_standardized(scaled, normalized, factor, (2,)).reshape(x.shape)
    return of_x, of_scale, of_shift


OPERATORS: Mapping[str, ArrayOperator] = {
    "BatchNormalization": BatchNormalization(),
    "GroupNormalization": GroupNormalization(),
    "InstanceNormalization": InstanceNormalization(),
    "LRN": LRN(),
    "LayerNormalization": LayerNormalization(),
    "LpNormalization": LpNormalization(),
    "MeanVarianceNormalization": MeanVarianceNormalization(),
    "RMSNormalization": RMSNormalization(),
}
