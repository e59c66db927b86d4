"""Losses: SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss and MeanSquaredError"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.torch.builders import directly

_NONE_IGNORED = -100  # PyTorch's default, which no label is


def softmax_cross_entropy(context: NodeContext) -> Kernel:
    """Scores (batch, classes, …), labels (batch, …); the logarithms of the probabilities come out too."""
    reduction, ignored = (
        context.attribute("reduction", "mean"),
        context.attribute("ignore_index", _NONE_IGNORED),
    )
    if len(context.node.outputs) == 1:

        def cross_entropy(scores: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
            if scores.dim() > 2 and reduction == "mean" and (rows := scores.movedim(1, -1)).is_contiguous():
                scores, labels = rows.flatten(0, -2), labels.flatten()  # PyTorch's kernel for rows is quicker
            return F.cross_entropy(scores, labels.long(), weight, ignore_index=ignored, reduction=reduction)

        return cross_entropy

    def with_logarithms(scores: Tensor, labels: Tensor, weight: Tensor | None = None) -> Any:
        logarithms = torch.log_softmax(scores, 1)
        loss = F.nll_loss(logarithms, labels.long(), weight, ignore_index=ignored, reduction=reduction)
        return loss, logarithms

    return with_logarithms


def negative_log_likelihood(context: NodeContext) -> Kernel:
    """Logarithms of probabilities (batch, classes, …), labels (batch, …)."""
    reduction, ignored = (
        context.attribute("reduction", "mean"),
        context.attribute("ignore_index", _NONE_IGNORED),
    )

    def nll_loss(logarithms: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        return F.nll_loss(logarithms, labels.long(), weight, ignore_index=ignored, reduction=reduction)

    return nll_loss


FACTORIES: Mapping[str, KernelFactory] = {
    "MeanSquaredError": directly(F.mse_loss),  # the mean over all elements
    "NegativeLogLikelihoodLoss": negative_log_likelihood,
    "SoftmaxCrossEntropyLoss": softmax_cross_entropy,
}
