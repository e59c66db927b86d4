"""SoftmaxCrossEntropyLoss: −log softmax(scores)[label], mean over the batch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    import torch


@final
class SoftmaxCrossEntropyLoss(Loss):
    """L = −(1/N) Σ_n log( exp s[n, l_n] / Σ_k exp s[n, k] )   (ONNX operator SoftmaxCrossEntropyLoss).

    Scores (batch, classes), labels (batch,) in 0..classes-1; or for sequences scores (batch, T, classes) and
    labels (batch, T), and so on: n goes over all labels, and L is in nats a label. The classes are the last
    axis, as a network's last layer gives them; ONNX has them at axis 1, (batch, classes, T).
    """

    name = "SoftmaxCrossEntropyLoss"
    weighted = False

    def check(self, output_shape: tuple[int, ...], classes: int) -> None:
        check_classes(self, output_shape, classes)

    def numpy(self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
        check_scores(self, scores.shape, labels.shape)
        shifted = scores - scores.max(axis=-1, keepdims=True)  # (batch, ..., classes)
        log_sum = np.log(np.exp(shifted).sum(axis=-1))  # (batch, ...)
        own = np.take_along_axis(shifted, labels[..., None], axis=-1)[..., 0]
        return float((log_sum - own).mean())

    def numpy_gradient(
        self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        check_scores(self, scores.shape, labels.shape)
        exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
        gradient: np.ndarray[Any, Any] = exponentials / exponentials.sum(axis=-1, keepdims=True)
        own = np.take_along_axis(gradient, labels[..., None], axis=-1)
        np.put_along_axis(gradient, labels[..., None], own - 1.0, axis=-1)
        gradient /= labels.size
        return gradient

    def torch(self, scores: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        from torch.nn.functional import cross_entropy  # noqa: PLC0415 - loaded when asked for

        check_scores(self, scores.shape, labels.shape)
        if scores.ndim == 2:
            return cross_entropy(scores, labels)
        return cross_entropy(scores.flatten(end_dim=-2), labels.flatten())


def check_classes(loss: Loss, output_shape: tuple[int, ...], classes: int) -> None:
    """Raise `ConfigurationError` unless the last axis of a model's output (batch, ...) are the classes."""
    if len(output_shape) < 2 or output_shape[-1] != classes:
        shown = "(" + ", ".join(["batch", *map(str, output_shape[1:])]) + ")"
        raise ConfigurationError(
            f"the model's output has the shape {shown}, but {type(loss).__name__} over {classes} classes "
            f"needs (batch, {classes}), or (batch, length, {classes}) for sequences: let the model's last "
            f"layer give {classes} scores per label"
        )


def check_scores(loss: Loss, scores: Sequence[int], labels: Sequence[int]) -> None:
    """Raise `ConfigurationError` unless there is a row of scores for every label."""
    if scores[:-1] != labels:
        raise ConfigurationError(
            f"the model's output has the shape {tuple(scores)} for labels of shape {tuple(labels)}, but "
            f"{type(loss).__name__} needs scores for every label: choose a model whose output has the "
            "labels' shape and the classes as one more axis at its end"
        )
