"""MeanSquaredErrorLoss: the mean of (score − target)², for targets that are no classes"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    import torch


@final
class MeanSquaredErrorLoss(Loss):
    """L = mean of (s − t)² over all numbers of scores and targets, both (batch, ...) float32.

    The operator MeanSquaredError, under every framework.
    """

    name = "MeanSquaredError"
    classifies = weighted = False

    def check(self, output_shape: tuple[int, ...], classes: int) -> None:
        """Accept any output; its shape is compared with the targets' when there are some."""

    def numpy(self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
        _check_alike(self, scores.shape, labels.shape)
        return float(((scores - labels) ** 2).mean())

    def numpy_gradient(
        self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        _check_alike(self, scores.shape, labels.shape)
        gradient: np.ndarray[Any, Any] = 2 * (scores - labels) / scores.size
        return gradient

    def torch(self, scores: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        from torch.nn.functional import mse_loss  # noqa: PLC0415 - loaded when asked for

        _check_alike(self, scores.shape, labels.shape)
        return mse_loss(scores, labels)


def _check_alike(loss: Loss, scores: Sequence[int], labels: Sequence[int]) -> None:
    if tuple(scores) != tuple(labels):
        raise ConfigurationError(
            f"the model's output has the shape {tuple(scores)} for targets of shape {tuple(labels)}, but "
            f"{loss!r} compares them number by number: let the model give as many as a target has"
        )
