"""Element-wise arithmetic and functions, with broadcasting"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.tensorflow.layout import kept_layout
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Tensor, plain


def _absolute(x: Tensor) -> Tensor:
    return x if x.dtype.is_unsigned else tf.abs(x)


def _sign(x: Tensor) -> Tensor:
    if x.dtype.is_floating or x.dtype in (tf.int32, tf.int64):
        return tf.sign(x)
    return tf.cast(x > 0, x.dtype) - tf.cast(x < 0, x.dtype)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    """The quotient, of integers towards zero, as in C."""
    return tf.truncatediv(a, b) if a.dtype.is_integer else tf.realdiv(a, b)


def _power(a: Tensor, b: Tensor) -> Tensor:
    """The power in a's type; an integer to a fractional power is computed in the power's type."""
    if a.dtype.is_integer and b.dtype.is_floating:
        return tf.cast(tf.pow(tf.cast(a, b.dtype), b), a.dtype)
    return tf.pow(a, tf.cast(b, a.dtype))


def _build_power(context: NodeContext) -> Kernel:
    """Squares, the most frequent power, are a kernel of their own."""
    exponent = context.constants.get(1)
    if exponent is None or np.size(exponent) != 1 or exponent.ndim or float(exponent) != 2.0:
        return kept_layout(_power)
    square = kept_layout(tf.square)
    return lambda a, b: square(a)


def _folded(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """A function of any number of inputs, two at a time."""

    def call(*given: Tensor) -> Tensor:
        return reduce(function, given)

    return call


def _mean(*given: Tensor) -> Tensor:
    total = reduce(tf.add, given)
    return total / tf.cast(len(given), total.dtype)


def _floor_modulo(a: Tensor, b: Tensor) -> Tensor:
    """a − ⌊a/b⌋ b, of b's sign, zeros included."""
    if a.dtype.is_integer:
        return tf.math.floormod(a, b)
    rest = tf.math.floormod(a, b)
    zero = tf.zeros_like(rest)
    return tf.where(tf.equal(rest, 0), tf.where(b < 0, -zero, zero), rest)


def _truncated_modulo(a: Tensor, b: Tensor) -> Tensor:
    """a − trunc(a/b) b, of a's sign; its gradient is 1 and −trunc(a/b)."""
    if a.dtype in (tf.int32, tf.int64):
        return tf.truncatemod(a, b)
    if a.dtype.is_unsigned:
        return tf.math.floormod(a, b)
    if a.dtype.is_integer:
        return tf.cast(tf.truncatemod(tf.cast(a, tf.int64), tf.cast(b, tf.int64)), a.dtype)
    if a.dtype.size < 4:  # exact in float32, and TensorFlow has no kernel for less
        return tf.cast(_float_modulo(tf.cast(a, tf.float32), tf.cast(b, tf.float32)), a.dtype)
    return _float_modulo(a, b)


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _float_modulo(a: Tensor, b: Tensor) -> Any:
    def backward(gradient: Tensor) -> tuple[Tensor, Tensor]:
        quotient = tf.stop_gradient(tf.realdiv(a, b))
        whole = tf.where(quotient < 0, tf.math.ceil(quotient), tf.math.floor(quotient))
        return _sum_to(gradient, a), _sum_to(-whole * gradient, b)

    return tf.truncatemod(a, b), backward


def _sum_to(gradient: Tensor, x: Tensor) -> Tensor:
    """The gradient with respect to what was broadcast."""
    own, _ = tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(x), s1=tf.shape(gradient))
    return tf.reshape(tf.reduce_sum(gradient, own), tf.shape(x))


def _modulo(context: NodeContext) -> Kernel:
    return _truncated_modulo if context.attribute("fmod", 0) else _floor_modulo


FACTORIES: Mapping[str, KernelFactory] = {
    "Abs": plain(kept_layout(_absolute)),
    "Acos": plain(tf.acos),
    "Acosh": plain(tf.acosh),
    "Add": plain(kept_layout(tf.add)),
    "Asin": plain(tf.asin),
    "Asinh": plain(tf.asinh),
    "Atan": plain(tf.atan),
    "Atanh": plain(tf.atanh),
    "Ceil": plain(tf.math.ceil),
    "Cos": plain(tf.cos),
    "Cosh": plain(tf.cosh),
    "Div": plain(kept_layout(_divide)),
    "Erf": plain(kept_layout(tf.math.erf)),
    "Exp": plain(kept_layout(tf.exp)),
    "Floor": plain(tf.floor),
    "Log": plain(kept_layout(tf.math.log)),
    "Max": plain(kept_layout(_folded(tf.maximum))),
    "Mean": plain(kept_layout(_mean)),
    "Min": plain(kept_layout(_folded(tf.minimum))),
    "Mod": _modulo,
    "Mul": plain(kept_layout(tf.multiply)),
    "Neg": plain(kept_layout(tf.negative)),
    "Pow": _build_power,
    "Reciprocal": plain(tf.math.reciprocal),
    "Round": plain(tf.round),
    "Sign": plain(_sign),
    "Sin": plain(tf.sin),
    "Sinh": plain(tf.sinh),
    "Sqrt": plain(kept_layout(tf.sqrt)),
    "Sub": plain(kept_layout(tf.subtract)),
    "Sum": plain(kept_layout(_folded(tf.add))),
    "Tan": plain(tf.tan),
}
