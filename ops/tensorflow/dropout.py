"""Dropout"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.randomness import generator
from d5ray.ops.tensorflow.tensors import Tensor, outputs


def _dropout(context: NodeContext) -> Kernel:
    """x mask / (1 − ratio) in training, x otherwise; the mask is true where an element is let through.

    (Srivastava et al., 2014)
    """
    training = context.constants.get(2)
    if context.evaluating or not context.has_input(2) or (training is not None and not np.any(training)):
        return lambda x, *_: outputs(context, [x, tf.ones_like(x, tf.bool)] if context.has_output(1) else [x])
    random = generator(context)

    def train(x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None) -> Any:
        share = tf.constant(0.5) if ratio is None else tf.cast(ratio, tf.float32)
        share = tf.where(training, share, tf.zeros_like(share))
        mask = random.uniform(tf.shape(x)) >= share
        scale = tf.cast(tf.math.divide_no_nan(1.0, 1.0 - share), x.dtype)
        return outputs(context, [tf.where(mask, x * scale, tf.zeros_like(x)), mask])

    return train


FACTORIES: Mapping[str, KernelFactory] = {"Dropout": _dropout}
