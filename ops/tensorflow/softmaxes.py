"""Softmax, LogSoftmax and Hardmax"""

from collections.abc import Mapping

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Tensor, axis_of, sizes


def _softmax(context: NodeContext) -> Kernel:
    axis = context.attribute("axis", -1)
    return lambda x: tf.nn.softmax(x, axis)


def _log_softmax(context: NodeContext) -> Kernel:
    axis = context.attribute("axis", -1)
    return lambda x: tf.nn.log_softmax(x, axis)


def _hardmax(context: NodeContext) -> Kernel:
    """1 at the first of the greatest, 0 elsewhere."""

    def call(x: Tensor) -> Tensor:
        axis = axis_of(context, x, default=-1)
        return tf.one_hot(tf.argmax(x, axis), sizes(x)[axis], axis=axis, dtype=x.dtype)

    return call


FACTORIES: Mapping[str, KernelFactory] = {
    "Hardmax": _hardmax,
    "LogSoftmax": _log_softmax,
    "Softmax": _softmax,
}
