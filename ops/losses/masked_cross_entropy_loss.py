"""MaskedCrossEntropyLoss: the mean of −log softmax(scores)[label] over the labels that count"""

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.loss import Loss
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss, check_classes, check_scores

if TYPE_CHECKING:
    import torch

ALL: Final = SoftmaxCrossEntropyLoss()


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
        check_classes(self, output_shape, classes)

    def numpy(self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
        check_scores(self, scores.shape, labels.shape)
        kept = labels != self.ignored
        return ALL.numpy(scores[kept], labels[kept]) if kept.any() else 0.0

    def numpy_gradient(
        self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        check_scores(self, scores.shape, labels.shape)
        kept, gradient = labels != self.ignored, np.zeros_like(scores)
        if kept.any():
            gradient[kept] = ALL.numpy_gradient(scores[kept], labels[kept])
        return gradient

    def torch(self, scores: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        from torch.nn.functional import cross_entropy  # noqa: PLC0415 - loaded when asked for

        check_scores(self, scores.shape, labels.shape)
        flat, truth = scores.flatten(end_dim=-2), labels.flatten()
        total = cross_entropy(flat, truth, ignore_index=self.ignored, reduction="sum")
        return total / truth.ne(self.ignored).sum().clamp(min=1)
