"""Comparisons, logic, bits, and Where"""

from collections.abc import Mapping

import torch
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.torch.builders import directly
from d5ray.ops.torch.unsigned import compared, to_signed, widened


def bit_shift(context: NodeContext) -> Kernel:
    """BitShift: by more bits than there are, or a negative number, it gives what many single shifts give."""
    if context.required("direction") == "LEFT":
        return widened(torch.bitwise_left_shift)(context)

    def right(a: Tensor, b: Tensor) -> Tensor:
        if a.dtype != torch.uint64:
            return torch.bitwise_right_shift(to_signed(a), to_signed(b)).to(a.dtype)
        signed, bits = to_signed(a), to_signed(b)
        halved = (signed >> 1) & (2**63 - 1)  # zeros come in from the left
        return torch.where(bits == 0, signed, torch.bitwise_right_shift(halved, bits - 1)).to(a.dtype)

    return right


def is_infinite(context: NodeContext) -> Kernel:
    """PyTorch's isinf, isneginf or isposinf, as the node asks; without either sign, never."""
    negative, positive = context.attribute("detect_negative", 1), context.attribute("detect_positive", 1)
    if negative and positive:
        return torch.isinf
    if negative:
        return torch.isneginf
    if positive:
        return torch.isposinf

    def never(x: Tensor) -> Tensor:
        return torch.zeros_like(x, dtype=torch.bool)

    return never


FACTORIES: Mapping[str, KernelFactory] = {
    "And": directly(torch.logical_and),
    "BitShift": bit_shift,
    "BitwiseAnd": widened(torch.bitwise_and),
    "BitwiseNot": widened(torch.bitwise_not),
    "BitwiseOr": widened(torch.bitwise_or),
    "BitwiseXor": widened(torch.bitwise_xor),
    "Equal": compared(torch.eq),
    "Greater": compared(torch.gt),
    "GreaterOrEqual": compared(torch.ge),
    "IsInf": is_infinite,
    "IsNaN": directly(torch.isnan),
    "Less": compared(torch.lt),
    "LessOrEqual": compared(torch.le),
    "Not": directly(torch.logical_not),
    "Or": directly(torch.logical_or),
    "Where": directly(torch.where),
    "Xor": directly(torch.logical_xor),
}
