"""Losses of a Keras model's output: the catalogue's operators, Keras's own, and functions of TensorFlow"""

from typing import Any

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.model_calls import no_number, scores_in, sum_and_weight
from d5ray.operators.loss import Loss
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.lookup import implementation
from d5ray.ops.losses.function_loss import FunctionLoss
from d5ray.ops.losses.masked_cross_entropy_loss import MaskedCrossEntropyLoss
from d5ray.ops.tensorflow.library import tf

Tensor = Any  # of TensorFlow


def compared(loss: Loss, output: Any, labels: Tensor) -> tuple[Tensor, Tensor | None]:
    """The mean loss of all that a model gives, one number, and the weight of the batch, if it has one.

    Raises `ConfigurationError` for what is no loss. A loss of one's own has a method
    `tensorflow(scores, labels)` beside `torch`. Outputs of less than float32 are compared in float32, as
    Keras does.
    """
    output = tf.nest.map_structure(_widened, output)
    own = getattr(loss, "tensorflow", None)
    if own is not None:
        found = own(output if loss.sees_output else scores_of(output), labels)
    elif isinstance(loss, FunctionLoss):
        found = _of_function(loss, output, labels)
    elif isinstance(loss, MaskedCrossEntropyLoss):
        found = _masked(loss, scores_of(output), labels)
    elif loss.takes_labels:
        raise loss.lacking("Keras models")
    else:
        found = of_scores(loss, scores_of(output), labels)
    weight = None
    if loss.weighted is None:
        found, weight = sum_and_weight(found)
    found = tf.convert_to_tensor(found)
    if found.shape.num_elements() != 1:
        raise no_number(loss, found)
    found = tf.reshape(found, ())
    if loss.weighted:
        return found, tf.math.count_nonzero(labels != loss.ignored)
    if weight is None:
        return found, None
    weight = tf.stop_gradient(tf.cast(weight, found.dtype))
    return found / tf.where(weight > 0, weight, tf.ones_like(weight)), weight


def of_scores(loss: Loss, scores: Tensor, labels: Tensor) -> Tensor:
    """The loss of scores (batch, ..., classes) by the catalogue's operator, which has classes at axis 1."""
    if not loss.name:
        raise loss.lacking("TensorFlow")
    if len(scores.shape) > 2 and loss.classifies:
        scores = tf.experimental.numpy.moveaxis(scores, -1, 1)
    context = NodeContext(Node(loss.name, ("scores", "labels"), ("loss",), name="loss"))
    return implementation("tensorflow", context)(scores, labels)


def scores_of(output: Any) -> Tensor:
    """The scores in a model's output; see `scores_in`. They are float32 where the model computes in less."""
    return _widened(scores_in(output, tf.is_tensor))


def _widened(value: Any) -> Any:
    """A tensor in float32 where it has less; anything else as it is."""
    short = tf.is_tensor(value) and value.dtype.is_floating and value.dtype.size < 4
    return tf.cast(value, tf.float32) if short else value


def _of_function(loss: FunctionLoss, output: Any, labels: Tensor) -> Tensor:
    try:
        return loss.function(output, labels)
    except (TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"{loss!r} does not take TensorFlow's tensors ({error}): give a loss of Keras's, one of d5ray's, "
            "or a function of (output, labels) written in TensorFlow"
        ) from error


def _masked(loss: MaskedCrossEntropyLoss, scores: Tensor, labels: Tensor) -> Tensor:
    """The mean over the labels that count; 0 where none does."""
    counts = labels != loss.ignored
    own = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.where(counts, labels, 0), scores)
    weights = tf.cast(counts, own.dtype)
    return tf.math.divide_no_nan(tf.reduce_sum(own * weights), tf.reduce_sum(weights))
