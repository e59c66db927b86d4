"""uint16, uint32 and uint64, for which PyTorch has few functions: computed in signed types that hold them"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.torch.builders import directly
from d5ray.ops.torch.types import UNSIGNED, known_type

_HOLDERS = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}
_LOWEST = -(2**63)


def widened(function: Kernel) -> KernelFactory:
    """The function; unsigned inputs and outputs pass through a wider signed type, uint64 modulo 2⁶⁴."""
    return through_signed(directly(function))


def ordered(function: Kernel) -> KernelFactory:
    """A kernel factory like `widened`, for functions that only compare and choose: uint64 keeps its order."""
    return through_ordered(directly(function))


def compared(function: Kernel) -> KernelFactory:
    """A kernel factory like `ordered`, for functions whose output is of another type: booleans, or places."""

    def call(*tensors: Tensor) -> Any:
        return function(*map(to_ordered, tensors))

    def build(context: NodeContext) -> Kernel:
        return call if _may_be_unsigned(context) else function

    return build


def through_signed(builder: KernelFactory) -> KernelFactory:
    """A kernel factory for inputs that may be unsigned, and for one output of the first one's type."""
    return _through(builder, to_signed, to_unsigned)


def through_ordered(builder: KernelFactory) -> KernelFactory:
    """A kernel factory like `through_signed`, for what only compares and chooses."""
    return _through(builder, to_ordered, from_ordered)


def _through(
    builder: KernelFactory, to: Callable[[Tensor], Tensor], back: Callable[[Tensor, torch.dtype], Tensor]
) -> KernelFactory:
    def build(context: NodeContext) -> Kernel:
        built = builder(context)

        def call(first: Tensor, *others: Tensor | None) -> Any:
            if first.dtype not in _HOLDERS:
                return built(first, *others)
            signed = (None if other is None else to(other) for other in others)
            return back(built(to(first), *signed), first.dtype)

        return call if _may_be_unsigned(context) else built

    return build


def _may_be_unsigned(context: NodeContext) -> bool:
    return known_type(context) in (None, *UNSIGNED)


def to_signed(tensor: Tensor) -> Tensor:
    """The numbers in a signed type, modulo 2⁶⁴; others than the unsigned types pass."""
    return tensor.to(_HOLDERS[tensor.dtype]) if tensor.dtype in _HOLDERS else tensor


def to_unsigned(tensor: Tensor, unsigned: torch.dtype) -> Tensor:
    """The inverse of `to_signed`, modulo what the type holds."""
    return tensor.to(unsigned)


def to_ordered(tensor: Tensor) -> Tensor:
    """Numbers of a signed type in the same order; those of uint64 are moved down by 2⁶³."""
    signed = to_signed(tensor)
    return signed ^ _LOWEST if tensor.dtype == torch.uint64 else signed


def from_ordered(tensor: Tensor, unsigned: torch.dtype) -> Tensor:
    """The inverse of `to_ordered`."""
    return (tensor ^ _LOWEST if unsigned == torch.uint64 else tensor).to(unsigned)


def quotient(a: Tensor, b: Tensor) -> Tensor:
    """a / b of integers, rounded towards zero."""
    if a.dtype != torch.uint64:
        return to_unsigned(torch.div(to_signed(a), to_signed(b), rounding_mode="trunc"), a.dtype)
    dividend, divisor = to_signed(a), to_signed(b)
    great = divisor < 0  # it is 2⁶³ or more, and the quotient 0 or 1
    half = (dividend >> 1) & ~_LOWEST  # not negative: signed division is right for it
    twice = torch.where(great, 0, torch.div(half, torch.where(great, 1, divisor), rounding_mode="trunc") * 2)
    rest = dividend - twice * divisor  # below twice the divisor
    return (twice + ((rest ^ _LOWEST) >= (divisor ^ _LOWEST))).to(torch.uint64)


def remainder(a: Tensor, b: Tensor) -> Tensor:
    """a − ⌊a / b⌋ b of integers: of the sign of b."""
    if a.dtype != torch.uint64:
        return to_unsigned(torch.remainder(to_signed(a), to_signed(b)), a.dtype)
    return to_unsigned(to_signed(a) - to_signed(quotient(a, b)) * to_signed(b), a.dtype)
