"""Activations: Relu, Gelu, Sigmoid, Clip and their family"""

from collections.abc import Callable, Mapping

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.tensorflow.layout import kept_layout
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Tensor, plain

SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # float32, as ONNX has them


def _built(function: Callable[[Tensor], Tensor]) -> Kernel:
    return kept_layout(function)


def _composed(function: Callable[[Tensor], Tensor]) -> Kernel:
    """A function of several steps, which for 16-bit numbers are taken in float32, and rounded once."""

    @kept_layout
    def call(x: Tensor) -> Tensor:
        if x.dtype.size < 4:
            return tf.cast(function(tf.cast(x, tf.float32)), x.dtype)
        return function(x)

    return call


def _celu(context: NodeContext) -> Kernel:
    """max(0, x) + min(0, α (exp(x/α) − 1))"""
    alpha = context.attribute("alpha", 1.0)
    if alpha == 1.0:
        return _built(tf.nn.elu)
    return _composed(lambda x: tf.where(x > 0, x, alpha * tf.nn.elu(x / alpha)))


def _elu(context: NodeContext) -> Kernel:
    """x where x > 0, else α (exp(x) − 1)"""
    alpha = context.attribute("alpha", 1.0)
    if alpha == 1.0:
        return _built(tf.nn.elu)
    return _composed(lambda x: tf.where(x > 0, x, alpha * tf.nn.elu(x)))


def _selu(context: NodeContext) -> Kernel:
    """γ x where x > 0, else γ α (exp(x) − 1)"""
    alpha, gamma = context.attribute("alpha", SELU_ALPHA), context.attribute("gamma", SELU_GAMMA)

    def composed(x: Tensor) -> Tensor:
        return gamma * tf.where(x > 0, x, alpha * tf.nn.elu(x))

    if (alpha, gamma) != (SELU_ALPHA, SELU_GAMMA):
        return _composed(composed)
    return _built(lambda x: composed(x) if x.dtype == tf.float64 else tf.nn.selu(x))


def _clip(context: NodeContext) -> Kernel:
    """min(max(x, low), high): the upper bound where the bounds cross."""

    @kept_layout
    def between(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return tf.minimum(tf.maximum(x, low), high)

    at_least, at_most = kept_layout(tf.maximum), kept_layout(tf.minimum)

    def call(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
        if low is None:
            return x if high is None else at_most(x, high)
        return at_least(x, low) if high is None else between(x, low, high)

    return call


def _gelu(context: NodeContext) -> Kernel:
    """x Φ(x), or its approximation by tanh (Hendrycks and Gimpel, arXiv:1606.08415)"""
    approximate = context.attribute("approximate", "none") == "tanh"
    return _built(lambda x: tf.nn.gelu(x, approximate))


def _hard_sigmoid(context: NodeContext) -> Kernel:
    """max(0, min(1, α x + β))"""
    alpha, beta = context.attribute("alpha", 0.2), context.attribute("beta", 0.5)
    return _composed(lambda x: tf.maximum(tf.minimum(alpha * x + beta, 1), 0))


def _hard_swish(x: Tensor) -> Tensor:
    """x max(0, min(1, x/6 + 1/2))   (Howard et al., arXiv:1905.02244)"""
    return x * tf.maximum(tf.minimum(x / 6 + 0.5, 1), 0)


def _leaky_relu(context: NodeContext) -> Kernel:
    alpha = context.attribute("alpha", 0.01)
    return _built(lambda x: tf.nn.leaky_relu(x, alpha))


def _mish(x: Tensor) -> Tensor:
    """x tanh(softplus(x))   (Misra, arXiv:1908.08681)"""
    return x * tf.tanh(tf.math.softplus(x))


def _prelu(x: Tensor, slope: Tensor) -> Tensor:
    return tf.where(x < 0, slope * x, x)


def _shrink(context: NodeContext) -> Kernel:
    """x + bias where x < −λ, x − bias where x > λ, else 0"""
    bias, bound = context.attribute("bias", 0.0), context.attribute("lambd", 0.5)

    def call(x: Tensor) -> Tensor:
        if x.dtype.is_integer:
            return tf.cast(call(tf.cast(x, tf.float64)), x.dtype)
        return tf.where(x < -bound, x + bias, tf.where(x > bound, x - bias, tf.zeros_like(x)))

    return call


def _swish(context: NodeContext) -> Kernel:
    """x σ(α x)   (Ramachandran et al., arXiv:1710.05941)"""
    alpha = context.attribute("alpha", 1.0)
    return _built(lambda x: tf.nn.silu(x, alpha))


def _thresholded_relu(context: NodeContext) -> Kernel:
    alpha = context.attribute("alpha", 1.0)
    return _built(lambda x: tf.where(x > alpha, x, tf.zeros_like(x)))


FACTORIES: Mapping[str, KernelFactory] = {
    "Celu": _celu,
    "Clip": _clip,
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": plain(_composed(_hard_swish)),
    "LeakyRelu": _leaky_relu,
    "Mish": plain(_composed(_mish)),
    "PRelu": plain(kept_layout(_prelu)),
    "Relu": plain(kept_layout(tf.nn.relu)),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": plain(kept_layout(tf.sigmoid)),
    "Softplus": plain(kept_layout(tf.math.softplus)),
    "Softsign": plain(kept_layout(tf.nn.softsign)),
    "Swish": _swish,
    "Tanh": plain(kept_layout(tf.tanh)),
    "ThresholdedRelu": _thresholded_relu,
}
