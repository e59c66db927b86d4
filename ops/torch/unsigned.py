"""uint16, uint32 and uint64, for which PyTorch has few functions: computed in signed types that hold them"""

from typing import Any

import torch
from torch import Tensor

from d5ray.operators.builder import Builder, Built
from d5ray.operators.site import Site
from d5ray.ops.torch.types import UNSIGNED, known_type

_HOLDERS = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}
_LOWEST = -(2**63)


def widened(function: Built) -> Builder:
    """The function; unsigned inputs and outputs pass through a wider signed type, uint64 modulo 2⁶⁴."""

    def call(*tensors: Tensor) -> Any:
        unsigned = tensors[0].dtype
        if unsigned not in _HOLDERS:
            return function(*tensors)
        return to_unsigned(function(*map(to_signed, tensors)), unsigned)

    return _chosen(function, call)


def ordered(function: Built) -> Builder:
    """As `widened`, for functions that only compare and choose: the order of uint64 is kept."""

    def call(*tensors: Tensor) -> Any:
        unsigned = tensors[0].dtype
        if unsigned not in _HOLDERS:
            return function(*tensors)
        return from_ordered(function(*map(to_ordered, tensors)), unsigned)

    return _chosen(function, call)


def compared(function: Built) -> Builder:
    """As `ordered`, for functions whose output is of another type: booleans, or places."""

    def call(*tensors: Tensor) -> Any:
        return function(*map(to_ordered, tensors))

    return _chosen(function, call)


def _chosen(function: Built, call: Built) -> Builder:
    def build(site: Site) -> Built:
        return call if known_type(site) in (None, *UNSIGNED) else function

    return build


def to_signed(tensor: Tensor) -> Tensor:
    """The same numbers in a signed type, modulo 2⁶⁴; others than the unsigned types pass."""
    return tensor.to(_HOLDERS[tensor.dtype]) if tensor.dtype in _HOLDERS else tensor


def to_unsigned(tensor: Tensor, unsigned: torch.dtype) -> Tensor:
    """Back from `to_signed`, modulo what the type holds."""
    return tensor.to(unsigned)


def to_ordered(tensor: Tensor) -> Tensor:
    """Numbers of a signed type in the same order; those of uint64 are moved down by 2⁶³."""
    signed = to_signed(tensor)
    return signed ^ _LOWEST if tensor.dtype == torch.uint64 else signed


def from_ordered(tensor: Tensor, unsigned: torch.dtype) -> Tensor:
    """Back from `to_ordered`."""
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
