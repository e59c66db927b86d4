"""Losses: SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss and MeanSquaredError"""

from collections.abc import Callable, Mapping
from typing import Any

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Tensor, outputs

REDUCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "mean": tf.reduce_mean,
    "sum": tf.reduce_sum,
    "none": tf.identity,
}


def _reduction(context: NodeContext) -> str:
    name = context.attribute("reduction", "mean")
    if name not in REDUCTIONS:
        raise ConfigurationError(
            f"the node {context.node} has reduction={name!r}: give one of {', '.join(REDUCTIONS)}"
        )
    return str(name)


def _classes_last(x: Tensor) -> Tensor:
    """(batch, classes, *more) as (batch, *more, classes)."""
    return x if x.shape.rank == 2 else tf.transpose(x, [0, *range(2, x.shape.rank), 1])


def _likelihood_loss(context: NodeContext) -> Callable[..., Tensor]:
    """−w[label] log p[label]; the mean is over the weights, and what is to be ignored weighs nothing."""
    reduction, ignored = _reduction(context), context.attribute("ignore_index")

    def call(picked: Callable[[Tensor], Tensor], labels: Tensor, weights: Tensor | None) -> Tensor:
        if weights is None and ignored is None:
            return REDUCTIONS[reduction](picked(labels))
        counts = None if ignored is None else tf.not_equal(labels, tf.cast(ignored, labels.dtype))
        own = labels if counts is None else tf.where(counts, labels, tf.zeros_like(labels))
        losses = picked(own)
        weight = tf.ones_like(losses) if weights is None else tf.gather(weights, own)
        if counts is not None:
            weight = tf.where(counts, weight, tf.zeros_like(weight))
            losses = tf.where(counts, losses, tf.zeros_like(losses))
        weighted = losses * weight
        if reduction == "mean":
            return tf.reduce_sum(weighted) / tf.reduce_sum(weight)
        return REDUCTIONS[reduction](weighted)

    return call


def _negative_log_likelihood_loss(context: NodeContext) -> Kernel:
    loss = _likelihood_loss(context)

    def call(log_probabilities: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        return loss(lambda own: _picked(_classes_last(log_probabilities), own), labels, weights)

    return call


def _picked(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """−log p[label], for log p (batch, *more, classes) and labels (batch, *more)."""
    own = tf.gather(log_probabilities, labels[..., tf.newaxis], batch_dims=labels.shape.rank)
    return -tf.squeeze(own, -1)


def _softmax_cross_entropy_loss(context: NodeContext) -> Kernel:
    """−log softmax(scores)[label], by TensorFlow's fused function; also log softmax(scores) on request."""
    loss = _likelihood_loss(context)

    def call(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> Any:
        last = _classes_last(scores)
        value = loss(
            lambda own: tf.nn.sparse_softmax_cross_entropy_with_logits(_signed(own), last), labels, weights
        )
        return outputs(context, [value, tf.nn.log_softmax(scores, 1) if context.has_output(1) else None])

    return call


def _signed(labels: Tensor) -> Tensor:
    return labels if labels.dtype in (tf.int32, tf.int64) else tf.cast(labels, tf.int64)


def _mean_squared_error(context: NodeContext) -> Kernel:
    """(y − target)², its mean over all elements (domain "d5ray"), whose sum 16 bits could not hold."""

    def call(y: Tensor, target: Tensor) -> Tensor:
        squares = tf.math.squared_difference(y, target)
        kind = tf.float32 if y.dtype.size == 2 else y.dtype
        return tf.cast(tf.reduce_mean(tf.cast(squares, kind)), y.dtype)

    return call


FACTORIES: Mapping[str, KernelFactory] = {
    "MeanSquaredError": _mean_squared_error,
    "NegativeLogLikelihoodLoss": _negative_log_likelihood_loss,
    "SoftmaxCrossEntropyLoss": _softmax_cross_entropy_loss,
}
