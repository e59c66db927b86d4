"""Comparisons, logic, bits, and Where"""

from collections.abc import Mapping

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Tensor, plain


def _shift(context: NodeContext) -> Kernel:
    """A shift by less than nothing, or by all bits and more, leaves the sign's extension alone: 0 or −1."""
    direction = context.required("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise ConfigurationError(
            f"the node {context.node} has direction={direction!r}: give 'LEFT' or 'RIGHT'"
        )

    def left(x: Tensor, by: Tensor) -> Tensor:
        outside = (by < 0) | (by >= x.dtype.size * 8)
        shifted = tf.bitwise.left_shift(x, tf.where(outside, tf.zeros_like(by), by))
        return tf.where(outside, tf.zeros_like(shifted), shifted)

    def right(x: Tensor, by: Tensor) -> Tensor:
        bits = x.dtype.size * 8
        outside = (by < 0) | (by >= bits)
        shifted = tf.bitwise.right_shift(
            x, tf.where(outside, tf.fill(tf.shape(by), tf.cast(bits - 1, by.dtype)), by)
        )
        return tf.where(outside, tf.zeros_like(shifted), shifted) if x.dtype.is_unsigned else shifted

    return left if direction == "LEFT" else right


def _is_infinite(context: NodeContext) -> Kernel:
    positive, negative = context.attribute("detect_positive", 1), context.attribute("detect_negative", 1)
    if positive and negative:
        return tf.math.is_inf  # type: ignore[no-any-return]
    if positive:
        return lambda x: tf.equal(x, float("inf"))
    if negative:
        return lambda x: tf.equal(x, float("-inf"))
    return lambda x: tf.zeros_like(x, tf.bool)


FACTORIES: Mapping[str, KernelFactory] = {
    "And": plain(tf.logical_and),
    "BitShift": _shift,
    "BitwiseAnd": plain(tf.bitwise.bitwise_and),
    "BitwiseNot": plain(tf.bitwise.invert),
    "BitwiseOr": plain(tf.bitwise.bitwise_or),
    "BitwiseXor": plain(tf.bitwise.bitwise_xor),
    "Equal": plain(tf.equal),
    "Greater": plain(tf.greater),
    "GreaterOrEqual": plain(tf.greater_equal),
    "IsInf": _is_infinite,
    "IsNaN": plain(tf.math.is_nan),
    "Less": plain(tf.less),
    "LessOrEqual": plain(tf.less_equal),
    "Not": plain(tf.logical_not),
    "Or": plain(tf.logical_or),
    "Where": plain(tf.where),
    "Xor": plain(tf.math.logical_xor),
}
