"""Losses under JAX: d5ray's own by JAX's functions, and any function of a model's output and the labels"""

from typing import Any, Final

import jax
import jax.numpy as jnp

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.model_calls import no_number, scores_in, sum_and_weight
from d5ray.operators.loss import Loss
from d5ray.ops.losses.function_loss import FunctionLoss, ModelLoss
from d5ray.ops.losses.masked_cross_entropy_loss import MaskedCrossEntropyLoss
from d5ray.ops.losses.mean_squared_error_loss import MeanSquaredErrorLoss
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

OF_CLASSES: Final = (SoftmaxCrossEntropyLoss, MaskedCrossEntropyLoss)


def scores_of(output: Any) -> Any:
    """The scores in a model's output; see `scores_in`."""
    return scores_in(output, lambda value: isinstance(value, jax.Array))


def loss_of(loss: Loss, output: Any, labels: Any) -> tuple[jax.Array, Any]:
    """The mean loss of a model's output, one number, and the weight of the batch, None where it has none.

    A loss of one's own has a method `jax(scores, labels)` beside `torch`. Raises `ConfigurationError` for
    what is no loss.
    """
    seen = output if loss.sees_output else scores_of(output)
    own = getattr(loss, "jax", None)
    if own is not None:
        found = own(seen, labels)
    elif isinstance(loss, OF_CLASSES):
        found = _cross_entropy(loss, seen, labels)
    elif isinstance(loss, MeanSquaredErrorLoss):
        _check_labels(loss, seen.shape, labels.shape)
        found = jnp.mean((seen - labels) ** 2)
    elif isinstance(loss, (FunctionLoss, ModelLoss)):
        found = loss.torch(seen, labels)  # calls it
    else:
        raise ConfigurationError(
            f"{loss!r} has no form for JAX: give it a method jax(scores, labels), take a function of "
            "(output, labels), or train under PyTorch, executor='torch'"
        )
    weight = None
    if loss.weighted is None:
        found, weight = sum_and_weight(found)
    if not isinstance(found, jax.Array) or found.size != 1 or not jnp.issubdtype(found.dtype, jnp.floating):
        raise no_number(loss, found)
    found = found.reshape(())
    if loss.weighted:
        return found, (labels != loss.ignored).sum()
    if weight is None:
        return found, None
    weight = jax.lax.stop_gradient(weight)
    return found / jnp.where(weight > 0, weight, 1), weight


def right_ones(scores: Any, labels: Any, loss: Loss) -> jax.Array:
    """The number of labels that have the largest score, of those that count."""
    right = scores.argmax(axis=loss.classes_axis) == labels
    return (right if loss.ignored is None else right & (labels != loss.ignored)).sum()


def check_form(loss: Loss) -> None:
    """Raise `ConfigurationError` for a loss of PyTorch's, which takes no arrays of JAX."""
    function = getattr(loss, "function", None)
    package = str(getattr(function, "__module__", None) or type(function).__module__).partition(".")[0]
    if package == "torch":
        raise ConfigurationError(
            f"{loss!r} is a loss of PyTorch's, and the executor is 'jax': take SoftmaxCrossEntropyLoss() or "
            "another one of d5ray.operators, or a function of (output, labels) in JAX, such as "
            "optax.softmax_cross_entropy_with_integer_labels(output, labels).mean()"
        )


def _cross_entropy(loss: Loss, scores: Any, labels: Any) -> Any:
    """−log softmax(scores)[label], the mean over the labels that count; 0 where none does."""
    _check_labels(loss, scores.shape[:-1], labels.shape)
    counts = jnp.ones(labels.shape, bool) if loss.ignored is None else labels != loss.ignored
    numbers = jnp.where(counts, labels, 0)
    own = jnp.take_along_axis(jax.nn.log_softmax(scores), numbers[..., None], axis=-1)[..., 0]
    return -jnp.where(counts, own, 0).sum() / jnp.maximum(counts.sum(), 1)


def _check_labels(loss: Loss, scores: tuple[int, ...], labels: tuple[int, ...]) -> None:
    if scores != labels:
        raise ConfigurationError(
            f"the model's output is for labels of shape {scores}, and the labels have the shape {labels}: "
            f"{loss!r} needs scores for every label, and a model whose output has the labels' shape, with "
            "the classes as one more axis at its end where there are some"
        )
