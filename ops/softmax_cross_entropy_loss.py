"""SoftmaxCrossEntropyLoss: −log softmax(scores)[label], mean over the batch."""

from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    import torch


@final
class SoftmaxCrossEntropyLoss(Loss):
    """L = −(1/B) Σ_b log( exp s[b, l_b] / Σ_k exp s[b, k] )   (ONNX operator SoftmaxCrossEntropyLoss)

    Scores (batch, classes), labels (batch,) in 0..classes-1.
    """

    name = "SoftmaxCrossEntropyLoss"

    def check(self, output_shape: tuple[int, ...], classes: int) -> None:
        if len(output_shape) != 2 or output_shape[1] != classes:
            shown = "(" + ", ".join(["batch", *map(str, output_shape[1:])]) + ")"
            raise ConfigurationError(
                f"the model's output has the shape {shown}, but {self.name} over {classes} classes needs "
                f"(batch, {classes}): let the model's last layer give {classes} scores per sample"
            )

    def numpy(self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
        shifted = scores - scores.max(axis=1, keepdims=True)  # (batch, classes)
        log_sum = np.log(np.exp(shifted).sum(axis=1))  # (batch,)
        return float((log_sum - shifted[np.arange(len(labels)), labels]).mean())

    def numpy_gradient(
        self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        gradient: np.ndarray[Any, Any] = exponentials / exponentials.sum(axis=1, keepdims=True)
        gradient[np.arange(len(labels)), labels] -= 1.0
        gradient /= len(labels)
        return gradient

    def torch(self, scores: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        from torch.nn.functional import cross_entropy  # noqa: PLC0415 - loaded when asked for

        return cross_entropy(scores, labels)
