"""Collectives and one part of a Dropout as operations of PyTorch, which autograd knows"""

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from d5ray.kits.parallel.collectives import nodes as types
from d5ray.kits.parallel.collectives.exchanges import Exchange, Exchanges
from d5ray.kits.parallel.collectives.nodes import group_of
from d5ray.operators.nodes.node_context import Kernel, NodeContext
from d5ray.ops.torch.builders import Value, number, with_values


@final
class TorchExchanges(Exchanges):
    """Exchanges of PyTorch's tensors, on their own device."""

    def _copied(self, x: Tensor) -> Tensor:
        return x.detach().clone(memory_format=torch.contiguous_format)

    def _turned(self, x: Tensor, order: tuple[int, ...]) -> Tensor:
        return x.detach().permute(order).clone(memory_format=torch.contiguous_format)

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(tuple(parts), dim=1)

    def _empty(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        return like.new_empty(shape)


class _Exchanged(torch.autograd.Function):
    """One exchange of a tensor, and another of its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forth: Exchange, back: Exchange) -> Tensor:
        ctx.back = back
        made: Tensor = forth(x)
        return made.view_as(made) if made is x else made

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back(gradient), None, None


def implementation(context: NodeContext) -> Kernel:
    """A collective, or one part of a Dropout, as a function of PyTorch's tensors, differentiable."""
    if context.node.type == types.DROPOUT:
        return _part_of_dropout(context)
    group_of(context)
    forth, back = TorchExchanges(context).pair

    def collective(x: Tensor) -> Tensor:
        return _Exchanged.apply(x, forth, back)  # type: ignore[no-any-return, no-untyped-call]

    return collective


@with_values(1, 2)
def _part_of_dropout(context: NodeContext, ratio: Value, training: Value) -> Kernel:
    """The mask is drawn for all parts, as the Dropout of the whole tensor draws it, and this one's taken."""
    exchanges = TorchExchanges(context)
    share = 0.5 if ratio is None else float(number(ratio))
    if context.evaluating or not (training is not None and number(training)) or share == 0:
        return lambda x, *others: x

    def part_of_dropout(x: Tensor, *others: Tensor | None) -> Tensor:
        whole = x.new_ones(exchanges.whole_shape(x.shape))
        scale: Tensor = exchanges.part(torch.dropout(whole, share, True))
        return x * scale

    return part_of_dropout
