"""Normalization over batches, layers, instances, groups, and by the root mean square"""

from collections.abc import Mapping
from typing import Any

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.tensorflow.layout import ImageLayout, current_layout
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Tensor, axis_of, outputs, rank, root, sizes, type_of

EPSILON = 9.999999747378752e-06  # 1e-5 in float32, as ONNX has it


def _batch_normalization(context: NodeContext) -> Kernel:
    """(x − mean) / √(var + ε) · scale + bias, over all axes but the channels' (arXiv:1502.03167)

    In training mean and variance are the batch's, the variance without Bessel's correction, and the running
    ones become momentum · running + (1 − momentum) · batch's; no gradient goes through these.
    """
    epsilon, momentum = context.attribute("epsilon", EPSILON), context.attribute("momentum", 0.9)
    layout = current_layout()
    if context.evaluating or not context.attribute("training_mode", 0):

        def evaluate(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Any:
            y = _evaluated(layout, x, scale, bias, mean, variance, epsilon)
            return outputs(context, [y, mean, variance])

        return evaluate

    def train(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Any:
        y, own_mean, own_variance = _trained(layout, x, scale, bias, epsilon)
        if len(context.node.outputs) == 1:
            return y
        after = [
            old * momentum + tf.stop_gradient(tf.cast(new, old.dtype)) * (1 - momentum)
            for old, new in ((mean, own_mean), (variance, own_variance))
        ]
        return outputs(context, [y, *after])

    return train


def _fits_kernel(x: Tensor, *statistics: Tensor) -> bool:
    """True if TensorFlow's fused kernel takes them: images of at most float32, statistics of float32."""
    return (
        x.shape.rank == 4 and x.dtype != tf.float64 and all(each.dtype == tf.float32 for each in statistics)
    )


def _evaluated(
    layout: ImageLayout,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    epsilon: float,
) -> Tensor:
    if _fits_kernel(x, scale, bias, mean, variance):
        y = tf.raw_ops.FusedBatchNormV3(
            x=layout.enter(x),
            scale=scale,
            offset=bias,
            mean=mean,
            variance=variance,
            epsilon=epsilon,
            data_format=layout.name(2),
            is_training=False,
        ).y
        return layout.leave(y)
    factor = scale * tf.math.rsqrt(variance + epsilon)
    shape = [-1] + [1] * (x.shape.rank - 2)
    y = (tf.cast(x, factor.dtype) - tf.reshape(mean, shape)) * tf.reshape(factor, shape) + tf.reshape(
        bias, shape
    )
    return tf.cast(y, x.dtype)


def _trained(
    layout: ImageLayout, x: Tensor, scale: Tensor, bias: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalized, with the batch's mean and its variance without Bessel's correction."""
    if _fits_kernel(x, scale, bias):
        found = tf.raw_ops.FusedBatchNormV3(
            x=layout.enter(x),
            scale=scale,
            offset=bias,
            mean=[],
            variance=[],
            epsilon=epsilon,
            data_format=layout.name(2),
            is_training=True,
        )
        count = tf.cast(tf.size(x) // tf.size(scale), scale.dtype)
        return layout.leave(found.y), found.batch_mean, found.batch_variance * ((count - 1) / count)
    wide = tf.cast(x, scale.dtype)
    mean, variance = tf.nn.moments(wide, [0, *range(2, x.shape.rank)], keepdims=True)
    shape = [-1] + [1] * (x.shape.rank - 2)
    y = (wide - mean) * tf.math.rsqrt(variance + epsilon) * tf.reshape(scale, shape) + tf.reshape(bias, shape)
    return tf.cast(y, x.dtype), tf.reshape(mean, [-1]), tf.reshape(variance, [-1])


def _layer_normalization(context: NodeContext) -> Kernel:
    """LayerNormalization over the axes from `axis` on (arXiv:1607.06450); the mean and 1/√(var + ε) too."""
    epsilon, stash = context.attribute("epsilon", EPSILON), _stash(context)

    def call(x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
        axes = list(range(axis_of(context, x, default=-1), rank(context, x)))
        wide = _at_least(x, stash)
        mean, variance = tf.nn.moments(wide, axes, keepdims=True)
        inverse = tf.math.rsqrt(variance + epsilon)
        y = tf.cast((wide - mean) * inverse, x.dtype) * scale
        y = y if bias is None else y + bias
        return outputs(context, [y, mean, inverse])

    return call


def _rms_normalization(context: NodeContext) -> Kernel:
    """x / √(mean(x²) + ε) · scale, over the axes from `axis` on   (Zhang and Sennrich, arXiv:1910.07467)"""
    epsilon, stash = context.attribute("epsilon", EPSILON), _stash(context)

    def call(x: Tensor, scale: Tensor) -> Tensor:
        axes = list(range(axis_of(context, x, default=-1), rank(context, x)))
        wide = _at_least(x, stash)
        inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(wide), axes, keepdims=True) + epsilon)
        return tf.cast(wide * inverse, scale.dtype) * scale

    return call


def _stash(context: NodeContext) -> Any:
    """The type in which statistics of 16-bit numbers are computed."""
    return type_of(context.attribute("stash_type", 1))


def _at_least(x: Tensor, wide: Any) -> Tensor:
    return x if x.dtype.size >= wide.size else tf.cast(x, wide)


def _instance_normalization(context: NodeContext) -> Kernel:
    """InstanceNormalization over the space of each channel of each image   (arXiv:1607.08022)"""
    epsilon = context.attribute("epsilon", EPSILON)

    def call(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        mean, variance = tf.nn.moments(x, list(range(2, x.shape.rank)), keepdims=True)
        shape = [-1] + [1] * (x.shape.rank - 2)
        factor = tf.math.rsqrt(variance + epsilon) * tf.reshape(scale, shape)
        return (x - mean) * factor + tf.reshape(bias, shape)

    return call


def _group_normalization(context: NodeContext) -> Kernel:
    """GroupNormalization over groups of channels of each image   (Wu and He, arXiv:1803.08494)"""
    epsilon, groups, stash = (
        context.attribute("epsilon", EPSILON),
        context.required("num_groups"),
        _stash(context),
    )

    def call(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        shape, wide = sizes(x), _at_least(x, stash)
        grouped = tf.reshape(wide, [shape[0], groups, -1])
        mean, variance = tf.nn.moments(grouped, [2], keepdims=True)
        normal = tf.reshape((grouped - mean) * tf.math.rsqrt(variance + epsilon), shape)
        along = [-1] + [1] * (x.shape.rank - 2)
        return tf.cast(normal, x.dtype) * tf.reshape(scale, along) + tf.reshape(bias, along)

    return call


def _local_response_normalization(context: NodeContext) -> Kernel:
    """x / (bias + α/size · Σ x²)^β, the sum over `size` neighbouring channels   (Krizhevsky et al., 2012)"""
    size, bias = context.required("size"), context.attribute("bias", 1.0)
    alpha, beta = context.attribute("alpha", 9.999999747378752e-05), context.attribute("beta", 0.75)
    layout = current_layout()

    def call(x: Tensor) -> Tensor:
        if x.shape.rank == 4 and size % 2 == 1 and x.dtype != tf.float64 and not layout.first:
            y = tf.nn.local_response_normalization(layout.enter(x), size // 2, bias, alpha / size, beta)
            return layout.leave(y)
        before, after = (size - 1) // 2, size // 2
        channels = sizes(x)[1]
        squares = tf.pad(tf.square(x), [(0, 0), (before, after)] + [(0, 0)] * (x.shape.rank - 2))
        total = tf.add_n([squares[:, place : place + channels] for place in range(size)])
        return x * tf.pow(bias + alpha / size * total, -beta)

    return call


def _lp_normalization(context: NodeContext) -> Kernel:
    """x / (Σ |x|^p)^(1/p), 0 where the norm is 0."""
    axis, degree = context.attribute("axis", -1), context.attribute("p", 2)

    def call(x: Tensor) -> Tensor:
        if degree == 1:
            return tf.math.divide_no_nan(x, tf.reduce_sum(tf.abs(x), axis, keepdims=True))
        return tf.math.divide_no_nan(x, root(tf.reduce_sum(tf.square(x), axis, keepdims=True)))

    return call


def _mean_variance_normalization(context: NodeContext) -> Kernel:
    """(x − mean) / (√var + 1e-9)"""
    axes = list(context.attribute("axes", (0, 2, 3)))

    def call(x: Tensor) -> Tensor:
        mean, variance = tf.nn.moments(x, axes, keepdims=True)
        return (x - mean) / (root(variance) + 1e-9)

    return call


FACTORIES: Mapping[str, KernelFactory] = {
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "LRN": _local_response_normalization,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "RMSNormalization": _rms_normalization,
}
