"""Operators of the tests' own, where the catalogue's are not what is tested"""

import time
from collections.abc import Sequence
from typing import Any

import torch

from d5ray.operators.array_operator import ArrayOperator
from d5ray.operators.nodes.node_context import Kernel, NodeContext


class Product(ArrayOperator):
    """op(A) · op(B), as Gemm has them without C."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
        a, b = inputs
        return (
            (a.T if context.attribute("transA", 0) else a) @ (b.T if context.attribute("transB", 0) else b),
        )

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
    ) -> tuple[Any, ...]:
        raise NotImplementedError("a Gemm is measured forwards")


class Slow(Product):
    """Takes its time."""

    seconds = 0.05

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
        time.sleep(self.seconds)
        return super().forward(xp, context, inputs)


def product(context: NodeContext) -> Kernel:
    """Gemm through PyTorch."""
    first, second = (bool(context.attribute(name, 0)) for name in ("transA", "transB"))

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.mm(a.T if first else a, b.T if second else b)

    return call


def broken(context: NodeContext) -> Kernel:
    """Fails whenever it is called."""

    def call(*inputs: torch.Tensor) -> torch.Tensor:
        raise MemoryError("no room for 1 TB")

    return call
