"""Softmax, LogSoftmax and Hardmax"""

from collections.abc import Mapping

import torch
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext


def softmax(context: NodeContext) -> Kernel:
    """exp(x) / Σ exp(x) along the node's axis, the last by default."""
    axis = context.attribute("axis", -1)

    def softmax(x: Tensor) -> Tensor:
        return torch.softmax(x, axis)

    return softmax


def log_softmax(context: NodeContext) -> Kernel:
    """x − log Σ exp(x) along the node's axis, the last by default."""
    axis = context.attribute("axis", -1)

    def log_softmax(x: Tensor) -> Tensor:
        return torch.log_softmax(x, axis)

    return log_softmax


def hardmax(context: NodeContext) -> Kernel:
    """1 where the greatest number stands first, 0 elsewhere."""
    axis = context.attribute("axis", -1)

    def hardmax(x: Tensor) -> Tensor:
        place = torch.argmax(x, axis, keepdim=True)
        return torch.zeros_like(x).scatter(axis, place, 1)

    return hardmax


FACTORIES: Mapping[str, KernelFactory] = {"Hardmax": hardmax, "LogSoftmax": log_softmax, "Softmax": softmax}
