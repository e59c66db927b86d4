"""Dropout"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.torch.builders import Value, asked, number, with_values


@with_values(1, 2)
def dropout(context: NodeContext, ratio: Value, training: Value) -> Kernel:
    """Drawn from PyTorch's own generator (`torch.manual_seed`); a seed in the node, which would drop the same
    elements in every step, is not used."""
    share = 0.5 if ratio is None else float(number(ratio))
    if context.evaluating or not (training is not None and number(training)) or share == 0:
        return asked(context, _everything_passes) if len(context.node.outputs) > 1 else _passes
    if len(context.node.outputs) == 1:

        def dropout(x: Tensor, *others: Tensor | None) -> Tensor:
            return torch.dropout(x, share, True)

        return dropout

    def dropout_with_mask(x: Tensor, *others: Tensor | None) -> Any:
        return torch.native_dropout(x, share, True)

    return dropout_with_mask


def _passes(x: Tensor, *others: Tensor | None) -> Tensor:
    return x


def _everything_passes(x: Tensor, *others: Tensor | None) -> Any:
    return x, torch.ones_like(x, dtype=torch.bool)


FACTORIES: Mapping[str, KernelFactory] = {"Dropout": dropout}
