"""MaskedCrossEntropyLoss: the mean of −log softmax(scores)[label] over the labels that count"""

from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    import torch


@final
class MaskedCrossEntropyLoss(Loss):
    """L = −(1/M) Σ_m log softmax(s[m])[l_m], m over the M labels that are not `ignored`; 0 where all are.

    As PyTorch's `cross_entropy(…, ignore_index=−100)`, of scores (batch, ..., classes) and labels
    (batch, ...): for sequences that are padded, and tokens that are given. Accuracy is of the labels that
    count, too. M is that of all agents' labels together, where they take the mean of their gradients. For
    every framework that trains models as they are.
    """

    weighted = True

    def __init__(self, ignored: int = -100) -> None:
        if isinstance(ignored, bool) or not isinstance(ignored, (int, np.integer)):
            raise ConfigurationError(f"ignored is {ignored!r}: it must be an integer, such as -100")
        self.ignored: int = int(ignored)

    def check(self, output_shape: tuple[int, ...], classes: int) -> None:
        if len(output_shape) < 2 or output_shape[-1] != classes:
            raise ConfigurationError(
                f"the model's output has the shape {output_shape}, but {self!r} over {classes} classes needs "
                f"(batch, {classes}), or (batch, length, {classes}) for sequences: let the model's last "
                f"layer give {classes} scores per label"
            )

    def numpy(self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
        kept = labels != self.ignored
        if not kept.any():
            return 0.0
        chosen = scores[kept]  # (M, classes)
        shifted = chosen - chosen.max(axis=-1, keepdims=True)
        own = np.take_along_axis(shifted, labels[kept][:, None], axis=-1)[:, 0]
        return float((np.log(np.exp(shifted).sum(axis=-1)) - own).mean())

    def numpy_gradient(
        self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        kept = labels != self.ignored
        gradient = np.zeros_like(scores)
        if kept.any():
            chosen = scores[kept]
            exponentials = np.exp(chosen - chosen.max(axis=-1, keepdims=True))
            found = exponentials / exponentials.sum(axis=-1, keepdims=True)
            found[np.arange(len(found)), labels[kept]] -= 1.0
            gradient[kept] = found / len(found)
        return gradient

    def torch(self, scores: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        from torch.nn.functional import cross_entropy  # noqa: PLC0415 - loaded when asked for

        if scores.shape[:-1] != labels.shape:
            raise ConfigurationError(
                f"the model's output has the shape {tuple(scores.shape)} for labels of shape "
                f"{tuple(labels.shape)}, but {self!r} needs scores for every label: choose a model whose "
                "output has the labels' shape and the classes as one more axis at its end"
            )
        flat, truth = scores.flatten(end_dim=-2), labels.flatten()
        total = cross_entropy(flat, truth, ignore_index=self.ignored, reduction="sum")
        return total / truth.ne(self.ignored).sum().clamp(min=1)
